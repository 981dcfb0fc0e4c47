// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestChangesNameWhatDiffers(t *testing.T) {
	var before, after Content
	if got := Changes(before, after); got != nil {
		t.Errorf("of the same: %q", got)
	}
	before.RunLock.Wait.Mode, after.RunLock.Wait.Mode = v1alpha1.WaitModePoll, v1alpha1.WaitModeHandOff
	after.RunLock.TTLSeconds = 1234567890
	before.RunLock.BusyRetry.Mode = v1alpha1.JitterModeJittered
	before.Admission, after.Admission = &v1alpha1.RolloutAdmission{Strategy: "Lock"}, &v1alpha1.RolloutAdmission{Strategy: "Atomic"}
	after.Admission.Lock.Retry.DelayMillis = 20
	want := []string{"admission.lock.retry.delayMillis: - -> 20", "admission.strategy: Lock -> Atomic", "busyRetry.mode: Jittered -> -", "ttlSeconds: - -> 1234567890", "wait.mode: Poll -> HandOff"}
	if diff := cmp.Diff(want, Changes(before, after)); diff != "" {
		t.Error(diff)
	}
}

func TestACandidateInForceKeepsItsChanges(t *testing.T) {
	promoted := v1alpha1.RolloutRevision{Name: "a-2"}
	r := &v1alpha1.LockPolicyRolloutStatus{Baseline: promoted, Candidate: &promoted, History: []v1alpha1.RolloutOutcome{
		{Name: "b-1", Changes: []string{"of another"}}, {Name: "a-2", Changes: []string{"its own"}},
	}}
	if diff := cmp.Diff([]string{"its own"}, CandidateChanges(r)); diff != "" {
		t.Error(diff)
	}
	r.Candidate = nil
	if got := CandidateChanges(r); got != nil {
		t.Errorf("without a candidate: %q", got)
	}
}
