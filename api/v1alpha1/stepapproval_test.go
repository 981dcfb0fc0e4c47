// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mutation: >= instead of >, a UID that is not compared, or a namespace or name that is not,
// makes this fail.
func TestWhichRunADecisionMeans(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	run := &WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "report", UID: "u2", CreationTimestamp: metav1.Time{Time: at}}}
	for name, c := range map[string]struct {
		namespace, run, uid string
		after               time.Duration
		want                bool
	}{
		"of its UID, made later":              {"team-a", "report", "u2", time.Hour, true},
		"of its UID, made in the same second": {"team-a", "report", "u2", 0, true},
		"of the UID of an earlier run":        {"team-a", "report", "u1", time.Hour, false},
		"without a UID, made later":           {"team-a", "report", "", time.Second, true},
		"without a UID, in the same second":   {"team-a", "report", "", 0, false},
		"without a UID, within that second":   {"team-a", "report", "", 999 * time.Millisecond, false},
		"without a UID, made before":          {"team-a", "report", "", -time.Second, false},
		"of another name":                     {"team-a", "other", "", time.Hour, false},
		"of another namespace":                {"team-b", "report", "u2", time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := &StepApproval{Spec: StepApprovalSpec{Run: c.run, RunUID: c.uid}}
			a.Namespace, a.CreationTimestamp = c.namespace, metav1.Time{Time: at.Add(c.after)}
			if got := a.Means(run); got != c.want {
				t.Errorf("means the run: %v, want %v", got, c.want)
			}
		})
	}
}

// mutation: the names compared first, or the times the other way round, makes this fail.
func TestTheFirstDecisionPrecedes(t *testing.T) {
	made := func(name string, second int64) *StepApproval {
		return &StepApproval{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: time.Unix(second, 0)}}}
	}
	order := []*StepApproval{made("z", 1), made("a", 2), made("b", 2), made("a", 3)}
	for i, a := range order {
		for k, b := range order {
			if a.Precedes(b) != (i < k) {
				t.Errorf("%s of second %d precedes %s of second %d: %v", a.Name, a.CreationTimestamp.Unix(), b.Name, b.CreationTimestamp.Unix(), i >= k)
			}
		}
	}
}
