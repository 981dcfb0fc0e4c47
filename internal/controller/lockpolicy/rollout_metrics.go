// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// rolloutMetrics show rollouts; the zero value counts nothing.
type rolloutMetrics struct{ phase, percent *prometheus.GaugeVec }

// RegisterMetrics registers the figures of rollouts.
func (r *Reconciler) RegisterMetrics(reg prometheus.Registerer) {
	r.rollouts = rolloutMetrics{
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_rollout_phase", Help: "1 for the phase of each LockPolicy's rollout, and its reason.",
		}, []string{"policy", "phase", "reason"}),
		percent: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_rollout_percent", Help: "Part of the runs, in percent, that have the candidate of a LockPolicy.",
		}, []string{"policy"}),
	}
	reg.MustRegister(r.rollouts.phase, r.rollouts.percent)
}

// show sets the figures of a policy; nil: it has no rollout.
func (m rolloutMetrics) show(policyName string, st *v1alpha1.LockPolicyRolloutStatus) {
	if m.phase == nil {
		return
	}
	m.phase.DeletePartialMatch(prometheus.Labels{"policy": policyName})
	m.percent.DeleteLabelValues(policyName)
	if st != nil {
		m.phase.WithLabelValues(policyName, string(st.Phase), st.Reason).Set(1)
		m.percent.WithLabelValues(policyName).Set(float64(st.Percent))
	}
}

// forget drops the figures of policies that are gone.
func (m rolloutMetrics) forget() {
	if m.phase != nil {
		m.phase.Reset()
		m.percent.Reset()
	}
}
