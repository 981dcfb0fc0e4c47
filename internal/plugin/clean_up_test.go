// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The time of the finally steps is in the revision of the Workflow: where that is gone or may not
// be read, no moment is named, as the operator knows another one, or none.
//
// mutations: outlined that keeps the default of the API server, finallyDeadline that takes one, and
// ending without noTemplate, make this fail.
func TestWhyNamesNoEndOfACleanUpWhoseRevisionIsNotKnown(t *testing.T) {
	w, r, revision := reportOf(t, "t", 1)
	run := testRun("team-a", "was", "u-was")
	run.Spec = v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"}, FinallyTimeoutSeconds: 300}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning, Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: revision},
		Ending: &v1alpha1.EndingStatus{Phase: v1alpha1.RunCancelled, Reason: v1alpha1.ReasonCancelled, AnnouncedAt: metav1.NowMicro()},
		Steps:  []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepRunning, Attempt: 1}},
	}
	const until, next = "the finally steps that are not over are cancelled at ", "the run ends, whether its finally steps are over or not"
	for name, c := range map[string]struct {
		in           *starter
		unread       error
		fails        bool
		says, denies []string
	}{
		"read":   {in: newStarter(t, w, r, run), says: []string{until, next}, denies: []string{"the time of the finally steps is in"}},
		"gone":   {in: newStarter(t, run), says: []string{"in revision " + revision + " of Workflow report, which is gone", "Terminate, or delete the run"}, denies: []string{until, next}},
		"hidden": {in: newStarter(t, w, r, run), unread: forbiddenRevisions, says: []string{"in revision " + revision + " of Workflow report, which could not be read"}, denies: []string{until, next, "Terminate"}},
		"silent": {in: newStarter(t, w, r, run), unread: apierrors.NewInternalError(errors.New("etcd is away")), fails: true, says: []string{"which could not be read"}, denies: []string{until, next, "Terminate"}},
	} {
		c.in.unread = c.unread
		out, _, err := c.in.call("why", "was")
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", name, err)
		}
		text := strings.Join(strings.Fields(out), " ")
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, out)
			}
		}
		for _, not := range c.denies {
			if strings.Contains(text, not) {
				t.Errorf("%s: it says %q:\n%s", name, not, out)
			}
		}
	}
}
