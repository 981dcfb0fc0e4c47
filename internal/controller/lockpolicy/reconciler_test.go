// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// verdict is what the status of a policy says.
type verdict struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

const inForce = "Governs all its classes"

// mutation: Reconcile that only looks at the policy of the request, or a write that is made
// although nothing changed, or one that forgets observedGeneration: each makes a part of
// this story fail.
func TestPoliciesThatClaimTheSameClass(t *testing.T) {
	w := newWorld(t)
	c := w.client

	w.create("a-older", "batch", "etl")
	w.create("b-other", "payments")
	w.pass()
	w.expect(map[string]verdict{
		"a-older": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"b-other": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
	})

	w.create("c-younger", "gpu", "batch")
	w.pass()
	w.expect(map[string]verdict{
		"a-older":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"b-other":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"c-younger": {metav1.ConditionFalse, v1alpha1.ReasonClassConflict, `Class "batch" belongs to the older policy "a-older"; take it out of one of them`},
	})

	before := w.versions()
	w.pass()
	if diff := cmp.Diff(before, w.versions()); diff != "" {
		t.Errorf("a pass with nothing new wrote (-before +after):\n%s", diff)
	}

	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	older := w.get("a-older")
	since := meta.FindStatusCondition(w.get("c-younger").Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	if err := c.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	w.pass()
	w.expect(map[string]verdict{
		"b-other":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"c-younger": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
	})
	transition := meta.FindStatusCondition(w.get("c-younger").Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	if want := w.clock.Now().Truncate(time.Second); !transition.Time.Equal(want) || !since.Time.Before(want) {
		t.Errorf("the transition was at %s, after one at %s; want %s", transition, since, want)
	}

	changed := w.get("b-other")
	changed.Spec.RunLock.TTLSeconds = 60
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	w.pass()
	if got := w.get("b-other"); got.Status.ObservedGeneration != got.Generation || got.Generation != 2 {
		t.Errorf("observedGeneration %d of generation %d", got.Status.ObservedGeneration, got.Generation)
	}
}

// mutation: classes of spec instead of those governed, numbers of spec instead of those with
// defaults, or effective written only once makes this fail.
func TestEffectiveNumbers(t *testing.T) {
	tests := map[string]struct {
		lock v1alpha1.RunLockPolicy
		want v1alpha1.EffectiveLockPolicy
	}{
		"defaults": {
			v1alpha1.RunLockPolicy{},
			v1alpha1.EffectiveLockPolicy{TTLSeconds: 30, RenewIntervalMillis: 10_000, MarginMillis: 3300, ValidityMillis: 26_700, BusyRetryDelay: "350-650ms"},
		},
		"a long TTL": {
			v1alpha1.RunLockPolicy{TTLSeconds: 100, Renewal: v1alpha1.RenewalPolicy{ClockDriftPercent: new(int64(2)), SafetyMarginMillis: new(int64(5000))}},
			v1alpha1.EffectiveLockPolicy{TTLSeconds: 100, RenewIntervalMillis: 33_333, MarginMillis: 7000, ValidityMillis: 93_000, BusyRetryDelay: "350-650ms"},
		},
		"its own interval, fixed retries": {
			v1alpha1.RunLockPolicy{
				BusyRetry: v1alpha1.BusyRetry{Mode: v1alpha1.JitterModeFixed},
				Renewal:   v1alpha1.RenewalPolicy{IntervalMillis: new(int64(5000))},
			},
			v1alpha1.EffectiveLockPolicy{TTLSeconds: 30, RenewIntervalMillis: 5000, MarginMillis: 3300, ValidityMillis: 26_700, BusyRetryDelay: "500ms"},
		},
	}
	w := newWorld(t)
	w.create("a-older", "web")
	p := w.create("b-younger", "shop", "web", "*")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p.Spec.RunLock = test.lock
			if err := w.client.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			w.pass()
			p = w.get("b-younger")
			test.want.Classes = "shop, *"
			test.want.Scope, test.want.OnFailure, test.want.WaitMode = "Activation", "Fence", "HandOff"
			if diff := cmp.Diff(&test.want, w.status("b-younger").Effective); diff != "" {
				t.Errorf("effective (-want +got):\n%s", diff)
			}
		})
	}
}

// A policy that was replaced while the watch was cut comes as an update from generation 1 to 1.
//
// mutation: edits that compare generations alone makes this fail.
func TestWhatWakesTheController(t *testing.T) {
	policy := func(uid types.UID, generation int64, command string) *v1alpha1.LockPolicy {
		return &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{
			Name: "reports", UID: uid, Generation: generation, Annotations: map[string]string{v1alpha1.AnnotationRollout: command},
		}}
	}
	for name, test := range map[string]struct {
		now  *v1alpha1.LockPolicy
		want bool
	}{
		"a status":   {policy("a", 1, ""), false},
		"an edit":    {policy("a", 2, ""), true},
		"a command":  {policy("a", 1, "promote 4f2a0011-2"), true},
		"it is anew": {policy("b", 1, ""), true},
	} {
		if got := edits().Update(event.UpdateEvent{ObjectOld: policy("a", 1, ""), ObjectNew: test.now}); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
