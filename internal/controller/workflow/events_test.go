// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// delays notes when Workflows are looked at.
type delays struct {
	queue
	after map[string]time.Duration
}

func (d delays) Add(r reconcile.Request)                           { d.after[r.Name] = 0 }
func (d delays) AddAfter(r reconcile.Request, after time.Duration) { d.after[r.Name] = after }

// Each replica that started read all Workflows, and wrote their revisions, at once.
//
// mutations: Create without its case of the start; with one wait for all.
func TestEvents_WorkflowsOfBeforeTheStartComeOneAfterTheOther(t *testing.T) {
	q, e := delays{after: map[string]time.Duration{}}, &events{}
	see := func(name string, first bool) {
		w := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		e.Create(t.Context(), event.CreateEvent{Object: w, IsInInitialList: first}, q)
	}
	want := map[string]time.Duration{"new": 0}
	for i := range 3 {
		see(fmt.Sprint(i), true)
		want[fmt.Sprint(i)] = firstLooks + time.Duration(i)*firstLookEvery
	}
	see("new", false)
	e.Update(t.Context(), event.UpdateEvent{ObjectOld: &v1alpha1.Workflow{}, ObjectNew: &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Name: "1"}}}, q)
	want["1"] = 0
	if diff := cmp.Diff(want, q.after); diff != "" {
		t.Errorf("looked at after (-want +got):\n%s", diff)
	}
}

// mutation: Start that begins with a round.
func TestSweeper_BeginsAfterAWhile(t *testing.T) {
	w := newWorld(t)
	c := testingclock.NewFakeClock(time.Now())
	asked := make(chan struct{}, 1)
	w.s.Clock = c
	w.s.Live = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, in client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			select {
			case asked <- struct{}{}:
			default:
			}
			return in.List(ctx, list, o...)
		},
	})
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.s.Start(ctx) }()
	for !c.HasWaiters() {
		runtime.Gosched()
	}
	if len(asked) > 0 {
		t.Error("it began at once")
	}
	c.Step(firstRound)
	<-asked
	end()
	w.must(<-ended)
}
