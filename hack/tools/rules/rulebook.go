// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"
)

const (
	queryTimeout = time.Minute
	maxSamples   = 1_000_000
)

// rulebook has the alerts under test.
type rulebook struct {
	rules  []rulefmt.Rule
	engine *promql.Engine
	parser parser.Parser
}

func newRulebook(groups []rulefmt.RuleGroup) (*rulebook, error) {
	b := &rulebook{parser: parser.NewParser(parser.Options{})}
	b.engine = promql.NewEngine(promql.EngineOpts{
		MaxSamples: maxSamples, Timeout: queryTimeout, EnableAtModifier: true, EnableNegativeOffset: true, Parser: b.parser,
	})
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			if _, err := b.parser.ParseExpr(r.Expr); err != nil {
				return nil, fmt.Errorf("%s: %w", r.Alert, err)
			}
			b.rules = append(b.rules, r)
		}
	}
	return b, nil
}

func (b *rulebook) names() []string {
	names := make([]string, 0, len(b.rules))
	for _, r := range b.rules {
		names = append(names, r.Alert)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// active is an alert since its expression became true.
type active struct {
	since  time.Time
	firing firing
}

// test evaluates the rules of which something is expected from 0 to the last expectation, every
// interval, as Prometheus would, and says what is not as expected. The others are left out: hours
// of a story cost seconds with all of them. What was looked at is noted in seen.
func (b *rulebook) test(ctx context.Context, g group, interval time.Duration, seen map[string]map[bool]bool) []error {
	data, err := b.load(g)
	if err != nil {
		return []error{err}
	}
	var end time.Duration
	asked := map[string]bool{}
	for _, e := range g.Alerts {
		end = max(end, time.Duration(e.At))
		asked[e.Name] = true
	}
	states := make([]map[uint64]active, len(b.rules))
	var problems []error
	for at := time.Duration(0); at <= end; at += interval {
		now := time.Unix(0, 0).UTC().Add(at)
		for i, r := range b.rules {
			if !asked[r.Alert] {
				continue
			}
			next, err := b.step(ctx, r, data, now, states[i])
			if err != nil {
				return append(problems, fmt.Errorf("%s at %s: %w", r.Alert, at, err))
			}
			states[i] = next
		}
		for _, e := range g.Alerts {
			if time.Duration(e.At) < at || time.Duration(e.At) >= at+interval {
				continue
			}
			got := b.firing(e.Name, states, now)
			note(seen, e.Name, len(got) > 0)
			if diff := diff(e, got); diff != "" {
				problems = append(problems, fmt.Errorf("%s at %s (-want +got):\n%s", e.Name, e.At, diff))
			}
		}
	}
	return problems
}

func note(seen map[string]map[bool]bool, name string, fires bool) {
	if seen[name] == nil {
		seen[name] = map[bool]bool{}
	}
	seen[name][fires] = true
}

// step evaluates one rule; an alert is active for as long as its labels are in the answer
// without a gap.
func (b *rulebook) step(ctx context.Context, r rulefmt.Rule, data *series, now time.Time, before map[uint64]active) (map[uint64]active, error) {
	vector, err := b.query(ctx, r.Expr, data, now)
	if err != nil {
		return nil, err
	}
	after := map[uint64]active{}
	for _, sample := range vector {
		f, err := b.describe(ctx, r, sample, data, now)
		if err != nil {
			return nil, err
		}
		id := labels.FromMap(f.Labels).Hash()
		since := now
		if a, was := before[id]; was {
			since = a.since
		}
		after[id] = active{since: since, firing: f}
	}
	return after, nil
}

func (b *rulebook) query(ctx context.Context, expr string, data *series, now time.Time) (promql.Vector, error) {
	q, err := b.engine.NewInstantQuery(ctx, data, nil, expr, now)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	return q.Exec(ctx).Vector()
}

// describe is the alert as it would be sent: the labels of the sample and the rule, and the
// annotations, filled in.
func (b *rulebook) describe(ctx context.Context, r rulefmt.Rule, s promql.Sample, data *series, now time.Time) (firing, error) {
	own := s.Metric.Map()
	delete(own, labels.MetricName)
	about := template.AlertTemplateData(own, nil, "", s)
	ask := func(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
		return b.query(ctx, expr, data, at)
	}
	fill := func(text string) (string, error) {
		text = "{{$labels := .Labels}}{{$value := .Value}}" + text
		return template.NewTemplateExpander(ctx, text, r.Alert, about, model.TimeFromUnixNano(now.UnixNano()), ask, &url.URL{}, nil).Expand()
	}
	f := firing{Labels: own, Annotations: map[string]string{}}
	for name, text := range r.Labels {
		value, err := fill(text)
		if err != nil {
			return firing{}, err
		}
		f.Labels[name] = value
	}
	for name, text := range r.Annotations {
		value, err := fill(text)
		if err != nil {
			return firing{}, err
		}
		f.Annotations[name] = value
	}
	return f, nil
}

// firing are the alerts of that name that have been active for long enough.
func (b *rulebook) firing(name string, states []map[uint64]active, now time.Time) []firing {
	var found []firing
	for i, r := range b.rules {
		if r.Alert != name {
			continue
		}
		for _, a := range states[i] {
			if now.Sub(a.since) >= time.Duration(r.For) {
				found = append(found, a.firing)
			}
		}
	}
	return found
}

// diff compares, in any order; every label and annotation counts.
func diff(e expectation, got []firing) string {
	byLabels := func(all []firing) map[string]firing {
		m := map[string]firing{}
		for _, f := range all {
			m[labels.FromMap(f.Labels).String()] = f
		}
		return m
	}
	return cmp.Diff(byLabels(e.Alerts), byLabels(got))
}
