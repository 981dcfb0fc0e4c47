// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series are the input of one test, in memory. It implements storage.Queryable and storage.Querier.
type series struct {
	all []*storage.SeriesEntry
}

// load reads the series in promtool's notation: values are an interval apart, `_` is none, `stale`
// ends a series.
func (b *rulebook) load(g group) (*series, error) {
	s := &series{}
	for _, in := range g.InputSeries {
		lset, values, err := b.parser.ParseSeriesDesc(in.Series + " " + in.Values)
		if err != nil {
			return nil, fmt.Errorf("input series %s: %w", in.Series, err)
		}
		var samples []chunks.Sample
		for i, v := range values {
			if v.Omitted {
				continue
			}
			at := time.Duration(g.Interval) * time.Duration(i)
			samples = append(samples, sample{t: at.Milliseconds(), v: v.Value})
		}
		s.all = append(s.all, storage.NewListSeries(lset, samples))
	}
	return s, nil
}

// Querier implements storage.Queryable.
func (s *series) Querier(_, _ int64) (storage.Querier, error) { return s, nil }

// Select implements storage.Querier; the engine itself leaves out what is not in the time
// it asks for.
func (s *series) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{at: -1}
	for _, one := range s.all {
		fits := true
		for _, m := range matchers {
			fits = fits && m.Matches(one.Labels().Get(m.Name))
		}
		if fits {
			found.all = append(found.all, one)
		}
	}
	return found
}

// LabelValues implements storage.Querier; only an API asks for them.
func (s *series) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.Querier; only an API asks for them.
func (s *series) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (s *series) Close() error { return nil }

// set goes through the series that were selected.
type set struct {
	all []*storage.SeriesEntry
	at  int
}

func (s *set) Next() bool {
	s.at++
	return s.at < len(s.all)
}
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

// sample is a value of a series; times are in milliseconds. stale, too, is a value: a certain NaN.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
