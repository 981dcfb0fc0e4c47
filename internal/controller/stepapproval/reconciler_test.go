// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func owner(run *v1alpha1.WorkflowRun) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun", Name: run.Name, UID: run.UID}
}

// mutation: a controller reference, blockOwnerDeletion, a run taken by its name alone, other owners
// replaced, or a write that is made although the owner is there: each makes a case of this fail.
func TestADecisionBelongsToTheRunThatItMeans(t *testing.T) {
	w := newWorld(t)
	run := w.run("report")
	w.inALaterSecond(run.CreationTimestamp)
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "chat", UID: "1"}
	stale := metav1.OwnerReference{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun", Name: "report", UID: "earlier"}
	for name, c := range map[string]struct {
		run, uid string
		owners   []metav1.OwnerReference
		want     []metav1.OwnerReference
		patches  int64
	}{
		"by its UID":                       {run: "report", uid: string(run.UID), want: []metav1.OwnerReference{owner(run)}, patches: 1},
		"by its name, made later":          {run: "report", want: []metav1.OwnerReference{owner(run)}, patches: 1},
		"of an earlier run of that name":   {run: "report", uid: "earlier"},
		"of a run that is not there":       {run: "nobody"},
		"that belongs to something else":   {run: "report", owners: []metav1.OwnerReference{other}, want: []metav1.OwnerReference{other, owner(run)}, patches: 1},
		"that belongs to it already":       {run: "report", owners: []metav1.OwnerReference{owner(run)}, want: []metav1.OwnerReference{owner(run)}},
		"that belongs to an earlier run":   {run: "report", uid: string(run.UID), owners: []metav1.OwnerReference{stale}, want: []metav1.OwnerReference{stale, owner(run)}, patches: 1},
		"that somebody gave the owner too": {run: "report", uid: string(run.UID), owners: []metav1.OwnerReference{owner(run), other}, want: []metav1.OwnerReference{owner(run), other}},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.decide(c.run, c.uid, c.owners...)
			before := w.patches.Load()
			for range 2 {
				if result, err := w.look(a); err != nil || result != (reconcile.Result{}) {
					t.Fatalf("result %+v, error %v", result, err)
				}
			}
			if diff := cmp.Diff(c.want, w.owners(a)); diff != "" {
				t.Errorf("owners (-want +got):\n%s", diff)
			}
			if got := w.patches.Load() - before; got != c.patches {
				t.Errorf("%d patches in two looks, want %d", got, c.patches)
			}
		})
	}
}

// The garbage collector takes the owner away where the run is deleted without what it owns.
// mutation: a reconciler that gives it back makes this fail: the decision is deleted with the run.
func TestADecisionOfARunThatIsBeingDeletedGetsNoOwner(t *testing.T) {
	w := newWorld(t)
	run := w.run("report")
	a := w.decide("report", string(run.UID))
	if err := w.client.Delete(t.Context(), run, client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	if result, err := w.look(a); err != nil || result != (reconcile.Result{}) {
		t.Fatalf("result %+v, error %v", result, err)
	}
	if got := w.patches.Load(); got != 0 || len(w.owners(a)) > 0 {
		t.Errorf("%d patches, owners %v", got, w.owners(a))
	}
}

// A decision that was made before the run, or in the same second, is not about it.
// mutation: an owner by name alone makes this fail.
func TestADecisionFromBeforeTheRunIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	a := w.decide("report", "")
	w.run("report")
	if _, err := w.look(a); err != nil {
		t.Fatal(err)
	}
	if got := w.owners(a); len(got) > 0 {
		t.Errorf("owners %v", got)
	}
}

// mutation: a patch without the version that was read drops the other owner, and this fails.
func TestAChangeInBetweenIsNotOverwritten(t *testing.T) {
	w := newWorld(t)
	run := w.run("report")
	a := w.decide("report", string(run.UID))
	theirs := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "chat", UID: "1"}
	w.beforePatch = func() {
		w.beforePatch = nil
		changed := a.DeepCopy()
		changed.OwnerReferences = []metav1.OwnerReference{theirs}
		if err := w.client.Update(t.Context(), changed); err != nil {
			t.Error(err)
		}
	}
	if result, err := w.look(a); err != nil || result.RequeueAfter != conflictPause { // the change may be no event
		t.Fatalf("after a conflict: %+v, %v", result, err)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{theirs}, w.owners(a)); diff != "" {
		t.Errorf("owners after the conflict (-want +got):\n%s", diff)
	}
	if _, err := w.look(a); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{theirs, owner(run)}, w.owners(a)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
}

// mutation: an error that is dropped, or an absent object that is one, makes this fail.
func TestErrorsAreTriedAgainAndAbsenceIsNone(t *testing.T) {
	w := newWorld(t)
	run := w.run("report")
	a := w.decide("report", string(run.UID))
	down := errors.New("down")
	w.r.Live = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	})
	if _, err := w.look(a); !errors.Is(err, down) {
		t.Errorf("the run cannot be read: %v", err)
	}
	w.r.Live = w.client
	w.beforePatch = func() {
		if err := w.client.Delete(t.Context(), a); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.look(a); err != nil {
		t.Errorf("deleted before the patch: %v", err)
	}
	if _, err := w.look(a); err != nil {
		t.Errorf("deleted before the look: %v", err)
	}
}

// asked notes the paths of what is asked for at the API server.
type asked struct {
	http.RoundTripper
	paths *[]string
}

func (a asked) RoundTrip(r *http.Request) (*http.Response, error) {
	*a.paths = append(*a.paths, r.URL.Path)
	return a.RoundTripper.RoundTrip(r)
}

// The schema refuses such a name, but knows objects from before it did.
// mutation: a reconciler that asks for any name makes this fail: it asks for what is elsewhere.
func TestANameThatIsAPathIsNotAskedFor(t *testing.T) {
	w := newWorld(t)
	var paths []string
	config := rest.CopyConfig(server.Config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return asked{rt, &paths} })
	live, err := client.New(config, client.Options{Scheme: server.Scheme, Mapper: w.client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	w.r.Live = live
	for i, run := range []string{"../../../workflowruns", "../workflows/a", "..", "a/b", "%2e%2e", "report"} {
		a := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "decision-" + strconv.Itoa(i)}}
		a.Spec = v1alpha1.StepApprovalSpec{Run: run, Step: "publish", Decision: v1alpha1.Approve, Approver: "jane"}
		w.r.Client = fake.NewClientBuilder().WithScheme(server.Scheme).WithObjects(a).Build()
		if result, err := w.look(a); err != nil || result != (reconcile.Result{}) {
			t.Errorf("%s: result %+v, error %v", run, result, err)
		}
	}
	want := "/apis/syncopate.dev/v1alpha1/namespaces/" + w.ns + "/workflowruns/report"
	if diff := cmp.Diff([]string{want}, slices.DeleteFunc(paths, func(p string) bool { return !strings.Contains(p, "workflow") })); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// The wiring: an event is enough, with the rights of nobody's hand.
// mutation: For another kind, or no Complete, makes this fail.
func TestTheControllerFollowsEvents(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)}, // for -count=2
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: mgr.GetClient(), Live: mgr.GetAPIReader()}
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
	run := w.run("report")
	a := w.decide("report", string(run.UID))
	w.awaitOwner(a, owner(run))
}

// mutation: NeedLeaderElection false makes this fail.
func TestItRunsOnTheLeaderOnly(t *testing.T) {
	mgr := &recordingManager{}
	var err error
	mgr.Manager, err = ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: server.Scheme, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := (&Reconciler{}).SetupWithManager(mgr); err != nil {
		t.Fatal(err)
	}
	if len(mgr.added) != 1 {
		t.Fatalf("%d runnables", len(mgr.added))
	}
	if r, ok := mgr.added[0].(manager.LeaderElectionRunnable); !ok || !r.NeedLeaderElection() {
		t.Error("it runs on replicas that stand by")
	}
}

// recordingManager keeps what is added to it.
type recordingManager struct {
	manager.Manager
	added []manager.Runnable
}

// Add implements manager.Manager.
func (m *recordingManager) Add(r manager.Runnable) error {
	m.added = append(m.added, r)
	return nil
}

// awaitOwner watches a decision until it has the owner.
func (w *world) awaitOwner(a *v1alpha1.StepApproval, want metav1.OwnerReference) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	events, err := w.client.Watch(ctx, &v1alpha1.StepApprovalList{}, client.InNamespace(w.ns), client.MatchingFields{"metadata.name": a.Name})
	if err != nil {
		w.t.Fatal(err)
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		got, ok := e.Object.(*v1alpha1.StepApproval)
		if !ok || e.Type == watch.Deleted {
			continue
		}
		if cmp.Equal([]metav1.OwnerReference{want}, got.OwnerReferences) {
			return
		}
	}
	w.t.Fatal("the decision has no owner")
}

// The cache has no labels, annotations and finalizers of decisions.
// mutation: a patch of all that differs from the stored object makes this fail.
func TestWhatTheCacheDoesNotHaveStays(t *testing.T) {
	w := newWorld(t)
	run := w.run("report")
	a := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: "yes", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"x.example/y"},
	}}
	a.Spec = v1alpha1.StepApprovalSpec{Run: run.Name, RunUID: string(run.UID), Step: "publish", Approver: "eve", Decision: v1alpha1.Approve}
	if err := w.client.Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.r.Client = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			o.SetLabels(nil)
			o.SetAnnotations(nil)
			o.SetFinalizers(nil)
			return err
		},
	})
	if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)}); err != nil {
		t.Fatal(err)
	}
	stands := &v1alpha1.StepApproval{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(a), stands); err != nil {
		t.Fatal(err)
	}
	if len(stands.OwnerReferences) != 1 || stands.Labels["a"] != "b" || stands.Annotations["c"] != "d" || len(stands.Finalizers) != 1 {
		t.Errorf("it is %+v", stands.ObjectMeta)
	}
	stands.Finalizers = nil
	if err := w.client.Update(t.Context(), stands); err != nil {
		t.Fatal(err)
	}
}
