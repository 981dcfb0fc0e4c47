// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// metrics are what operators export at one moment, those of several together.
type metrics []map[string]*dto.MetricFamily

// scrape reads the metrics of operators.
func scrape(ctx context.Context, operators ...*devenv.Manager) (metrics, error) {
	var all metrics
	for _, m := range operators {
		families, err := scrapeOne(ctx, m)
		if err != nil {
			return nil, err
		}
		all = append(all, families)
	}
	return all, nil
}

func scrapeOne(ctx context.Context, m *devenv.Manager) (families map[string]*dto.MetricFamily, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	return parseMetrics(resp.Body)
}

// scrapeServer reads the metrics of the API server.
func scrapeServer(ctx context.Context, config *rest.Config) (metrics, error) {
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	text, err := c.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	families, err := parseMetrics(bytes.NewReader(text))
	return metrics{families}, err
}

func parseMetrics(text io.Reader) (map[string]*dto.MetricFamily, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

// labels are the values that a metric must have, by label.
type labels map[string]string

func (l labels) match(m *dto.Metric) bool {
	found := 0
	for _, pair := range m.GetLabel() {
		if want, asked := l[pair.GetName()]; asked {
			if want != pair.GetValue() {
				return false
			}
			found++
		}
	}
	return found == len(l)
}

// sum adds up a counter or gauge.
func (a metrics) sum(name string, where labels) float64 {
	total := 0.0
	for _, families := range a {
		for _, m := range families[name].GetMetric() {
			if where.match(m) {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return total
}

// apiWrites counts requests to the API server that change something.
func (a metrics) apiWrites() float64 {
	const name = "rest_client_requests_total"
	return a.sum(name, nil) - a.sum(name, labels{"method": "GET"})
}

// histogram is what was added to a histogram between two moments: counts by upper bound, in order,
// and their sum.
type histogram struct {
	bounds []float64
	counts []float64 // up to and with the bound
	count  float64
	sum    float64
}

// between is what was observed since before.
func between(before, after metrics, name string, where labels) histogram {
	h := after.histogram(name, where)
	old := before.histogram(name, where)
	h.count, h.sum = h.count-old.count, h.sum-old.sum
	for i := range h.counts {
		if i < len(old.counts) {
			h.counts[i] -= old.counts[i]
		}
	}
	return h
}

func (a metrics) histogram(name string, where labels) histogram {
	byBound := map[float64]float64{}
	var h histogram
	for _, families := range a {
		for _, m := range families[name].GetMetric() {
			if !where.match(m) {
				continue
			}
			h.count += float64(m.GetHistogram().GetSampleCount())
			h.sum += m.GetHistogram().GetSampleSum()
			for _, b := range m.GetHistogram().GetBucket() {
				byBound[b.GetUpperBound()] += float64(b.GetCumulativeCount())
			}
		}
	}
	for bound := range byBound {
		h.bounds = append(h.bounds, bound)
	}
	slices.Sort(h.bounds)
	for _, bound := range h.bounds {
		h.counts = append(h.counts, byBound[bound])
	}
	return h
}

func (h histogram) mean() float64 {
	if h.count == 0 {
		return 0
	}
	return h.sum / h.count
}

// quantile estimates as histogram_quantile of PromQL does: evenly within a bucket.
func (h histogram) quantile(q float64) float64 {
	rank, below, from := q*h.count, 0.0, 0.0
	for i, bound := range h.bounds {
		if h.counts[i] >= rank && h.counts[i] > below {
			if math.IsInf(bound, 1) {
				return from
			}
			return from + (bound-from)*(rank-below)/(h.counts[i]-below)
		}
		if !math.IsInf(bound, 1) {
			below, from = h.counts[i], bound
		}
	}
	return from
}
