// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

// Thousands of decisions of one namespace are about a run that is not there, and the API server is
// slow. One of another namespace is looked at beside them, and each of the thousands in the end.
//
// mutations: Reconcile that does not ask for a turn, that keeps it; Wake that wakes nobody.
func TestOneNamespaceLeavesTurnsToTheDecisionsOfOthers(t *testing.T) {
	const many = 20
	key := func(namespace string, i int) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("decision-", i)}
	}
	build := fake.NewClientBuilder().WithScheme(server.Scheme)
	decide := func(key types.NamespacedName) {
		a := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		a.Spec = v1alpha1.StepApprovalSpec{Run: key.Name, Step: "publish", Decision: v1alpha1.Approve, Approver: "jane"}
		build.WithObjects(a)
	}
	for i := range many {
		decide(key("many", i))
	}
	for i := range 3 {
		decide(key("other", i))
	}
	c := build.Build()
	hold, looked := make(chan struct{}), make(chan types.NamespacedName, 10*many)
	r := &Reconciler{Client: c, Live: interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Namespace == "many" {
				<-hold
			}
			looked <- key
			return c.Get(ctx, key, o, opts...)
		},
	})}
	turns := shares.NewTurns(AtOnce, shares.KindMetrics{}, r.Wake)
	r.Turn = func(key types.NamespacedName) (func(), bool) {
		turn, may := turns.Enter(key)
		return func() { turns.Release(turn) }, may
	}
	r.Wake(key("many", 0)) // before it is started
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.queue.Store(&q)
	pass := func(key types.NamespacedName) {
		if result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result != (reconcile.Result{}) {
			t.Errorf("%s: %+v, %v", key, result, err)
		}
	}
	back := make(chan struct{}, many)
	var under sync.WaitGroup
	for i := range many {
		under.Go(func() {
			pass(key("many", i))
			back <- struct{}{}
		})
	}
	for range many - AtOnce/2 {
		<-back
	}
	for i := range 3 {
		pass(key("other", i))
	}
	if got := len(looked); got != 3 {
		t.Errorf("%d decisions were looked at beside them, want 3", got)
	}
	close(hold)
	under.Wait()
	for q.Len() > 0 {
		next, _ := q.Get()
		q.Done(next)
		pass(next.NamespacedName)
	}
	all := map[types.NamespacedName]bool{}
	for len(looked) > 0 {
		all[<-looked] = true
	}
	if len(all) != many+3 {
		t.Errorf("%d decisions were looked at, want %d", len(all), many+3)
	}
}

// mutation: a predicate that lets all updates in, or that leaves out one of these that say more.
func TestAnUpdateThatChangesNoOwnerIsNoEvent(t *testing.T) {
	was := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{UID: "u", OwnerReferences: []metav1.OwnerReference{{Kind: "WorkflowRun", Name: "report", UID: "r"}}}}
	for name, c := range map[string]struct {
		change func(a *v1alpha1.StepApproval)
		want   bool
	}{
		"the same":               {func(*v1alpha1.StepApproval) {}, false},
		"another label":          {func(a *v1alpha1.StepApproval) { a.Labels = map[string]string{"a": "b"} }, false},
		"no owner":               {func(a *v1alpha1.StepApproval) { a.OwnerReferences = nil }, true},
		"another owner":          {func(a *v1alpha1.StepApproval) { a.OwnerReferences[0].UID = "s" }, true},
		"another one, made anew": {func(a *v1alpha1.StepApproval) { a.UID = "v" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := was.DeepCopy()
			c.change(now)
			if got := ownersChange.Update(event.UpdateEvent{ObjectOld: was, ObjectNew: now}); got != c.want {
				t.Errorf("an event: %t", got)
			}
		})
	}
	if !ownersChange.Create(event.CreateEvent{Object: was}) || ownersChange.Delete(event.DeleteEvent{Object: was}) {
		t.Error("a decision is looked at when it is made, and not when it goes")
	}
}

// mutation: SetupWithManager without the predicate.
func TestADecisionThatIsRelabelledIsNotLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // for -count=2
	})
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	r := &Reconciler{Client: mgr.GetClient(), Live: interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Namespace == w.ns && key.Name == "nobody" {
				asked.Add(1)
			}
			return c.Get(ctx, key, o, opts...)
		},
	})}
	if err := r.SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	stray, run := w.decide("nobody", ""), w.run("report")
	for i := range 3 {
		next := w.decide("report", string(run.UID)) // it is looked at after what came before
		w.awaitOwner(next, owner(run))
		stray.Labels = map[string]string{"round": fmt.Sprint(i)}
		if err := w.client.Update(t.Context(), stray); err != nil {
			t.Fatal(err)
		}
	}
	w.awaitOwner(w.decide("report", string(run.UID)), owner(run))
	if got := asked.Load(); got > 1 {
		t.Errorf("its run was asked for %d times", got)
	}
}
