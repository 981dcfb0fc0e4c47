// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const (
	// patience ends a hung test; it is no expectation about speed.
	patience = 60 * time.Second
	polling  = 2 * time.Millisecond
)

// tenant is that of the runs of tests, unless they say otherwise.
const tenant = "acme"

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is an API server without runs, and an empty Redis.
type world struct {
	t      *testing.T
	client client.WithWatch
	server *redistest.Server
	redis  *redis.Client // for looking
	clock  *clocktesting.FakeClock
	boss   *instance // what most tests need: the leader
}

// instance is a process. Its cache is the API server itself, unless stale is set.
type instance struct {
	*Controller
	w       *world
	drift   *prometheus.Registry
	calls   *calls
	stale   client.Reader // what the cache has instead
	mu      sync.Mutex
	awake   []string        // names of runs that were woken
	beforeR func()          // called before each call to Redis
	beforeA func(op string) // called before each get, list and patch at the API server; not for what reads the cache
	refuse  error           // what all calls to Redis fail with

	refusePatch []error          // what the next patches fail with
	frozen      map[string]error // what each patch of a run of that name fails with
	refuseGet   error            // what live reads fail with
}

// calls counts what a process sends.
type calls struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *calls) add(what string) { c.mu.Lock(); defer c.mu.Unlock(); c.n[what]++ }

func (c *calls) of(what string) int { c.mu.Lock(); defer c.mu.Unlock(); return c.n[what] }

func newWorld(t *testing.T) *world {
	t.Helper()
	c := server.Client(t)
	w := &world{t: t, client: c, server: redistest.Start(t), clock: clocktesting.NewFakeClock(epoch)}
	for _, o := range []client.Object{&v1alpha1.LockPolicy{}, &v1alpha1.WorkflowRun{}} {
		must(t, c.DeleteAllOf(w.ctx(), o, client.InNamespace("default")))
	}
	w.redis = w.server.Client()
	w.boss = w.instance()
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) ctx() context.Context {
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	w.t.Cleanup(cancel)
	return ctx
}

// until polls; it ends the test when it takes too long.
func (w *world) until(what string, done func() bool) {
	w.t.Helper()
	err := wait.PollUntilContextTimeout(w.ctx(), polling, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// instance starts another process.
func (w *world) instance() *instance { w.t.Helper(); return w.instanceOf("") }

// instanceOf starts a process of an installation.
func (w *world) instanceOf(installation string, change ...func(*store.Options)) *instance {
	w.t.Helper()
	k := &instance{w: w, calls: &calls{n: map[string]int{}}, drift: prometheus.NewRegistry()}
	r := redis.NewClient(&redis.Options{
		Addr: w.server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience, DialerRetries: 1,
	})
	r.AddHook(hook{k})
	w.t.Cleanup(func() { _ = r.Close() })
	of := store.Options{Metrics: store.NewMetrics(k.drift, 0), Timeout: patience, Installation: installation}
	for _, f := range change {
		f(&of)
	}
	k.Controller = New(Options{
		Gate:   store.New(r, of),
		Client: k.cache(), Live: k.api(w.client), Clock: w.clock,
		Wake: func(name types.NamespacedName) {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.awake = append(k.awake, name.Name)
		},
	})
	return k
}

// hook calls beforeR.
type hook struct{ k *instance }

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(registerKey)) && !slices.Contains(cmd.Args(), any("="+wishEntry)) {
			h.k.calls.add("register") // each resync begins with that
		}
		if f := h.k.beforeR; f != nil {
			inTime := ctx.Err() == nil
			f()
			if inTime { // however long that took, it is not the call's time
				ctx = context.WithoutCancel(ctx)
			}
		}
		h.k.mu.Lock()
		refuse := h.k.refuse
		h.k.mu.Unlock()
		if refuse != nil {
			cmd.SetErr(refuse)
			return refuse
		}
		return next(ctx, cmd)
	}
}

// api is the API server with beforeA.
func (k *instance) api(c client.WithWatch) client.Client {
	before := func(op string) {
		k.calls.add(op)
		if f := k.beforeA; f != nil {
			f(op)
		}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			before("get")
			if k.refuseGet != nil {
				return k.refuseGet
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			before("list")
			return c.List(ctx, l, opts...)
		},
	})
}

// cache reads from stale, if it is set, and sends patches to the API server.
func (k *instance) cache() client.Client {
	from := func(o any) client.Reader {
		switch o.(type) {
		case *v1alpha1.WorkflowRun, *v1alpha1.WorkflowRunList:
			if k.stale != nil {
				return k.stale
			}
		}
		return k.w.client
	}
	return interceptor.NewClient(k.w.client, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return from(o).Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return from(l).List(ctx, l, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			k.calls.add("patch")
			if f := k.beforeA; f != nil {
				f("patch")
			}
			if err := k.frozen[o.GetName()]; err != nil {
				return err
			}
			if len(k.refusePatch) > 0 {
				err := k.refusePatch[0]
				k.refusePatch = k.refusePatch[1:]
				return err
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
}

// freeze has the cache stay behind from now on.
func (k *instance) freeze() {
	k.w.t.Helper()
	s := snapshot{}
	must(k.w.t, k.w.client.List(k.w.ctx(), &s.runs))
	k.stale = s
}

// snapshot is what a cache had once.
type snapshot struct{ runs v1alpha1.WorkflowRunList }

func (s snapshot) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	for i := range s.runs.Items {
		if run, ok := o.(*v1alpha1.WorkflowRun); ok && client.ObjectKeyFromObject(&s.runs.Items[i]) == key {
			s.runs.Items[i].DeepCopyInto(run)
			return nil
		}
	}
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), key.Name)
}

func (s snapshot) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	if list, ok := l.(*v1alpha1.WorkflowRunList); ok {
		s.runs.DeepCopyInto(list)
	}
	return nil
}

// policy makes or changes the policy of a class, which has its name.
func (w *world) policy(class string, limit int32) { w.policyOf(class, class, limit) }

func (w *world) policyOf(name, class string, limit int32, more ...string) {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := w.client.Get(w.ctx(), client.ObjectKeyFromObject(p), p)
	p.Spec.WorkloadClasses, p.Spec.Admission.MaxConcurrentRuns = append([]string{class}, more...), &limit
	switch {
	case apierrors.IsNotFound(err):
		must(w.t, w.client.Create(w.ctx(), p))
	case err == nil:
		must(w.t, w.client.Update(w.ctx(), p))
	default:
		w.t.Fatal(err)
	}
}

// run makes a run of class "batch" whose tenant is pinned.
func (w *world) run(name string, change ...func(*v1alpha1.WorkflowRunSpec)) *v1alpha1.WorkflowRun {
	w.t.Helper()
	return w.write(w.create(name, change...), func(st *v1alpha1.WorkflowRunStatus) { st.Tenant = tenant })
}

// create makes a run that nobody has looked at.
func (w *world) create(name string, change ...func(*v1alpha1.WorkflowRunSpec)) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	run.Spec.WorkloadClass = "batch"
	run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	for _, f := range change {
		f(&run.Spec)
	}
	must(w.t, w.client.Create(w.ctx(), run))
	return run
}

// write changes the status of a run, which must be as it was read.
func (w *world) write(run *v1alpha1.WorkflowRun, change func(*v1alpha1.WorkflowRunStatus)) *v1alpha1.WorkflowRun {
	w.t.Helper()
	now, err := w.tryWrite(run, change)
	must(w.t, err)
	return now
}

func (w *world) tryWrite(run *v1alpha1.WorkflowRun, change func(*v1alpha1.WorkflowRunStatus)) (*v1alpha1.WorkflowRun, error) {
	next := run.DeepCopy()
	if next.Status == nil {
		next.Status = &v1alpha1.WorkflowRunStatus{}
	}
	change(next.Status)
	err := w.client.Status().Update(w.ctx(), next)
	return next, err
}

func admittedUnder(policyName string) func(*v1alpha1.WorkflowRunStatus) {
	return func(st *v1alpha1.WorkflowRunStatus) {
		st.Tenant, st.Phase = tenant, v1alpha1.RunRunning
		st.Admission = &v1alpha1.AdmissionStatus{AdmittedAt: &metav1.Time{Time: epoch}, Policy: policyName}
	}
}

func ended(st *v1alpha1.WorkflowRunStatus) {
	st.Phase, st.CompletedAt = v1alpha1.RunSucceeded, &metav1.Time{Time: epoch}
}

// refusedFor ends a run as the controller does whose idempotency key is another's.
func refusedFor(reason string) func(*v1alpha1.WorkflowRunStatus) {
	return func(st *v1alpha1.WorkflowRunStatus) {
		ended(st)
		st.Phase = v1alpha1.RunFailed
		st.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionFalse, Reason: reason, LastTransitionTime: metav1.Time{Time: epoch},
		}}
	}
}

func (w *world) get(name string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{}
	must(w.t, w.client.Get(w.ctx(), client.ObjectKey{Namespace: "default", Name: name}, run))
	return run
}

func (w *world) remove(run *v1alpha1.WorkflowRun) {
	w.t.Helper()
	must(w.t, w.client.Delete(w.ctx(), run))
}

// effective is the policy of a name as it is.
func (w *world) effective(name string) policy.Effective {
	w.t.Helper()
	p := &v1alpha1.LockPolicy{}
	must(w.t, w.client.Get(w.ctx(), client.ObjectKey{Name: name}, p))
	return policy.Of(p)
}

// asks is Admit by the policy batch, and fails the test unless the answer is what is wanted.
func (k *instance) asks(run *v1alpha1.WorkflowRun, want bool) {
	k.w.t.Helper()
	a, err := k.Admit(k.w.ctx(), run, tenant, k.w.effective("batch"))
	if err != nil || a.Admitted != want {
		k.w.t.Fatalf("admit %s: %+v, %v; want admitted: %t", run.Name, a, err, want)
	}
}

// admits is what the controller does: ask, and write.
func (k *instance) admits(run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	k.w.t.Helper()
	k.asks(run, true)
	return k.w.write(run, admittedUnder("batch"))
}

// tries is what the controller does with a run whatever the answer is.
func (k *instance) tries(name string) {
	k.w.t.Helper()
	run := k.w.get(name)
	a, err := k.Admit(k.w.ctx(), run, tenant, k.w.effective("batch"))
	if err != nil && !isClosed(err) {
		k.w.t.Fatalf("admit %s: %v", name, err)
	}
	if a.Admitted && !factOf(run).admitted() {
		_, _ = k.w.tryWrite(run, admittedUnder("batch"))
	}
}

// isClosed fails the test unless the quota says that its data is being rebuilt.
func (k *instance) isClosed(run *v1alpha1.WorkflowRun) {
	k.w.t.Helper()
	a, err := k.Admit(k.w.ctx(), run, tenant, k.w.effective("batch"))
	if e, ok := errors.AsType[*store.RebuildingError](err); !ok || a.Admitted || e.Key.Tenant != tenant {
		k.w.t.Fatalf("admit %s: %+v, %v; want closed", run.Name, a, err)
	}
}

func (k *instance) releases(run *v1alpha1.WorkflowRun) {
	k.w.t.Helper()
	must(k.w.t, k.Release(k.w.ctx(), run.UID, tenant, "batch"))
}

// looks makes a resync.
func (k *instance) looks() {
	k.w.t.Helper()
	if _, err := k.resync(k.w.ctx()); err != nil {
		k.w.t.Fatalf("round: %v", err)
	}
}

// rebuilds is the part of a resync that comes first, without the rest, which would repair what
// it does wrong.
func (k *instance) rebuilds() {
	k.w.t.Helper()
	_, lost, err := k.inspect(k.w.ctx())
	must(k.w.t, err)
	if lost.nothing() {
		k.w.t.Fatal("nothing is lost")
	}
	must(k.w.t, k.rebuild(k.w.ctx(), lost))
}

// woke is who was woken since it was last asked, sorted, each once.
func (k *instance) woke() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	names := k.awake
	k.awake = nil
	slices.Sort(names)
	return slices.Compact(names)
}

func (k *instance) wakes(want ...string) {
	k.w.t.Helper()
	if diff := gocmp.Diff(want, k.woke()); diff != "" {
		k.w.t.Fatalf("woken (-want +got):\n%s", diff)
	}
}

// holds fails the test unless these runs have slots of batch, and these are in the queue, in order.
func (w *world) holds(slots, queue []*v1alpha1.WorkflowRun) {
	w.t.Helper()
	b, err := w.boss.quota.Snapshot(w.ctx(), store.Key{Policy: "batch", Tenant: tenant})
	must(w.t, err)
	var got [2][]string
	for _, s := range b.Slots {
		got[0] = append(got[0], s.UID)
	}
	for _, r := range b.Queue {
		got[1] = append(got[1], r.UID)
	}
	uids := func(runs []*v1alpha1.WorkflowRun) []string {
		var all []string
		for _, run := range runs {
			all = append(all, string(run.UID))
		}
		return all
	}
	want := [2][]string{uids(slots), uids(queue)}
	slices.SortFunc(want[0], cmp.Compare[string])
	if diff := gocmp.Diff(want, got); diff != "" {
		w.t.Fatalf("slots, line (-want +got):\n%s", diff)
	}
}

func runs(r ...*v1alpha1.WorkflowRun) []*v1alpha1.WorkflowRun { return r }

// drifted fails the test unless that was counted: leaked, missing, stale_place.
func (k *instance) drifted(want string) {
	k.w.t.Helper()
	header := "# HELP syncopate_admission_drift_total Differences between slots and runs that were repaired: slots of no run (leaked), " +
		"runs without a slot (missing), places in line of no run (stale_place).\n# TYPE syncopate_admission_drift_total counter\n"
	var lines string
	for i, n := range strings.Fields(want) {
		lines += `syncopate_admission_drift_total{kind="` + []string{"leaked", "missing", "stale_place"}[i] + `"} ` + n + "\n"
	}
	if err := testutil.GatherAndCompare(k.drift, strings.NewReader(header+lines), "syncopate_admission_drift_total"); err != nil {
		k.w.t.Fatal(err)
	}
}

// running is an instance's Start.
type running struct{ *instance }

// start runs an instance until the end of the test, and waits for its first resync.
func (w *world) start(k *instance) running {
	w.t.Helper()
	r := running{k}
	r.resyncs(func() {
		ctx, stop := context.WithCancel(w.t.Context())
		done := make(chan error)
		go func() { done <- k.Start(ctx) }()
		w.t.Cleanup(func() {
			stop()
			select {
			case err := <-done:
				if err != nil {
					w.t.Errorf("start: %v", err)
				}
			case <-time.After(patience):
				w.t.Error("it does not end")
			}
		})
	})
	return r
}

// resyncs waits until there was a resync after f, and the next one is waited for.
func (r running) resyncs(f func()) {
	r.w.t.Helper()
	before := r.calls.of("register")
	f()
	r.w.until("a round is made", func() bool { return r.calls.of("register") > before && r.w.clock.HasWaiters() })
}

// rests fails the test if the next resync is not waited for after f.
func (r running) rests(f func()) {
	r.w.t.Helper()
	before := r.calls.of("register")
	f()
	r.w.until("the next round is waited for", r.w.clock.HasWaiters) // it may have looked whether one is wanted
	if r.calls.of("register") != before {
		r.w.t.Fatal("a round was made")
	}
}
