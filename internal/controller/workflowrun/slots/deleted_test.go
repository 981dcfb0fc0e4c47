// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// mutations: See without the end of grace, one that keeps what is back, and one that takes a clock
// that is set back for little time; Missing that lets "*" come before the class; Closes without
// the limit.
func TestAPolicyThatIsDeletedKeepsItsGateClosedForAMoment(t *testing.T) {
	t.Parallel()
	of := func(name, class string, limit *int32) v1alpha1.LockPolicy {
		p := v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.WorkloadClasses, p.Spec.Admission.MaxConcurrentRuns = []string{class}, limit
		return p
	}
	batch, other, all := of("batch", "batch", new(int32(1))), of("other", "batch", nil), of("all", "*", new(int32(9)))
	free, open := of("free", "free", nil), of("open", "*", nil)
	start := time.Unix(1_700_000_000, 0)
	for name, one := range map[string]struct {
		class       string
		before, now []v1alpha1.LockPolicy
		after       time.Duration
		by          string // the policy that is waited for
	}{
		"deleted":                       {"batch", []v1alpha1.LockPolicy{batch, all}, []v1alpha1.LockPolicy{all}, 0, "batch"},
		"deleted, and runs without one": {"batch", []v1alpha1.LockPolicy{batch, open}, []v1alpha1.LockPolicy{open}, grace - 1, "batch"},
		"deleted for long":              {"batch", []v1alpha1.LockPolicy{batch}, nil, grace, ""},
		"the clock was set back":        {"batch", []v1alpha1.LockPolicy{batch}, nil, -time.Hour, ""},
		"renamed":                       {"batch", []v1alpha1.LockPolicy{batch}, []v1alpha1.LockPolicy{other}, 0, ""},
		"of another class":              {"free", []v1alpha1.LockPolicy{batch}, nil, 0, ""},
		"of all others":                 {"any", []v1alpha1.LockPolicy{batch, all}, []v1alpha1.LockPolicy{batch}, 0, "all"},
		"of all others, and it has one": {"batch", []v1alpha1.LockPolicy{batch, all}, []v1alpha1.LockPolicy{batch}, 0, ""},
		"without a limit":               {"free", []v1alpha1.LockPolicy{free}, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Policies
			if d := s.See(one.class, one.before, start); d != nil {
				t.Errorf("%+v is missed", d)
			}
			s.See("elsewhere", one.now, start)
			d := s.See(one.class, one.now, start.Add(one.after))
			if d.Closes("acme") != (one.by != "") || one.by != "" && d.policy.Name != one.by {
				t.Errorf("waits for %+v", d)
			}
			if d := s.See(one.class, one.before, start.Add(one.after)); d != nil {
				t.Errorf("%+v is back, and missed", d)
			}
		})
	}
}

// mutations: Drop that does nothing, that leaves the policy among those of the last look, or their
// mark, or that goes by the name alone; one that moves what a pass has seen before.
func TestADeletionIsOfTheMomentAtWhichItWas(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	batch := v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch", UID: "1"}}
	batch.Spec.WorkloadClasses, batch.Spec.Admission.MaxConcurrentRuns = []string{"batch"}, new(int32(1))
	anew := batch
	anew.UID = "2"
	there := []v1alpha1.LockPolicy{batch}
	for name, one := range map[string]struct {
		story func(s *Policies)
		since time.Duration // -1: nothing is waited for
	}{
		"nobody looked for long": {func(s *Policies) {
			s.See("batch", there, start.Add(-time.Hour))
			s.Drop(&batch, start.Add(-grace))
		}, -1},
		"nobody looked, and it was now": {func(s *Policies) {
			s.See("batch", there, start.Add(-time.Hour))
			s.Drop(&batch, start.Add(-time.Second))
		}, -time.Second},
		"nobody has looked ever": {func(s *Policies) { s.Drop(&batch, start.Add(-time.Second)) }, -time.Second},
		"a pass saw it first": {func(s *Policies) {
			s.See("batch", there, start.Add(-time.Hour))
			s.See("batch", nil, start.Add(-2*time.Second))
			s.Drop(&batch, start.Add(-time.Second))
		}, -2 * time.Second},
		"it was deleted twice": {func(s *Policies) {
			s.Drop(&batch, start.Add(-20*time.Second))
			s.Drop(&anew, start.Add(-time.Second))
		}, -time.Second},
		"a pass that is behind looks again": {func(s *Policies) {
			s.See("batch", there, start.Add(-time.Hour))
			s.Drop(&batch, start.Add(-2*time.Second))
			s.See("batch", there, start.Add(-time.Second))
		}, 0},
		"it is told late, and the new one goes at once": {func(s *Policies) {
			s.See("batch", []v1alpha1.LockPolicy{anew}, start.Add(-2*grace))
			s.Drop(&batch, start.Add(-2*grace))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s Policies
			one.story(&s)
			switch d := s.See("batch", nil, start); {
			case one.since == -1 && d != nil:
				t.Errorf("waits for %+v", d)
			case one.since != -1 && (d == nil || d.since.Sub(start) != one.since):
				t.Errorf("%+v", d)
			}
			if len(there) != 1 || there[0].Name != "batch" {
				t.Errorf("changed what it was given: %v", there)
			}
		})
	}
}

// mutation: Answer without silence makes this fail.
func TestNothingIsSaidOfAPolicyThatIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_700_000_000, 0)
	d := &Deleted{since: start}
	if a, again := d.Answer(start); a.Gate.State != lifecycle.GateAsked || !again.Equal(start.Add(silence)) || !a.ExpectedUntil(start).Equal(again) {
		t.Errorf("%+v, again at %s", a, again)
	}
	if a, again := d.Answer(start.Add(silence)); a.Gate.State != lifecycle.GateNoPolicy || !again.Equal(start.Add(grace)) || !a.Gate.Until.Equal(again) {
		t.Errorf("%+v, again at %s", a, again)
	}
}
