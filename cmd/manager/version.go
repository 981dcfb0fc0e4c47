// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/buildinfo"
)

// version and commit are stamped by the build.
var version, commit string

// build is what this binary was built from.
func build() buildinfo.Info { return buildinfo.Of(version, commit) }

// newProcessMetrics say which version runs, so that a rollout can be seen and figures of two
// versions be told apart, and since when. A pod keeps its name when its container is started again,
// so the time tells a replica that ends again and again from one that goes on.
func newProcessMetrics(reg prometheus.Registerer, began time.Time) {
	info := build()
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "syncopate_build_info", Help: "Always 1; the labels say what the operator was built from.",
	}, []string{"version", "commit", "go"})
	built.WithLabelValues(info.Version, info.Commit, info.Go).Set(1)
	start := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "syncopate_start_timestamp_seconds", Help: "When this process of the operator began, as Unix time.",
	})
	start.Set(float64(began.UnixMilli()) / 1000)
	reg.MustRegister(built, start)
}
