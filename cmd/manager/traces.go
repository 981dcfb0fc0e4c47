// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/spans"
	"github.com/syncopate-dev/syncopate/internal/traces/otlp"
)

// traceOptions say where the spans of runs go.
type traceOptions struct {
	endpoint string // empty: there are no traces
	percent  int
	target   *otlp.Target
}

func (o *traceOptions) bind(f *flag.FlagSet) {
	f.StringVar(&o.endpoint, "otlp-endpoint", "", "Address of an OpenTelemetry collector that takes OTLP over HTTP, as https://collector:4318; empty: no traces. Headers and certificates are in $OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY.")
	f.IntVar(&o.percent, "trace-percent", 100, "Of a hundred runs, how many have a trace. Runs that come with a traceparent of their own follow that.")
}

// complete reads what the environment says of the collector, and refuses what cannot work.
func (o *traceOptions) complete(getenv func(string) string) error {
	if o.percent < 0 || o.percent > 100 {
		return fmt.Errorf("--trace-percent %d: need 0 to 100", o.percent)
	}
	if o.endpoint == "" {
		return nil
	}
	target, err := otlp.NewTarget(o.endpoint, getenv)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	o.target = target
	return nil
}

// addTraces has the spans of runs sent, if they are wanted.
func addTraces(mgr manager.Manager, o options, r *workflowrun.Reconciler) error {
	if o.traces.target == nil {
		return nil
	}
	exporter := otlp.New(otlp.Options{
		Target: o.traces.target, Clock: clock.RealClock{}, Log: mgr.GetLogger().WithName("traces"), Version: build().Version, Replica: o.holder, Registry: metrics.Registry,
	})
	r.Spans = spans.New(exporter, o.traces.percent, clock.RealClock{}, o.holder)
	r.Dispatch.Traces, r.Children.Traces = r.Spans.Job, r.Spans.Child
	return mgr.Add(exporter)
}
