// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

func TestInputsOfARunThatFollowsAWorkflowAreCheckedAtItsCreation(t *testing.T) {
	report := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report"}, Spec: v1alpha1.WorkflowSpec{
		Parameters: []v1alpha1.Parameter{{Name: "region", Required: true, Enum: []string{"eu"}}},
	}}
	for name, c := range map[string]struct {
		ref     v1alpha1.WorkflowReference
		inputs  string
		refused string
	}{
		"good":             {v1alpha1.WorkflowReference{Name: "report"}, `{"region":"eu"}`, ""},
		"missing":          {v1alpha1.WorkflowReference{Name: "report"}, `{}`, "InvalidSpec: spec.inputs.region: Workflow report requires this string"},
		"wrong":            {v1alpha1.WorkflowReference{Name: "report"}, `{"region":"us"}`, `InvalidSpec: spec.inputs.region: "us" is not one of eu`},
		"no such Workflow": {v1alpha1.WorkflowReference{Name: "other"}, `{}`, ""},
		"no such revision": {v1alpha1.WorkflowReference{Name: "report", Revision: "abc"}, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := objects(t, namespace("team", nil), report)
			h := newHandler(cluster, cluster, &stubQuotas{})
			got := h.Handle(t.Context(), creation(t, "batch", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
				run.Spec.WorkflowRef, run.Spec.Inputs = &c.ref, &runtime.RawExtension{Raw: []byte(c.inputs)}
			}))
			if got.Allowed != (c.refused == "") || !got.Allowed && (got.Result.Code != 422 || !strings.HasPrefix(got.Result.Message, c.refused)) {
				t.Errorf("allowed %v: %+v", got.Allowed, got.Result)
			}
		})
	}
}

// Any number of creations had their inputs checked at once, beside the passes of this replica.
//
// mutations: a check without a turn, with one that is not given back, or not as the run's
// namespace; a turn that is waited for by runs that follow nothing, or as long as the request may
// take.
func TestInputsAreCheckedInTurn(t *testing.T) {
	report := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report"}}
	cluster := objects(t, namespace("team", nil), report, lockPolicy("payments", rejecting(2)))
	checks, quotas := make(line, 1), &stubQuotas{answer: store.Answer{Admitted: true}}
	h := newHandler(cluster, &heldReader{Reader: cluster, checks: checks, t: t}, quotas)
	h.checks = checks
	wrong := creation(t, "payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
		run.Spec.WorkflowRef, run.Spec.Inputs = &v1alpha1.WorkflowReference{Name: "report"}, &runtime.RawExtension{Raw: []byte(`{"x":1}`)}
	})
	checks <- "other" // has its inputs checked
	ctx := withBudget(t.Context(), httptest.NewRequest(http.MethodPost, Path+"?timeout=1s", nil))
	if got := h.Handle(ctx, wrong); !got.Allowed || quotas.bound <= 0 {
		t.Errorf("answer %+v, though the operator can tell it, too; the quota had %s", got.Result, quotas.bound)
	}
	if got := h.Handle(ctx, creation(t, "batch", nil)); !got.Allowed {
		t.Errorf("answer %+v to a run that follows nothing", got.Result)
	}
	<-checks
	for range 3 {
		if got := h.Handle(t.Context(), wrong); got.Allowed || got.Result.Code != 422 {
			t.Errorf("answer %+v", got.Result)
		}
	}
}

// heldReader sees whose turn it is when something is read.
type heldReader struct {
	client.Reader
	checks line
	t      *testing.T
}

func (r *heldReader) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	select {
	case who := <-r.checks:
		if who != "team" {
			r.t.Errorf("a turn of namespace %q", who)
		}
		r.checks <- who
	default:
		r.t.Errorf("%s is read without a turn", key)
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// mutation: a revision that is looked for among the Workflows.
func TestInputsAreCheckedAgainstTheRevisionThatIsNamed(t *testing.T) {
	data, revision, err := template.Encode(&v1alpha1.WorkflowSpec{Parameters: []v1alpha1.Parameter{{Name: "old"}}})
	if err != nil {
		t.Fatal(err)
	}
	cluster := objects(t, namespace("team", nil))
	h := newHandler(cluster, cluster, &stubQuotas{})
	h.revisions = stubRevisions{revision: data}
	for inputs, allowed := range map[string]bool{`{"old":"x"}`: true, `{"new":"x"}`: false} {
		got := h.Handle(t.Context(), creation(t, "batch", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
			run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "report", Revision: revision}
			run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(inputs)}
		}))
		if got.Allowed != allowed {
			t.Errorf("%s: allowed %v: %+v", inputs, got.Allowed, got.Result)
		}
	}
}

// stubRevisions are contents by revision.
type stubRevisions map[string][]byte

func (s stubRevisions) Named(_ context.Context, _ string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	if s[r.Revision] == nil {
		return nil, revisions.ErrGone
	}
	return template.Decode(r.Name, r.Revision, s[r.Revision])
}
