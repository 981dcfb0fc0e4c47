// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"bytes"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A child that is suspended with its parent begins no attempt, and nobody can resume it by itself.
//
// mutations: its own spec.suspend in the place of suspended, in any of the texts, makes this fail.
func TestAChildThatIsSuspendedWithItsParent(t *testing.T) {
	t.Parallel()
	var run v1alpha1.WorkflowRun
	load(t, "testdata/suspended.yaml", &run)
	run.Spec.Suspend = false
	run.Status.Parent = &v1alpha1.ParentStatus{Name: "above", UID: "uid-above", Root: "above"}
	var out bytes.Buffer
	if err := TreeOf(&run, now).Text(&out, false); err != nil {
		t.Fatal(err)
	}
	if err := Why(&run, []v1alpha1.LockPolicy{samplePolicy(t, 3)}, now).Text(&out, now, false); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, wrong := range []string{"was due", "next attempt at", "spec.suspend", `"suspend":false`} {
		if strings.Contains(text, wrong) {
			t.Errorf("it says %q:\n%s", wrong, text)
		}
	}
	if strings.Count(text, "no new attempt while the parent run above is suspended") != 2 {
		t.Error(text)
	}
	h := LockHolder{Name: "held", Namespace: "team-a", run: &run}
	if got, want := h.stuck(), "is suspended with its parent run above, and keeps it"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
