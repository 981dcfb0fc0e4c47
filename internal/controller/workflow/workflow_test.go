// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server that all tests share; each has a namespace of its own.
var server testenv.Shared

func TestMain(m *testing.M) { server.Main(m) }

// world is a namespace with a reconciler and a sweeper on a real API server, driven by hand.
type world struct {
	t      *testing.T
	client client.WithWatch
	ns     string
	r      *Reconciler
	s      *Sweeper
	// before, if set, is called before each write or live list; and refuse, which may refuse it.
	before func(what string)
	refuse func(what string) error
	// written, if set, is called when a status is stored, before the answer has come.
	written func()
	// looks counts lists of runs that the cache was asked for.
	looks int
	// looked, if set, is called after each of them.
	looked func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, ns := server.Namespace(t, "workflow-")
	w := &world{t: t, client: c, ns: ns}
	tell := func(what string) error {
		if w.before != nil {
			w.before(what)
		}
		if w.refuse != nil {
			return w.refuse(what)
		}
		return nil
	}
	hooks := interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := tell("delete"); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if err := tell(fmt.Sprintf("list %T", l)); err != nil {
				return err
			}
			return c.List(ctx, l, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			if err := tell("status"); err != nil {
				return err
			}
			if err := c.SubResource(sub).Update(ctx, o, opts...); err != nil || w.written == nil {
				return err
			}
			w.written()
			return ctx.Err()
		},
	}
	hooked := interceptor.NewClient(c, hooks)
	hooks.List = func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		w.looks++
		err := c.List(ctx, l, opts...)
		if w.looked != nil {
			w.looked()
		}
		return err
	}
	clk := clocktesting.NewFakeClock(time.Now())
	w.r = &Reconciler{Client: hooked, Live: c, Revisions: &revisions.Store{Live: c, Client: c, Owner: "test"}, Clock: clk, Owner: "test"}
	w.s = &Sweeper{Client: interceptor.NewClient(c, hooks), Live: hooked, Clock: clk, Owner: "test"}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// workflow has a Workflow whose step has a name, and its revision kept.
func (w *world) workflow(name, step string, history int32) *v1alpha1.Workflow {
	w.t.Helper()
	wf := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(wf), wf)
	there := err == nil
	w.must(client.IgnoreNotFound(err))
	wf.Spec = v1alpha1.WorkflowSpec{RevisionHistoryLimit: &history, Template: v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: step, Job: &v1alpha1.Job{Topic: "t"}}}}}
	if there {
		w.must(w.client.Update(w.t.Context(), wf))
	} else {
		w.must(w.client.Create(w.t.Context(), wf))
	}
	return w.reconcile(wf)
}

func (w *world) reconcile(wf *v1alpha1.Workflow) *v1alpha1.Workflow {
	w.t.Helper()
	_, err := w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wf)})
	w.must(err)
	now := &v1alpha1.Workflow{}
	w.must(w.client.Get(w.t.Context(), client.ObjectKeyFromObject(wf), now))
	return now
}

// keeps checks which of all revisions of a Workflow are left, by their places in all.
func (w *world) keeps(workflow string, all []string, want []int) {
	w.t.Helper()
	var names []string
	for _, version := range want {
		names = append(names, all[version])
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, w.kept(workflow)); diff != "" {
		w.t.Errorf("kept (-want +got):\n%s", diff)
	}
}

// kept are the revisions of a Workflow that are there.
func (w *world) kept(name string) []string {
	w.t.Helper()
	var list appsv1.ControllerRevisionList
	w.must(w.client.List(w.t.Context(), &list, client.InNamespace(w.ns), client.MatchingLabels{v1alpha1.LabelWorkflow: name}))
	var all []string
	for i := range list.Items {
		all = append(all, strings.TrimPrefix(list.Items[i].Name, name+"-"))
	}
	slices.Sort(all)
	return all
}

// sweep makes a round over this namespace.
func (w *world) sweep() {
	w.t.Helper()
	all, err := w.s.list(w.t.Context())
	w.must(err)
	w.must(w.s.sweepNamespace(w.t.Context(), w.ns, all[w.ns]))
}

// status is that of a Workflow, as it is stored.
func (w *world) status(name string) *v1alpha1.WorkflowStatus {
	w.t.Helper()
	now := &v1alpha1.Workflow{}
	w.must(w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, now))
	return now.Status
}

// run is a run that follows a Workflow; revision "": it was not seen yet.
func (w *world) run(name, revision string, ended bool) *v1alpha1.WorkflowRun {
	w.t.Helper()
	return w.runNamed(metav1.ObjectMeta{GenerateName: name + "-"}, name, revision, ended)
}

func (w *world) runNamed(as metav1.ObjectMeta, name, revision string, ended bool) *v1alpha1.WorkflowRun {
	w.t.Helper()
	as.Namespace = w.ns
	run := &v1alpha1.WorkflowRun{ObjectMeta: as, Spec: v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: name}}}
	w.must(w.client.Create(w.t.Context(), run))
	if revision == "" && !ended {
		return run
	}
	run.Status = &v1alpha1.WorkflowRunStatus{}
	if revision != "" {
		run.Status.Workflow = &v1alpha1.WorkflowRevision{Name: name, Revision: revision}
	}
	if ended {
		run.Status.Phase, run.Status.CompletedAt = v1alpha1.RunSucceeded, &metav1.Time{Time: time.Now()}
	}
	w.must(w.client.Status().Update(w.t.Context(), run))
	return run
}

func TestReconciler_SaysWhetherRunsCanFollow(t *testing.T) {
	w := newWorld(t)
	good := w.workflow("good", "a", 1)
	if good.Status.Revision == "" || good.Status.ObservedGeneration != good.Generation || good.Status.Steps != 1 {
		t.Errorf("%+v", good.Status)
	}
	if c := meta.FindStatusCondition(good.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	bad := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "bad"}, Spec: v1alpha1.WorkflowSpec{
		Parameters: []v1alpha1.Parameter{{Name: "n", Pattern: "("}, {Name: "large", Pattern: strings.Repeat(".{999}", 42)}},
		Template:   v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: "a", DependsOn: []string{"b"}, When: "inputs.nn == 1", Job: &v1alpha1.Job{Topic: "t"}}}},
	}}
	w.must(w.client.Create(t.Context(), bad))
	bad = w.reconcile(bad)
	for kind, status := range map[string]metav1.ConditionStatus{v1alpha1.ConditionReady: metav1.ConditionFalse, v1alpha1.ConditionStalled: metav1.ConditionTrue} {
		c := meta.FindStatusCondition(bad.Status.Conditions, kind)
		if c == nil || c.Status != status || c.Reason != v1alpha1.ReasonInvalidTemplate ||
			!strings.Contains(c.Message, "spec.parameters[0].pattern") || !strings.Contains(c.Message, "spec.parameters[1].pattern: too large") || !strings.Contains(c.Message, `spec.template.steps[0].dependsOn[0]: there is no step "b"`) ||
			kind == v1alpha1.ConditionReady && !strings.Contains(c.Message, `inputs has no field "nn"; it has large, n`) {
			t.Errorf("%+v", c)
		}
	}
	version := good.ResourceVersion
	if again := w.reconcile(good); again.ResourceVersion != version {
		t.Error("nothing changed, and it was written again")
	}
	if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.ns, Name: "none"}}); err != nil {
		t.Error(err)
	}
}

// A Workflow that is full of expressions takes seconds to validate. Somebody may edit one all the
// time, and each replica that begins sees all of them.
//
// mutations: problemsOf that validates without a desk, or at that of another namespace; look that
// takes a spec that was not read for a valid one, or for an error, or that reads it each time.
func TestReconciler_ValidatesALongWorkflowAtADesk(t *testing.T) {
	w := newWorld(t)
	var desks, left, rests int
	w.r.Aside = &passes.Aside{Most: 1, Clock: w.r.Clock, Desk: func(_ context.Context, namespace string) (rest func() bool, leave func(), err error) {
		if desks++; namespace != w.ns {
			t.Errorf("a desk of %s", namespace)
		}
		return func() bool { rests++; return desks > 1 }, func() { left++ }, nil
	}}
	long := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "long"}}
	for i := range 50 {
		step := v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Job: &v1alpha1.Job{Topic: "t"}}
		step.When = strings.Repeat("[1].map(x, x).size() + ", 40) + "1 > 0"
		long.Spec.Template.Steps = append(long.Spec.Template.Steps, step)
	}
	w.must(w.client.Create(t.Context(), long))
	if result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(long)}); err != nil || result.RequeueAfter != passes.Later || rests != 1 {
		t.Errorf("without time for it: %+v, %v, %d rests", result, err, rests)
	}
	long = w.reconcile(long)
	if !meta.IsStatusConditionTrue(long.Status.Conditions, v1alpha1.ConditionReady) || desks != 2 || left != 2 || rests < 50 {
		t.Errorf("%+v: %d desks, %d left, %d rests", long.Status.Conditions, desks, left, rests)
	}
	w.r.Aside.Most = 0
	long.Spec.Template.Steps[49].When = "steps.nobody.phase == 'Failed'"
	w.must(w.client.Update(t.Context(), long))
	if result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(long)}); err != nil || result.RequeueAfter != passes.Later {
		t.Errorf("while others are at desks: %+v, %v", result, err)
	}
	looks := w.r.Live
	w.r.Live = nil // it is not read again, as long as they are
	if result, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(long)}); err != nil || result.RequeueAfter != passes.Later {
		t.Errorf("while others still are: %+v, %v", result, err)
	}
	w.r.Live = looks
	w.r.Aside.Most = 1
	if long = w.reconcile(long); meta.IsStatusConditionTrue(long.Status.Conditions, v1alpha1.ConditionReady) || desks != 3 || left != 3 {
		t.Errorf("after an edit: %+v: %d desks, %d left", long.Status.Conditions, desks, left)
	}
}

// mutation: Reconcile without its turn, or that keeps it; Wake that adds nothing.
func TestReconciler_WaitsForItsTurn(t *testing.T) {
	may, under := false, 0
	r := &Reconciler{Live: interceptor.NewClient(fake.NewFakeClient(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			if under != 1 {
				t.Error("it is looked at out of turn")
			}
			return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflows").GroupResource(), "w")
		},
	})}
	r.Turn = func(types.NamespacedName) (func(), bool) {
		if !may {
			return nil, false
		}
		under++
		return func() { under-- }, true
	}
	key := types.NamespacedName{Namespace: "team", Name: "w"}
	r.Wake(key) // before it is started
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	r.queue.Store(&q)
	for range 2 {
		if result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result != (reconcile.Result{}) || under != 0 {
			t.Errorf("%+v, %v, %d under way", result, err, under)
		}
		may = true
	}
	if r.Wake(key); q.Len() != 1 {
		t.Errorf("%d are woken", q.Len())
	}
}

// mutation: Reconcile that does not say that it is in line.
func TestReconciler_KeepsItsErrorsInLine(t *testing.T) {
	may := false
	r := &Reconciler{Live: fake.NewClientBuilder().WithScheme(server.Scheme).Build()}
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

func TestSweeper_DeletesWhatNobodyNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(w *world, revisions []string) // of versions 0 to 4; 4 is the current one
		history int32
		want    []int // versions that are left
	}{
		"no history":                   {nil, 0, []int{4}},
		"a history of four":            {nil, 4, []int{0, 1, 2, 3, 4}},
		"a run under way":              {func(w *world, r []string) { w.run("report", r[1], false) }, 0, []int{1, 4}},
		"a run that ended":             {func(w *world, r []string) { w.run("report", r[1], true) }, 0, []int{1, 4}},
		"a run that never began":       {func(w *world, _ []string) { w.run("report", "", true) }, 0, []int{4}},
		"a run that was not seen":      {func(w *world, _ []string) { w.run("report", "", false) }, 0, []int{0, 1, 2, 3, 4}},
		"a run of another Workflow":    {func(w *world, r []string) { w.run("other", r[1], false) }, 0, []int{4}},
		"the Workflow is gone":         {func(w *world, _ []string) { w.gone("report") }, 4, nil},
		"it is gone, and has a run":    {func(w *world, r []string) { w.run("report", r[4], false); w.gone("report") }, 4, []int{4}},
		"it changed, and is not known": {func(w *world, _ []string) { w.unseen("report") }, 0, []int{0, 1, 2, 3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var all []string
			for version := range 5 {
				all = append(all, w.workflow("report", fmt.Sprint("v", version), c.history).Status.Revision)
			}
			if c.arrange != nil {
				c.arrange(w, all)
			}
			w.sweep()
			w.keeps("report", all, c.want)
		})
	}
}

// A quota that the Workflow's own old revisions fill comes free: they are deleted while the new one
// is refused. That which it is about to have is there if it was edited back.
//
// mutations: workflow that takes a Workflow for unsettled whose revision is refused, or for settled
// by a refusal of before an edit; named without the revision of the spec.
func TestSweeper_DeletesOldRevisionsWhileTheNextIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		edit string
		then func(w *world)
		want []int // of versions 0 to 2, which are left
	}{
		"a new one is refused":       {"new", func(*world) {}, []int{2}},
		"it is edited back":          {"v0", func(*world) {}, []int{0, 2}},
		"a run waits for it":         {"new", func(w *world) { w.run("report", "", false) }, []int{0, 1, 2}},
		"it is edited, and not seen": {"new", func(w *world) { w.unseen("report") }, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var all []string
			for version := range 3 {
				all = append(all, w.workflow("report", fmt.Sprint("v", version), 0).Status.Revision)
			}
			wf := &v1alpha1.Workflow{}
			key := types.NamespacedName{Namespace: w.ns, Name: "report"}
			w.must(w.client.Get(t.Context(), key, wf))
			wf.Spec.Template.Steps[0].Name = c.edit
			w.must(w.client.Update(t.Context(), wf))
			full := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", errors.New("exceeded quota"))
			w.r.Revisions = refuses(func() error { return full })
			if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); !errors.Is(err, full) {
				t.Fatalf("%v, want %v", err, full)
			}
			c.then(w)
			w.sweep()
			w.keeps("report", all, c.want)
			if now := w.status("report"); len(now.Retiring) > 0 || now.Revision != all[2] {
				t.Errorf("after the round: %+v", now)
			}
		})
	}
}

func (w *world) gone(name string) {
	w.must(w.client.Delete(w.t.Context(), &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}))
}

// unseen changes a Workflow, and no Reconciler has seen it.
func (w *world) unseen(name string) {
	wf := &v1alpha1.Workflow{}
	w.must(w.client.Get(w.t.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, wf))
	wf.Spec.Template.Steps[0].Name = "unseen"
	w.must(w.client.Update(w.t.Context(), wf))
}

// Whatever happens between two steps of a round, no revision is deleted that a run has pinned.
//
// mutation: a live list that ends with its first page.
func TestSweeper_NeverDeletesWhatARunIsAboutToPin(t *testing.T) {
	w := newWorld(t)
	old := w.workflow("report", "old", 0).Status.Revision
	current := w.workflow("report", "new", 0).Status.Revision
	for range runsPage {
		w.run("report", current, true)
	}
	var marked []string
	w.before = func(what string) {
		if what != "list *v1alpha1.WorkflowRunList" {
			return
		}
		if marked = w.status("report").Retiring; len(marked) > 0 {
			w.before = nil
			w.runNamed(metav1.ObjectMeta{Name: "zz-last"}, "report", old, false) // it read the Workflow before the mark
		}
	}
	w.sweep()
	if diff := cmp.Diff([]string{old}, marked); diff != "" {
		t.Errorf("retiring while the runs are listed (-want +got):\n%s", diff)
	}
	if !slices.Contains(w.kept("report"), old) {
		t.Error("a revision was deleted that a run has pinned")
	}
	if now := w.status("report"); len(now.Retiring) > 0 || now.Revisions != 2 {
		t.Errorf("after the round: %+v", now)
	}
}

// The cache gives all runs in one answer, and says that there are more. In production nothing was
// ever deleted: the second page is an error.
//
// mutation: a first look that asks the cache for another page.
func TestSweeper_ReadsRunsFromACache(t *testing.T) {
	w := newWorld(t)
	kept := w.workflow("report", "old", 0).Status.Revision
	w.workflow("report", "older", 0)
	current := w.workflow("report", "new", 0).Status.Revision
	w.run("report", kept, true)
	runs, err := cache.New(server.Config, cache.Options{Scheme: server.Scheme, DefaultNamespaces: map[string]cache.Config{w.ns: {}}})
	w.must(err)
	ended := make(chan error, 1)
	ctx, end := context.WithCancel(t.Context())
	go func() { ended <- runs.Start(ctx) }()
	defer func() {
		end()
		w.must(<-ended)
	}()
	w.s.Client, err = client.New(server.Config, client.Options{Scheme: server.Scheme, Cache: &client.CacheOptions{Reader: runs}})
	w.must(err)
	w.sweep()
	want := []string{kept, current}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.kept("report")); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
	if now := w.status("report"); len(now.Retiring) > 0 || now.Revisions != 2 {
		t.Errorf("after the round: %+v", now)
	}
}

// Somebody may make a Workflow for each build, and delete it: thousands of Workflows, and thousands
// of runs that keep their revisions.
//
// mutations: a look at the runs of the namespace for each Workflow; one where nothing
// is a candidate.
func TestSweeper_LooksAtTheRunsOfANamespaceOnce(t *testing.T) {
	w := newWorld(t)
	for i := range 3 {
		name := fmt.Sprint("build-", i)
		w.run(name, w.workflow(name, "a", 10).Status.Revision, true)
	}
	if w.sweep(); w.looks != 0 {
		t.Errorf("%d looks where nothing is a candidate", w.looks)
	}
	for i := range 3 {
		w.gone(fmt.Sprint("build-", i))
	}
	w.before = func(what string) {
		if what == "list *v1alpha1.WorkflowRunList" {
			t.Error("runs are read live, and the cache has them")
		}
	}
	if w.sweep(); w.looks != 1 {
		t.Errorf("%d looks at the runs of the namespace", w.looks)
	}
	for i := range 3 {
		if n := len(w.kept(fmt.Sprint("build-", i))); n != 1 {
			t.Errorf("%d revisions are left of Workflow %d", n, i)
		}
	}
}

// A mark that stays after an error keeps runs that name the revision waiting.
//
// mutations: a round that ends at the error; one that counts what it did not delete as deleted; one
// that leaves a mark while the Workflow's status is not up to date.
func TestSweeper_TakesItsMarkAway(t *testing.T) {
	for name, what := range map[string]string{"the list fails": "list *v1alpha1.WorkflowRunList", "a deletion fails": "delete", "the process ends": "status"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for version := range 4 {
				w.workflow("report", fmt.Sprint("v", version), 0)
			}
			done := 0
			w.refuse = func(is string) error {
				if is != what {
					return nil
				}
				if done++; done == 1 && what != "list *v1alpha1.WorkflowRunList" {
					return nil
				}
				return errors.New("no")
			}
			all, err := w.s.list(t.Context())
			w.must(err)
			if err := w.s.sweepNamespace(t.Context(), w.ns, all[w.ns]); err == nil {
				t.Error("no error")
			}
			w.refuse = nil
			if what == "status" {
				if len(w.status("report").Retiring) == 0 {
					t.Fatal("the test leaves no mark")
				}
				w.unseen("report")
				w.sweep()
			}
			if now := w.status("report"); len(now.Retiring) > 0 || int(now.Revisions) != len(w.kept("report")) {
				t.Errorf("after the round: %+v, and %d are there", now, len(w.kept("report")))
			}
		})
	}
}

// A hand-over, or a stop, ends the round in the middle.
//
// mutations: a mark that is taken away, or written, with the context that has ended.
func TestSweeper_TakesItsMarkAwayWhenItsRoundIsCutOff(t *testing.T) {
	for _, when := range []string{"as it marks", "as it lists", "as it deletes"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t)
			for version := range 4 {
				w.workflow("report", fmt.Sprint("v", version), 0)
			}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			marked := false
			cut := func(now string) {
				if now == when {
					marked = marked || len(w.status("report").Retiring) > 0
					end()
				}
			}
			w.before = func(what string) {
				cut(map[string]string{"list *v1alpha1.WorkflowRunList": "as it lists", "delete": "as it deletes"}[what])
			}
			w.written = func() { cut("as it marks") }
			all, err := w.s.list(t.Context())
			w.must(err)
			if err := w.s.sweepNamespace(ctx, w.ns, all[w.ns]); !errors.Is(err, context.Canceled) || !marked {
				t.Errorf("%v, marked: %t", err, marked)
			}
			if now := w.status("report"); len(now.Retiring) > 0 || int(now.Revisions) != len(w.kept("report")) {
				t.Errorf("after the round: %+v, and %d are there", now, len(w.kept("report")))
			}
		})
	}
}

// mutation: sweep that marks though its round was cut off makes this fail.
func TestSweeper_ARoundThatWasCutOffMarksNothing(t *testing.T) {
	w := newWorld(t)
	for version := range 4 {
		w.workflow("report", fmt.Sprint("v", version), 0)
	}
	all, err := w.s.list(t.Context())
	w.must(err)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	w.looked = end
	writes := 0
	w.written = func() { writes++ }
	if err := w.s.sweepNamespace(ctx, w.ns, all[w.ns]); !errors.Is(err, context.Canceled) || writes > 0 {
		t.Errorf("%v, %d writes", err, writes)
	}
	if w.looks == 0 {
		t.Error("the round did not come so far")
	}
}

// Who hands over does not wait for an API server that is away.
//
// mutation: outlast that does not end, or that ends with its round.
func TestSweeper_ARoundThatIsCutOffHasAMoment(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		later, done := (&Sweeper{Clock: clock.RealClock{}}).outlast(ctx)
		defer done()
		time.Sleep(2 * lastWrite)
		end()
		time.Sleep(lastWrite - time.Nanosecond)
		if err := later.Err(); err != nil {
			t.Errorf("ended early: %v", err)
		}
		time.Sleep(2 * time.Nanosecond)
		if later.Err() == nil {
			t.Error("it goes on")
		}
	})
}

func TestSweeper_AWorkflowThatIsMadeAgainKeepsItsRevision(t *testing.T) {
	w := newWorld(t)
	w.workflow("report", "a", 0)
	w.gone("report")
	w.before = func(what string) {
		if what == "delete" {
			w.before = nil
			w.workflow("report", "a", 0) // claims the revision
		}
	}
	w.sweep()
	if n := len(w.kept("report")); n != 1 {
		t.Errorf("%d revisions", n)
	}
}

func TestSweeper_AWorkflowThatChangesMeanwhileIsLeftForTheNextRound(t *testing.T) {
	w := newWorld(t)
	old := w.workflow("report", "old", 0).Status.Revision
	w.workflow("report", "new", 0)
	w.before = func(what string) {
		if what == "status" {
			w.before = nil
			w.workflow("report", "old", 0) // back again
		}
	}
	all, err := w.s.list(t.Context())
	w.must(err)
	if err := w.s.sweepNamespace(t.Context(), w.ns, all[w.ns]); err == nil || !strings.Contains(err.Error(), "the object has been modified") {
		t.Errorf("want a conflict: %v", err)
	}
	if !slices.Contains(w.kept("report"), old) {
		t.Error("the current revision was deleted")
	}
}

// The content of a revision is taken by its hash alone.
func TestReconciler_TakesNoRevisionOfAnother(t *testing.T) {
	w := newWorld(t)
	spec := v1alpha1.WorkflowSpec{Template: v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}}}
	_, revision, err := template.Encode(&spec)
	w.must(err)
	w.must(w.client.Create(t.Context(), &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: template.ObjectName("report", revision)},
		Data:       runtime.RawExtension{Raw: []byte(`{"template":{"steps":[{"name":"evil"}]}}`)},
	}))
	wf := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "report"}, Spec: spec}
	w.must(w.client.Create(t.Context(), wf))
	_, err = w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wf)})
	if err == nil || !strings.Contains(err.Error(), "is in the way") {
		t.Errorf("taken: %v", err)
	}
	if c := meta.FindStatusCondition(w.status("report").Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonRevisionNotKept {
		t.Errorf("%+v", c)
	}
}

// A Workflow whose revision is refused has no status otherwise: nobody is told, and tools wait.
//
// mutations: look that gives the error on, and says nothing; unkept that writes each time, that
// says it of an outage, that keeps the error, or that has the status be of this generation.
func TestReconciler_SaysThatARevisionIsRefused(t *testing.T) {
	w := newWorld(t)
	forbidden := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", errors.New("exceeded quota"))
	var with error = apierrors.NewInternalError(errors.New("not now"))
	kept := w.r.Revisions
	w.r.Revisions = refuses(func() error { return with })
	wf := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "report"}, Spec: v1alpha1.WorkflowSpec{
		Template: v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}},
	}}
	w.must(w.client.Create(t.Context(), wf))
	look := func() *v1alpha1.WorkflowStatus {
		_, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(wf)})
		if !errors.Is(err, with) {
			t.Errorf("%v, want %v", err, with)
		}
		return w.status("report")
	}
	if st := look(); st != nil && meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady) != nil {
		t.Errorf("in an outage: %+v", st)
	}
	with = forbidden
	writes := 0
	w.before = func(string) { writes++ }
	for range 2 {
		st := look()
		c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.ReasonRevisionNotKept || !strings.Contains(c.Message, "exceeded quota") {
			t.Errorf("%+v", c)
		}
		if _, known := revisions.Known(&v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Generation: wf.Generation}, Status: st}); known || st.ObservedGeneration == wf.Generation {
			t.Errorf("its revision is known: %+v", st)
		}
	}
	if writes != 1 {
		t.Errorf("%d writes", writes)
	}
	w.r.Revisions = kept
	if st := w.reconcile(wf).Status; !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) || st.ObservedGeneration != wf.Generation {
		t.Errorf("once it is kept: %+v", st)
	}
}

// refuses are revisions that cannot be kept.
type refuses func() error

func (r refuses) Ensure(context.Context, *v1alpha1.Workflow) (*template.Content, error) {
	return nil, r()
}
