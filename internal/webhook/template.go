// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// wrongInputs is what is wrong with the inputs of a run that follows a Workflow. Nothing, where
// that cannot be told in time: a Workflow that is not there may come, and the operator says the
// same when it first sees the run.
func (h *handler) wrongInputs(ctx context.Context, run *v1alpha1.WorkflowRun, limit time.Duration) []string {
	ref := run.Spec.WorkflowRef
	if ref == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done, err := h.checks.Wait(ctx, run.Namespace)
	if err != nil {
		return nil
	}
	defer done()
	c, err := h.content(ctx, run.Namespace, ref)
	if err != nil {
		return nil
	}
	_, problems := c.Inputs(run.Spec.Inputs)
	return problems
}

func (h *handler) content(ctx context.Context, namespace string, ref *v1alpha1.WorkflowReference) (*template.Content, error) {
	if ref.Revision != "" {
		return h.revisions.Named(ctx, namespace, v1alpha1.WorkflowRevision{Name: ref.Name, Revision: ref.Revision})
	}
	w := &v1alpha1.Workflow{}
	if err := h.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, w); err != nil {
		return nil, err
	}
	return template.Unnamed(w), nil
}

// wrong refuses a run that could only end as InvalidSpec.
func wrong(problems []string) answer {
	return answer{
		outcome: outcomeInvalid, code: http.StatusUnprocessableEntity, reason: metav1.StatusReasonInvalid, cause: v1alpha1.ReasonInvalidSpec,
		message: bounds.Cut(strings.Join(problems, "; "), bounds.MaxProblemsChars),
	}
}
