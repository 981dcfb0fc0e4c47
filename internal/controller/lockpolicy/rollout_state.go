// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// stateOf reads what is stored. storedState is its inverse, but for what a decision does not need.
func stateOf(st *v1alpha1.LockPolicyRolloutStatus) rollout.State {
	if st == nil {
		return rollout.State{}
	}
	s := rollout.State{
		Phase: rollout.Phase(st.Phase), Baseline: revisionOf(&st.Baseline), Candidate: revisionOf(st.Candidate), Unit: policy.UnitOf(st),
		Percent: int(st.Percent), First: int(st.FirstPercent), Since: st.ChangedAt.Time, Verdict: rollout.Verdict(st.Verdict), Reason: rollout.Reason(st.Reason), Message: st.Message,
		Seen:    rollout.Tally{Canary: countsOf(st.Canary), Control: countsOf(st.Control), Rest: st.RestRuns},
		Wait:    thresholdOf(st.Wait),
		Latency: thresholdOf(st.Latency),
	}
	s.Begin.Canary.Contended, s.Begin.Control.Contended = st.StepCanary, st.StepControl
	s.Begin.Canary.Ended, s.Begin.Control.Ended = st.StepCanaryEnded, st.StepControlEnded
	return s
}

// storedState is what is stored of a state. Revisions come with their content, replicas
// and history stay.
func storedState(s rollout.State, before *v1alpha1.LockPolicyRolloutStatus, content func(rollout.Revision) *v1alpha1.RolloutRevision) *v1alpha1.LockPolicyRolloutStatus {
	st := &v1alpha1.LockPolicyRolloutStatus{
		Phase: v1alpha1.RolloutPhase(s.Phase), Baseline: *content(s.Baseline), Candidate: content(s.Candidate), Unit: v1alpha1.RolloutUnitRun,
		Percent: int32(s.Percent), FirstPercent: int32(s.First),
		ChangedAt: metav1.NewTime(s.Since.Truncate(time.Second)), Verdict: v1alpha1.RolloutVerdict(s.Verdict), Reason: string(s.Reason), Message: cut(s.Message),
		Canary: storedCounts(s.Seen.Canary), Control: storedCounts(s.Seen.Control), RestRuns: s.Seen.Rest,
		StepCanary: s.Begin.Canary.Contended, StepControl: s.Begin.Control.Contended,
		Wait: storedThreshold(s.Wait), Latency: storedThreshold(s.Latency),
	}
	if s.Unit == rollout.TenantMinute {
		st.Unit, st.StepCanaryEnded, st.StepControlEnded = v1alpha1.RolloutUnitTenantMinute, s.Begin.Canary.Ended, s.Begin.Control.Ended
	}
	if before != nil {
		st.Replicas, st.History = before.Replicas, before.History
	}
	return st
}

// maxMessage is the bound of the field, in characters.
const maxMessage = 1024

func cut(text string) string { return bounds.Cut(text, maxMessage) }

func revisionOf(r *v1alpha1.RolloutRevision) rollout.Revision {
	if r == nil {
		return rollout.Revision{}
	}
	hash, _, _ := strings.Cut(r.Name, "-")
	if hash == "" { // not a name of ours; what has no hash would be no revision
		hash = r.Name
	}
	return rollout.Revision{Hash: hash, Generation: r.Generation}
}

func countsOf(c *v1alpha1.RolloutCounts) rollout.Counts {
	if c == nil {
		return rollout.Counts{}
	}
	return rollout.Counts{
		Runs: c.Runs, Ended: c.Ended, Contended: c.Contended, Busy: c.Busy,
		Abandoned: c.Abandoned, FenceRefused: c.FenceRefused, DeadLettered: c.DeadLettered,
		Waits: histogramOf(c.Waits), Latencies: histogramOf(c.Latencies),
	}
}

func histogramOf(list []int64) (h rollout.Histogram) {
	copy(h[:], list)
	return h
}

func storedCounts(c rollout.Counts) *v1alpha1.RolloutCounts {
	if c == (rollout.Counts{}) {
		return nil
	}
	return &v1alpha1.RolloutCounts{
		Runs: c.Runs, Ended: c.Ended, Contended: c.Contended, Busy: c.Busy,
		Abandoned: c.Abandoned, FenceRefused: c.FenceRefused, DeadLettered: c.DeadLettered,
		Waits: storedHistogram(c.Waits), Latencies: storedHistogram(c.Latencies),
	}
}

func storedHistogram(h rollout.Histogram) []int64 {
	if h == (rollout.Histogram{}) {
		return nil
	}
	return h[:]
}

func thresholdOf(t *v1alpha1.RolloutThreshold) rollout.Threshold {
	if t == nil {
		return rollout.Threshold{}
	}
	return rollout.Threshold{
		Set: true, Bucket: int(t.Bucket),
		Canary: rollout.Vote{Yes: t.CanaryAbove, Asked: t.CanaryAsked}, Control: rollout.Vote{Yes: t.ControlAbove, Asked: t.ControlAsked},
	}
}

func storedThreshold(t rollout.Threshold) *v1alpha1.RolloutThreshold {
	if !t.Set {
		return nil
	}
	return &v1alpha1.RolloutThreshold{
		Bucket: int32(t.Bucket), CanaryAbove: t.Canary.Yes, CanaryAsked: t.Canary.Asked, ControlAbove: t.Control.Yes, ControlAsked: t.Control.Asked,
	}
}

// tallyOf adds up what all processes counted.
func tallyOf(replicas []v1alpha1.RolloutReplica) (t rollout.Tally) {
	for i := range replicas {
		r := &replicas[i]
		t = t.Plus(rollout.Tally{Canary: countsOf(r.Canary), Control: countsOf(r.Control), Rest: r.RestRuns})
	}
	return t
}
