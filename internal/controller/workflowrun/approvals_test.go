// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// decisions is a reader that has so many pages of decisions about a run, the oldest last.
type decisions struct {
	client.Reader
	run    *v1alpha1.WorkflowRun
	pages  int
	copied bool
}

func (d *decisions) List(_ context.Context, l client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	d.copied = o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy
	list, ok := l.(*v1alpha1.StepApprovalList)
	if !ok {
		return fmt.Errorf("%w: a list of %T", errors.ErrUnsupported, l)
	}
	page := 0
	if o.Continue != "" {
		var err error
		if page, err = strconv.Atoi(o.Continue); err != nil {
			return err
		}
	}
	if list.Continue = strconv.Itoa(page + 1); page+1 == d.pages {
		list.Continue = ""
	}
	list.Items = nil
	for i := range approvalsPage {
		for _, step := range []string{"ask", "nobody-" + strconv.Itoa(i)} {
			a := v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: fmt.Sprintf("d-%d-%d", page, i), CreationTimestamp: metav1.NewTime(epoch.Add(-time.Duration(page) * time.Second)),
			}}
			a.Spec = v1alpha1.StepApprovalSpec{Run: "run", RunUID: "uid", Step: step, Decision: v1alpha1.Approve}
			a.Spec.Output = &runtime.RawExtension{Raw: []byte(`{}`)}
			list.Items = append(list.Items, a)
		}
	}
	return nil
}

// Each decision may have 1.5 MiB, and somebody may make thousands about one run.
//
// mutations: Observe that copies what the cache has, in each pass; Approvals that give all.
func TestOfManyDecisionsTheFirstAboutAStepIsTaken(t *testing.T) {
	run := aRun("1")
	run.Spec.Steps = []v1alpha1.Step{approvalStep("ask"), step("work")}
	d := &decisions{run: run, pages: 3}
	a := &Approvals{Client: d, Live: d}
	came, err := a.Ask(t.Context(), run)
	if err != nil || len(came) != 1 || came[0].Name != "d-2-0" {
		t.Errorf("live: %d, %v", len(came), err)
	}
	d.pages = 1
	came, err = a.Observe(t.Context(), run)
	if err != nil || len(came) != 1 || came[0].Name != "d-0-0" {
		t.Errorf("of the cache: %d, %v", len(came), err)
	}
	if d.copied {
		t.Error("what the cache has is copied")
	}
}
