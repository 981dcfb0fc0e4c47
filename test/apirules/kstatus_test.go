// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// mutation: status without a default makes runs and policies Current here.
func TestHealthChecksWaitForWhatNobodyHasLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		manifest string
		want     status.Status
		message  string
	}{
		"a run":       {aRun(), status.InProgressStatus, "WorkflowRun generation is 1, but latest observed generation is -1"},
		"a policy":    {aPolicy(), status.InProgressStatus, "LockPolicy generation is 1, but latest observed generation is -1"},
		"an approval": {"apiVersion: syncopate.dev/v1alpha1\nkind: StepApproval\nmetadata: {generateName: a-, namespace: default}\nspec: {run: r, step: s, decision: Approve, approver: admin}\n", status.CurrentStatus, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustCreate(t, c.manifest)
			if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			got, err := status.Compute(o)
			if err != nil || got.Status != c.want || !strings.Contains(got.Message, c.message) {
				t.Errorf("%s: %q, %v; want %s: %q", got.Status, got.Message, err, c.want, c.message)
			}
		})
	}
}
