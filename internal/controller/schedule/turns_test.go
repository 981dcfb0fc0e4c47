// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"fmt"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

// Thousands of schedules of one namespace are due in the same minute, or all its creations wait for
// a slow webhook. Others get their turn beside them, and each of the thousands its own in the end.
//
// mutation: Reconcile that does not ask for a turn, that keeps it, or Wake that wakes nobody.
func TestOneNamespaceLeavesTurnsToTheSchedulesOfOthers(t *testing.T) {
	hold, looked := make(chan struct{}), make(chan string, 100)
	held := interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			if key.Namespace == "many" {
				<-hold
			}
			looked <- key.String()
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("schedules").GroupResource(), key.Name)
		},
	})
	r := &Reconciler{Client: held}
	turns := shares.NewTurns(AtOnce, shares.KindMetrics{}, r.Wake)
	r.Turn = func(key types.NamespacedName) (func(), bool) {
		turn, may := turns.Enter(key)
		return func() { turns.Release(turn) }, may
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.waker.start(q)
	pass := func(namespace, name string) {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}); err != nil {
			t.Error(err)
		}
	}
	const many, inside = 20, AtOnce / 2
	back := make(chan struct{}, many)
	var under sync.WaitGroup
	for i := range many {
		under.Go(func() {
			pass("many", fmt.Sprintf("s-%d", i))
			back <- struct{}{}
		})
	}
	for range many - inside {
		<-back
	}
	for i := range 3 {
		pass(fmt.Sprintf("other-%d", i), "s")
	}
	if got := len(looked); got != 3 {
		t.Fatalf("%d schedules were looked at beside them, want 3", got)
	}
	close(hold)
	under.Wait()
	for q.Len() > 0 {
		next, _ := q.Get()
		q.Done(next)
		pass(next.Namespace, next.Name)
	}
	all := map[string]bool{}
	for len(looked) > 0 {
		all[<-looked] = true
	}
	if len(all) != many+3 {
		t.Errorf("%d schedules were looked at, want %d", len(all), many+3)
	}
}

// mutation: Reconcile that does not say that it is in line.
func TestAScheduleInLineKeepsItsErrors(t *testing.T) {
	may := false
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(server.Scheme).Build()}
	r.Turn = func(types.NamespacedName) (func(), bool) { return func() {}, may }
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "a"}}
	l := r.backoff.Limiter(firstBackoff, maxBackoff)
	l.When(req)
	l.When(req)
	for _, want := range []int{2, 0} {
		if result, err := r.Reconcile(t.Context(), req); err != nil || result != (reconcile.Result{}) {
			t.Fatalf("%+v, %v", result, err)
		}
		if l.Forget(req); l.NumRequeues(req) != want {
			t.Errorf("%d errors are known, want %d", l.NumRequeues(req), want)
		}
		may = true
	}
}
