// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
)

// maxWarnings bounds what is said of one run: the API server leaves out all warnings of a request
// that have some thousand characters together.
const maxWarnings = 10

// warningsOf is what a run may have, and what is probably not meant. A run that another object made
// has nobody who reads it: the operator would only log it, with each of them.
func warningsOf(run *v1alpha1.WorkflowRun) []string {
	if metav1.GetControllerOfNoCopy(run) != nil {
		return nil
	}
	p := dag.Of(run)
	found := dag.ForJobs(run, &p, dag.Top)
	if n := len(found) - maxWarnings; n > 0 {
		found = append(found[:maxWarnings], fmt.Sprintf("and %d more of these; kubectl syncopate check -f FILE shows all", n))
	}
	return found
}
