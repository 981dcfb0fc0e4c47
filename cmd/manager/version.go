// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/buildinfo"
)

// version and commit are stamped by the build.
var version, commit string

// build is what this binary was built from.
func build() buildinfo.Info { return buildinfo.Of(version, commit) }

// newBuildMetric says which version runs, so that a rollout can be seen and figures of two versions
// be told apart.
func newBuildMetric(reg prometheus.Registerer) {
	info := build()
	m := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "syncopate_build_info", Help: "Always 1; the labels say what the operator was built from.",
	}, []string{"version", "commit", "go"})
	m.WithLabelValues(info.Version, info.Commit, info.Go).Set(1)
	reg.MustRegister(m)
}
