// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv/onebyone"
)

const (
	// patience ends a hung test; it is no expectation about speed.
	patience = 60 * time.Second
	polling  = 2 * time.Millisecond
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a namespace, and a Redis of its own.
type site struct {
	t      *testing.T
	client client.WithWatch
	ns     string
	server *redistest.Server
	clock  *clocktesting.FakeClock
}

func newSite(t *testing.T) *site {
	t.Helper()
	c, ns := apiServer.Namespace(t, "locks-")
	must(t, c.DeleteAllOf(t.Context(), &v1alpha1.Semaphore{}))
	return &site{t: t, client: c, ns: ns, server: redistest.Start(t), clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

// replica is a process. Its cache is the API server itself.
type replica struct {
	*Controller
	s     *site
	redis *redis.Client
	mu    sync.Mutex
	awake []string // names of runs that were woken
}

func (s *site) replica() *replica { s.t.Helper(); return s.replicaOf("") }

// replicaOf is a process of an installation.
func (s *site) replicaOf(installation string) *replica {
	s.t.Helper()
	r := &replica{s: s}
	c := redis.NewClient(&redis.Options{
		Addr: s.server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		DialTimeout: patience, ReadTimeout: patience, WriteTimeout: patience, PoolTimeout: patience, DialerRetries: 1,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	r.redis = c
	r.Controller = New(Options{
		Store: store.New(c, store.Options{Timeout: patience, Installation: installation}), Client: client.NewNamespacedClient(s.client, s.ns), Live: client.NewNamespacedClient(s.client, s.ns),
		Clock: s.clock, Wake: func(run types.NamespacedName) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.awake = append(r.awake, run.Name)
		},
	})
	return r
}

// wakes says whether a run was woken since this was last asked of any.
func (r *replica) wakes(run *v1alpha1.WorkflowRun) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	woken := slices.Contains(r.awake, run.Name)
	r.awake = nil
	return woken
}

// start runs a replica's Start until stop is called, and waits for its first resync.
func (r *replica) start() (stop func()) {
	r.s.t.Helper()
	ctx, end := context.WithCancel(r.s.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Start(ctx) }()
	r.s.until("the next resync is waited for", r.s.clock.HasWaiters)
	stop = sync.OnceFunc(func() {
		end()
		if err := <-done; err != nil {
			r.s.t.Error(err)
		}
	})
	r.s.t.Cleanup(stop)
	return stop
}

func (s *site) until(what string, done func() bool) {
	s.t.Helper()
	err := wait.PollUntilContextTimeout(s.t.Context(), polling, patience, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		s.t.Fatalf("%s: %v", what, err)
	}
}

// run makes one with a mutex.
func (s *site) run(name string, annotations map[string]string) *v1alpha1.WorkflowRun {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name, Annotations: annotations}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	run.Spec.Locks = []v1alpha1.LockRequest{{Mutex: "m"}}
	must(s.t, s.client.Create(s.t.Context(), run))
	return run
}

// takes asks for one permit of a lock, and fails the test unless the answer is what is wanted.
func (r *replica) takes(run *v1alpha1.WorkflowRun, lock, want string) Answer {
	r.s.t.Helper()
	a, err := r.Take(r.s.t.Context(), run, "", []Request{{Name: lock, Permits: 1}})
	if err != nil || a.State != want {
		r.s.t.Fatalf("%s takes %s: %+v, %v; want %s", run.Name, lock, a, err, want)
	}
	return a
}

// Two clusters were given one Redis, and the other one has no such run.
//
// mutation: a store that does not look whose Redis is makes this fail.
func TestAResyncOfAnotherInstallationDropsNoHold(t *testing.T) {
	s := newSite(t)
	ours, lock := s.replicaOf("a"), "mutex:"+s.ns+"/m"
	must(t, ours.Resync(t.Context()))
	ours.takes(s.run("holder", nil), lock, store.LocksHeld)
	other := *s
	_, other.ns = apiServer.Namespace(t, "locks-")
	theirs := other.replicaOf("b")
	err := theirs.Resync(t.Context())
	if _, foreign := errors.AsType[*store.ForeignError](err); !foreign {
		t.Errorf("the other one's resync: %v", err)
	}
	ours.takes(s.run("next", nil), lock, store.LocksWaiting)
}

// Anybody who may create a run may make one whose annotations have no room.
//
// mutation: a mark that only annotates makes this fail: nobody gets a lock any more.
func TestARunThatCannotBeAnnotatedKeepsNoLocksShut(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	full := s.run("full", map[string]string{"x": strings.Repeat("x", 256<<10-1)})
	a := r.takes(full, lock, store.LocksHeld)
	s.server.FlushAll()
	must(t, r.Resync(t.Context()))
	r.takes(s.run("next", nil), lock, store.LocksHeld)
	full.Status = &v1alpha1.WorkflowRunStatus{Locks: []v1alpha1.LockHold{{Name: lock, Permits: 1, Fence: a.Fence}}}
	if err := s.client.Status().Update(t.Context(), full); !apierrors.IsConflict(err) {
		t.Errorf("the grant of before the loss was written: %v", err)
	}
}

// meeting lets patches go on when so many are under way at the same time.
type meeting struct {
	client.Client
	all sync.WaitGroup
}

func (m *meeting) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	m.all.Done()
	met := make(chan struct{})
	go func() {
		m.all.Wait()
		close(met)
	}()
	select {
	case <-met:
		return m.Client.Patch(ctx, o, patch, opts...)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Nobody has a lock before all runs are marked. mutation: a rebuild that marks one run after the
// other makes this fail.
func TestARebuildMarksRunsSideBySide(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	for i := range 4 {
		s.run(fmt.Sprint("run-", i), nil)
	}
	together := &meeting{Client: r.marker.Client}
	together.all.Add(4)
	r.marker.Client = together
	bounded, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	must(t, r.Resync(bounded))
	r.takes(s.get("run-0"), lock, store.LocksHeld)
}

// What a ticket has and status does not say is taken back from such a run, too.
//
// mutation: a mark that only annotates makes this fail.
func TestWhatIsIdleIsTakenBackFromARunThatCannotBeAnnotated(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	r.takes(s.run("full", map[string]string{"x": strings.Repeat("x", 256<<10-1)}), lock, store.LocksHeld)
	must(t, r.Resync(t.Context()))
	next := s.run("next", nil)
	r.takes(next, lock, store.LocksWaiting)
	s.clock.Step(idleTime)
	must(t, r.Resync(t.Context()))
	r.takes(next, lock, store.LocksHeld)
}

// mutation: a Start that does not look while it rests makes this fail.
func TestOneReplicaLearnsWithinSecondsThatAnotherFoundLocksLost(t *testing.T) {
	s := newSite(t)
	r, other, lock := s.replica(), s.replica(), "mutex:"+s.ns+"/m"
	r.start()
	s.server.FlushAll()
	ask := func() error {
		_, err := other.Take(t.Context(), s.get("a"), "", []Request{{Name: lock, Permits: 1}})
		if _, closed := errors.AsType[*store.RebuildingError](err); err != nil && !closed {
			t.Fatal(err)
		}
		return err
	}
	s.run("a", nil)
	if ask() == nil {
		t.Fatal("locks are given while it is not known who has them")
	}
	s.clock.Step(resyncs.LookPause)
	s.until("the locks are open", func() bool { return ask() == nil })
}

// A server comes back that was away while locks were counted anew on another: its data is older
// than what one replica has seen, and open to one that makes resyncs and has not seen that.
//
// mutation: a replica that only tells itself makes this fail.
func TestOlderDataIsClosedForAll(t *testing.T) {
	s := newSite(t)
	lock, admin := "mutex:"+s.ns+"/m", s.server.Client()
	must(t, s.replica().Resync(t.Context()))
	before := map[string]string{}
	for _, key := range admin.Keys(t.Context(), "*").Val() {
		before[key] = admin.Dump(t.Context(), key).Val()
	}
	s.server.FlushAll()
	must(t, s.replica().Resync(t.Context()))
	seen := s.replica()
	seen.takes(s.run("a", nil), lock, store.LocksHeld)
	s.server.FlushAll()
	for key, data := range before {
		must(t, admin.Restore(t.Context(), key, 0, data).Err())
	}
	s.replica().start()
	ask := func() error {
		_, err := seen.Take(t.Context(), s.get("b"), "", []Request{{Name: lock, Permits: 1}})
		return err
	}
	s.run("b", nil)
	if why, closed := errors.AsType[*store.RebuildingError](ask()); !closed || why.Why != store.RebuildOlder {
		t.Fatalf("%v", why)
	}
	s.clock.Step(resyncs.LookPause)
	s.until("the locks are open", func() bool { return ask() == nil })
}

// What one replica showed last is nobody's concern when another makes the resyncs: an alert would
// go on for ever.
//
// mutations: Start that does not forget what it showed, and a report that goes on after its end,
// make this fail.
func TestWhoMakesNoResyncsShowsNoHolds(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	r.metrics = NewMetrics(prometheus.NewPedanticRegistry())
	shows := func(held, waiting float64, oldest int) {
		t.Helper()
		if h, w, n := testutil.ToFloat64(r.metrics.held), testutil.ToFloat64(r.metrics.waiting), testutil.CollectAndCount(r.metrics.oldest); h != held || w != waiting || n != oldest {
			t.Errorf("%v held, %v waiting, %d series of the oldest", h, w, n)
		}
	}
	must(t, r.Resync(t.Context()))
	r.takes(s.run("holds", nil), lock, store.LocksHeld)
	r.takes(s.run("waits", nil), lock, store.LocksWaiting)
	stop := r.start()
	shows(1, 1, 1)
	snapshot, err := r.store.SnapshotLocks(t.Context())
	must(t, err)
	stop()
	shows(0, 0, 0)
	over, end := context.WithCancel(t.Context())
	end()
	if err := r.report(over, &view{}, snapshot); !errors.Is(err, context.Canceled) {
		t.Errorf("a report after the end: %v", err)
	}
	shows(0, 0, 0)
}

func (s *site) get(name string) *v1alpha1.WorkflowRun {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{}
	must(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, run))
	return run
}

// Where no resyncs are made nobody takes the names of semaphores out again: each that is ever made
// would stay. Whoever begins to make resyncs has heard of none, so all of them may have changed.
//
// mutations: SemaphoreChanged that notes always makes this fail, as does a Start that begins with
// nothing, or does not end the notes.
func TestChangesOfSemaphoresAreNotedWhereResyncsAreMade(t *testing.T) {
	s := newSite(t)
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: s.ns}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}
	must(t, s.client.Create(t.Context(), sem))
	r := s.replica()
	must(t, r.Resync(t.Context()))
	r.SemaphoreChanged(sem.Name)
	if len(r.changed) != 0 {
		t.Errorf("noted: %v", r.changed)
	}
	lock := sem.Name + "/"
	r.takes(s.run("holds", nil), lock, store.LocksHeld)
	waits := s.run("waits", nil)
	r.takes(waits, lock, store.LocksWaiting)
	<-r.kicks.Asked()
	must(t, r.Resync(t.Context()))
	if r.wakes(waits) {
		t.Fatal("who waits is woken for nothing")
	}
	stop := r.start()
	if !r.wakes(waits) {
		t.Error("the first resync did not wake who waits")
	}
	s.clock.Step(time.Second) // resyncs are so far apart at least
	r.SemaphoreChanged(sem.Name)
	s.until("who waits is woken", func() bool { return r.wakes(waits) })
	stop()
	r.SemaphoreChanged(sem.Name)
	if len(r.changed) != 0 {
		t.Errorf("noted after the end: %v", r.changed)
	}
}

// What a resync is for is done when it comes to the status of semaphores. Who refuses that would
// have all of it made again each second.
//
// mutation: a settle that returns what a report says makes this fail.
func TestThatAStatusIsRefusedHastensNoResync(t *testing.T) {
	s := newSite(t)
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: s.ns}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}
	must(t, s.client.Create(t.Context(), sem))
	r, lock := s.replica(), sem.Name+"/"
	refused := 0
	r.client = client.NewNamespacedClient(interceptor.NewClient(s.client, interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			refused++
			return apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("semaphores").GroupResource(), sem.Name, nil)
		},
	}), s.ns)
	must(t, r.Resync(t.Context()))
	r.takes(s.run("holds", nil), lock, store.LocksHeld)
	if err := r.Resync(t.Context()); err != nil || refused == 0 {
		t.Errorf("%v, after %d refusals", err, refused)
	}
}

// The cache of a replica that begins has no run yet.
//
// mutation: gone that ends after its first page gives locks of live runs to others.
func TestARunOfALaterPageKeepsItsLocks(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	locks := []string{"mutex:" + s.ns + "/a", "mutex:" + s.ns + "/b", "mutex:" + s.ns + "/c"}
	for _, lock := range locks {
		r.takes(s.run("of-"+lock[len(lock)-1:], nil), lock, store.LocksHeld)
	}
	began := s.replica()
	began.client = interceptor.NewClient(s.client, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return nil },
	})
	began.live = onebyone.From(began.live)
	must(t, began.Resync(t.Context()))
	s.clock.Step(resyncs.UnknownTime)
	must(t, began.Resync(t.Context()))
	next := s.run("next", nil)
	for _, lock := range locks {
		r.takes(next, lock, store.LocksWaiting)
	}
}

// mutation: a rebuild that ends after its first page gives locks that runs of the others hold to a
// second one.
func TestARebuildKeepsTheLocksOfAllPages(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	locks := []string{"mutex:" + s.ns + "/a", "mutex:" + s.ns + "/b", "mutex:" + s.ns + "/c"}
	for _, lock := range locks {
		run := s.run("of-"+lock[len(lock)-1:], nil)
		a := r.takes(run, lock, store.LocksHeld)
		run.Status = &v1alpha1.WorkflowRunStatus{Locks: []v1alpha1.LockHold{{Name: lock, Permits: 1, Fence: a.Fence}}}
		must(t, s.client.Status().Update(t.Context(), run))
	}
	s.server.FlushAll()
	r.live = onebyone.From(r.live)
	must(t, r.rebuild(t.Context())) // a resync would enter what a rebuild left out
	snapshot, err := r.store.SnapshotLocks(t.Context())
	must(t, err)
	if len(snapshot.Holds) != len(locks) {
		t.Errorf("%d locks are held, want %d", len(snapshot.Holds), len(locks))
	}
}

// mutation: gone that lists at the first look makes this fail; so does one that never does.
func TestARunThatWasDeletedAMomentAgoMakesNoLiveList(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	gone, next := s.run("gone", nil), s.run("next", nil)
	r.takes(gone, lock, store.LocksHeld)
	must(t, s.client.Delete(t.Context(), gone))
	live := &counted{Reader: r.live}
	r.live = live
	must(t, r.Resync(t.Context()))
	if live.lists != 0 {
		t.Errorf("%d live lists at the first look", live.lists)
	}
	r.takes(next, lock, store.LocksWaiting)
	s.clock.Step(resyncs.UnknownTime)
	must(t, r.Resync(t.Context()))
	r.takes(next, lock, store.LocksHeld)
}

// mutation: a rebuild that lists without a selector makes this fail.
func TestARebuildReadsNoRunThatHasEnded(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	for i := range 200 {
		over := s.run(fmt.Sprint("over-", i), nil)
		over.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &metav1.Time{Time: s.clock.Now()}}
		must(t, s.client.Status().Update(t.Context(), over))
	}
	holds := s.run("holds", nil)
	a := r.takes(holds, lock, store.LocksHeld)
	holds.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Locks: []v1alpha1.LockHold{{Name: lock, Permits: 1, Fence: a.Fence}}}
	must(t, s.client.Status().Update(t.Context(), holds))
	next := s.run("next", nil)
	s.run("other", nil)
	s.server.FlushAll()
	live := &counted{Reader: r.live}
	r.live = live
	must(t, r.rebuild(t.Context()))
	if live.items != 3 {
		t.Errorf("%d runs were read of 3 that have not ended", live.items)
	}
	r.takes(next, lock, store.LocksWaiting)
}
