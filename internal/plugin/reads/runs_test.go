// SPDX-License-Identifier: Apache-2.0

package reads_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

// largeRuns is an API server whose runs have a MiB each, and follow a Workflow; one is gone.
type largeRuns struct {
	client.Reader
	t *testing.T
}

func (l largeRuns) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	run, ok := object.(*v1alpha1.WorkflowRun)
	switch {
	case !ok:
		l.t.Errorf("%T %s is read", object, key)
		return nil
	case key.Name == "gone":
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	run.Namespace, run.Name, run.UID = key.Namespace, key.Name, types.UID("uid-"+key.Name)
	run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "flow"}
	run.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`"` + strings.Repeat("x", 1<<20) + `"`)}
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Progress: "1/2", Workflow: &v1alpha1.WorkflowRevision{Name: "flow"}}
	return nil
}

// mutation: Children that keeps whole runs, or reads the revisions that they follow,
// makes this fail.
func TestOfChildRunsLittleIsKept(t *testing.T) {
	parent := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "parent"}, Status: &v1alpha1.WorkflowRunStatus{}}
	for _, name := range []string{"a", "gone", "b"} {
		parent.Status.Steps = append(parent.Status.Steps, v1alpha1.StepStatus{
			Name: "step-" + name, Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: name, UID: "uid-" + name},
		})
	}
	children, err := reads.Children(t.Context(), largeRuns{t: t}, parent)
	if err != nil || len(children) != 2 {
		t.Fatalf("%d child runs, %v", len(children), err)
	}
	for i := range children {
		c := &children[i]
		if c.Spec.Inputs != nil || c.UID != types.UID("uid-"+c.Name) || c.Status.Phase != v1alpha1.RunRunning || c.Status.Progress != "1/2" {
			t.Errorf("%s: %+v", c.Name, c.Status)
		}
	}
}

// endedTops is an API server whose runs have ended; those after some cannot be read.
type endedTops struct {
	client.Reader
	asked, good int
}

func (e *endedTops) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if e.asked++; e.asked > e.good {
		return context.DeadlineExceeded
	}
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	return nil
}

// mutations: Tops without its bound, or one that asks on where the API server does not answer,
// makes this fail.
func TestRunsAtTheTopAreReadUpToABound(t *testing.T) {
	run := func(name string, parent *v1alpha1.ParentStatus) v1alpha1.WorkflowRun {
		r := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}
		r.Status = &v1alpha1.WorkflowRunStatus{Parent: parent, Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "mutex:team/x"}}}
		return r
	}
	runs := []v1alpha1.WorkflowRun{run("there", nil), run("of-there", &v1alpha1.ParentStatus{Root: "there"}), run("old", &v1alpha1.ParentStatus{})}
	for i := range 102 {
		root := &v1alpha1.ParentStatus{Root: fmt.Sprintf("top-%d", i)}
		runs = append(runs, run(fmt.Sprintf("one-%d", i), root), run(fmt.Sprintf("two-%d", i), root))
	}
	for good, want := range map[int][3]int{1000: {100, 100, 2}, 7: {8, 7, 95}} {
		server := &endedTops{good: good}
		tops := reads.Tops(t.Context(), server, runs)
		if got := [3]int{server.asked, len(tops.Ended), len(tops.Unread)}; got != want {
			t.Errorf("asked, read and not read: %v, not %v", got, want)
		}
	}
}
