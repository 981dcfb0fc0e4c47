// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// before is an API server with Workflows from before the rules on times.
type before struct {
	client.Reader
	until time.Time
}

func (b before) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := b.Reader.Get(ctx, key, o, opts...)
	if wf, ok := o.(*v1alpha1.Workflow); ok {
		for i := range wf.Spec.Template.Steps {
			wf.Spec.Template.Steps[i].Delay = &v1alpha1.Delay{Until: &metav1.Time{Time: b.until}}
			wf.Spec.Template.Steps[i].Job = nil
		}
	}
	return err
}

// mutations: Encode without writable, and delayProblem without YearProblem make this fail.
func TestReconciler_SaysThatATimeCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	for name, until := range map[string]time.Time{
		"late":  time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -12*60*60)),
		"early": time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 12*60*60)),
	} {
		w.r.Live = before{w.client, until}
		st := w.workflow(name, "a", 1).Status
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
		if c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonInvalidTemplate ||
			!strings.HasPrefix(c.Message, "spec.template.steps[0].delay.until: ") || !strings.Contains(c.Message, "is not in the years 2000 to 9999") {
			t.Errorf("%s: %+v", name, c)
		}
		if kept := w.kept(name); st.Revision == "" || len(kept) != 1 || kept[0] != st.Revision {
			t.Errorf("%s: revision %s, kept are %v", name, st.Revision, kept)
		}
	}
}
