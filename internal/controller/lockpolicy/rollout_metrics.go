// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// rolloutMetrics show the rollouts that this replica decides on; the zero value shows nothing.
type rolloutMetrics struct {
	phase, percent *prometheus.GaugeVec
	shown          map[string]prometheus.Labels // of phase, by policy
}

// RegisterMetrics registers the figures of rollouts.
func (r *Reconciler) RegisterMetrics(reg prometheus.Registerer) {
	r.rollouts = rolloutMetrics{
		phase: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_rollout_phase", Help: "1 for the phase of each LockPolicy's rollout, and its reason.",
		}, []string{"policy", "phase", "reason"}),
		percent: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "syncopate_rollout_percent", Help: "Part of the runs, in percent, that have the candidate of a LockPolicy.",
		}, []string{"policy"}),
		shown: map[string]prometheus.Labels{},
	}
	reg.MustRegister(r.rollouts.phase, r.rollouts.percent)
}

// show sets the figures of a policy; nil: it has no rollout. Until then, it keeps what it showed: a
// scrape finds each rollout under way.
func (m rolloutMetrics) show(policyName string, st *v1alpha1.LockPolicyRolloutStatus) {
	if m.phase == nil {
		return
	}
	before, shown := m.shown[policyName]
	if st == nil {
		m.drop(policyName)
		return
	}
	now := prometheus.Labels{"policy": policyName, "phase": string(st.Phase), "reason": st.Reason}
	m.phase.With(now).Set(1)
	m.percent.WithLabelValues(policyName).Set(float64(st.Percent))
	m.shown[policyName] = now
	if shown && !maps.Equal(before, now) {
		m.phase.Delete(before)
	}
}

// only drops the figures of policies that are not among these.
func (m rolloutMetrics) only(policies []v1alpha1.LockPolicy) {
	for name := range m.shown {
		if !slices.ContainsFunc(policies, func(p v1alpha1.LockPolicy) bool { return p.Name == name }) {
			m.drop(name)
		}
	}
}

func (m rolloutMetrics) drop(policyName string) {
	if labels, shown := m.shown[policyName]; shown {
		m.phase.Delete(labels)
		m.percent.DeleteLabelValues(policyName)
		delete(m.shown, policyName)
	}
}
