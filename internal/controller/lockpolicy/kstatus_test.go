// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: no condition Stalled makes the policy in conflict InProgress for ever.
func TestHealthChecksUnderstandPolicies(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made := func(name string, after time.Duration, classes ...string) v1alpha1.LockPolicy {
		p := v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{WorkloadClasses: classes}}
		p.Name, p.Generation, p.CreationTimestamp = name, 1, metav1.NewTime(now.Add(after))
		return p
	}
	all := []v1alpha1.LockPolicy{made("older", 0, "batch"), made("younger", time.Second, "gpu", "batch")}
	s := newStatuses(all, figures{}, now)
	for i, want := range []struct {
		status  status.Status
		message string
	}{
		{status.CurrentStatus, "Ready"},
		{status.FailedStatus, `Class "batch" belongs to the older policy "older"`},
	} {
		all[i].Status = &v1alpha1.LockPolicyStatus{ObservedGeneration: -1} // by default of the schema
		if got := seenByTools(t, &all[i]); got.Status != status.InProgressStatus || got.Message == "" {
			t.Errorf("%s, at which nobody has looked, is %s: %q", all[i].Name, got.Status, got.Message)
		}
		all[i].Status = s.of(&all[i], false)
		if got := seenByTools(t, &all[i]); got.Status != want.status || !strings.Contains(got.Message, want.message) {
			t.Errorf("%s is %s: %q, want %s: %q", all[i].Name, got.Status, got.Message, want.status, want.message)
		}
	}
}

func seenByTools(t *testing.T, p *v1alpha1.LockPolicy) *status.Result {
	t.Helper()
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		t.Fatal(err)
	}
	got, err := status.Compute(&unstructured.Unstructured{Object: o})
	if err != nil {
		t.Fatal(err)
	}
	return got
}
