// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// options is a cache that notes how it is read.
type options struct {
	client.Client // none: nothing else may be asked
	of            []client.GetOption
}

func (o *options) Get(_ context.Context, _ client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	into.SetUID("u")
	o.of = opts
	return nil
}

// A run may have 1.5 MiB, and each that is woken is read from the cache.
//
// mutation: a read of the cache with a copy makes this fail.
func TestWhoIsWokenIsReadWithoutACopy(t *testing.T) {
	cache := &options{}
	c := &Controller{client: cache}
	there, err := c.there(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, "u")
	if err != nil || !there || !slices.Contains(cache.of, client.GetOption(client.UnsafeDisableDeepCopy)) {
		t.Errorf("there: %t, %v; read with %v", there, err, cache.of)
	}
}

// A slow process was told that a run is next. Meanwhile the run got its lock by a pass of its own,
// began a child, and was cancelled: the lock is kept while the child cleans up.
//
// mutation: wakeAll that takes all that a run has makes this fail.
func TestWhoIsWokenTooLateKeepsItsLockForAChildAtItsCleanUp(t *testing.T) {
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	child, holder, next := s.run("child", nil), s.run("holder", nil), s.run("next", nil)
	r.takes(holder, lock, store.LocksHeld)
	r.takes(next, lock, store.LocksWaiting)
	now := metav1.NewTime(s.clock.Now())
	holder.Status = &v1alpha1.WorkflowRunStatus{CompletedAt: &now, Steps: []v1alpha1.StepStatus{
		{Name: "a", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: child.Name, UID: string(child.UID)}},
	}}
	must(t, s.client.Status().Update(t.Context(), holder))
	must(t, r.wakeAll(t.Context(), []store.Wake{{Ticket: string(holder.UID), Run: s.ns + "/holder"}}))
	if r.wakes(next) {
		t.Error("the next one is woken while the clean-up is under way")
	}
	r.takes(next, lock, store.LocksWaiting)
}

// counted counts reads, and the items of lists. All are of one goroutine.
type counted struct {
	client.Reader
	gets, lists, items int
}

func (c *counted) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	err := c.Reader.List(ctx, into, opts...)
	c.lists, c.items = c.lists+1, c.items+meta.LenList(into)
	return err
}

func (c *counted) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	c.gets++
	return c.Reader.Get(ctx, key, into, opts...)
}

// A tenant deleted hundreds of runs that waited. The end of one run does not look at all of them:
// it asks for a resync, which looks at those that are left, or finds them with one list if those
// are very many, too.
//
// mutations: wakeAll without a bound, or without the question for a resync, makes this fail, as
// does one that leaves places of who is gone, and a resync that waits until they are unknown for a
// while, or that looks at each of very many.
func TestWhereVeryManyAreGoneTheResyncWakesWhoIsNext(t *testing.T) {
	for name, gone := range map[string]int{"some are left": mostLooks + 20, "very many are left": 3 * mostLooks} {
		t.Run(name, func(t *testing.T) { resyncWakesBehind(t, gone) })
	}
}

// resyncWakesBehind has so many wait for a lock that are gone, and one behind them that is not.
func resyncWakesBehind(t *testing.T, gone int) {
	t.Helper()
	s := newSite(t)
	r, lock := s.replica(), "mutex:"+s.ns+"/m"
	must(t, r.Resync(t.Context()))
	holder, last := s.run("holder", nil), s.run("last", nil)
	r.takes(holder, lock, store.LocksHeld)
	for i := range gone {
		id := fmt.Sprintf("ghost-%03d", i)
		ghost := store.Ticket{ID: id, Run: s.ns + "/" + id, Tree: s.ns + "/" + id, Version: "1", Priority: 9}
		_, err := r.store.TakeLocks(t.Context(), ghost, []store.Want{{Name: lock, Permits: 1, Limit: 1, Longest: 999}})
		must(t, err)
	}
	r.takes(last, lock, store.LocksWaiting)
	live := &counted{Reader: r.live}
	r.live = live
	r.kicks.Begin()
	must(t, r.Drop(t.Context(), store.Dropping{Ticket: string(holder.UID)}))
	if live.gets > mostLooks {
		t.Errorf("%d runs are looked at", live.gets)
	}
	if r.wakes(last) || len(r.kicks.News()) != 1 {
		t.Error("no resync is asked for")
	}
	live.gets = 0
	must(t, r.Resync(t.Context()))
	if live.gets >= mostLooks {
		t.Errorf("the resync looks at %d runs", live.gets)
	}
	if !r.wakes(last) {
		t.Error("the resync does not wake who is next")
	}
	r.takes(last, lock, store.LocksHeld)
}

// A semaphore with many permits may name very many at once.
//
// mutation: wakeAll that looks at all whom one answer names.
func TestOfManyWhoAreNamedAtOnceSoManyAreLookedAt(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	live := &counted{Reader: r.live}
	r.live = live
	r.kicks.Begin()
	var next []store.Wake
	for i := range mostLooks + 50 {
		id := fmt.Sprintf("ghost-%03d", i)
		next = append(next, store.Wake{Ticket: id, Run: s.ns + "/" + id})
	}
	must(t, r.wakeAll(t.Context(), next))
	if live.gets != mostLooks || len(r.kicks.News()) != 1 {
		t.Errorf("%d runs are looked at, and %d resyncs asked for", live.gets, len(r.kicks.News()))
	}
}

// journal is a cache of one run that notes whom it has cancelled.
type journal struct {
	client.Client // none: nothing else may be asked
	run           *v1alpha1.WorkflowRun
	did           []string
	refuses       error // what each cancel is answered
}

func (j *journal) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	j.run.DeepCopyInto(into.(*v1alpha1.WorkflowRun)) //nolint:errcheck,forcetypeassert // nothing else is read
	return nil
}

func (j *journal) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	j.did = append(j.did, "cancel")
	return j.refuses
}

// The script names who holds a lock, and the step may end before that is followed.
//
// mutations: cancel that does not look at the part, and follow that wakes first, make this fail.
func TestARunIsNotCancelledForAStepThatIsOver(t *testing.T) {
	for phase, want := range map[v1alpha1.StepPhase][]string{
		v1alpha1.StepSucceeded: {"wake"},
		v1alpha1.StepRunning:   {"cancel", "wake"},
	} {
		t.Run(string(phase), func(t *testing.T) {
			run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid"}}
			run.Status = &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{Name: "a", Phase: phase}, {Name: "b", Phase: v1alpha1.StepRunning}}}
			cache := &journal{run: run}
			c := New(Options{Client: cache, Live: cache, Wake: func(types.NamespacedName) { cache.did = append(cache.did, "wake") }})
			c.follow(t.Context(), "ns/other", store.LocksAnswer{
				Lock: "gpus", Cancel: []store.Cancel{{Wake: store.Wake{Ticket: "uid/a", Run: "ns/r"}}}, Wake: []store.Wake{{Ticket: "uid/b", Run: "ns/r"}},
			})
			if !slices.Equal(cache.did, want) {
				t.Errorf("%v, want %v", cache.did, want)
			}
		})
	}
}

// One that waits for two locks has the holders of both cancelled. Each is told of the lock that it
// holds itself.
//
// mutation: follow that tells of the lock that is waited for first.
func TestWhoIsCancelledIsToldForWhichOfItsLocks(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	for _, name := range []string{"a", "b"} {
		s.semaphore(s.ns+name, 1, v1alpha1.OnBusyCancelOldest)
	}
	must(t, r.Resync(t.Context()))
	a, b := s.ns+"a/k", s.ns+"b/k"
	r.takes(s.run("first", nil), a, store.LocksHeld)
	r.takes(s.run("second", nil), b, store.LocksHeld)
	if _, err := r.Take(t.Context(), s.run("other", nil), "", []Request{{Name: b, Permits: 1}, {Name: a, Permits: 1}}); err != nil {
		t.Fatal(err)
	}
	for name, lock := range map[string]string{"first": a, "second": b} {
		now := s.get(name)
		if got, want := now.Annotations[AnnotationCancelledFor], lock+" "+s.ns+"/other"; got != want || now.Spec.Shutdown != v1alpha1.ShutdownCancel {
			t.Errorf("%s: %q, shutdown %q, want %q", name, got, now.Spec.Shutdown, want)
		}
	}
}

// While one of the holders is at its clean-up, or cannot be cancelled, the end of the others is of
// no use. Somebody may have taken the other lock since its holder was cancelled.
//
// mutations: cancelAll that goes on behind a run that is ending, that has ended and may keep its
// lock for a child run at its clean-up, or that needs a newer operator.
func TestNobodyIsCancelledBesideWhoKeepsTheOtherRunWaiting(t *testing.T) {
	ending, version := v1alpha1.ShutdownCancel, v1alpha1.WriterVersion+1
	for name, change := range map[string]func(*site, *v1alpha1.WorkflowRun){
		"it is ending": func(s *site, run *v1alpha1.WorkflowRun) {
			run.Spec.Shutdown = ending
			must(t, s.client.Update(t.Context(), run))
		},
		"it has ended": func(s *site, run *v1alpha1.WorkflowRun) {
			now := metav1.Now()
			run.Status = &v1alpha1.WorkflowRunStatus{CompletedAt: &now}
			must(t, s.client.Status().Update(t.Context(), run))
		},
		"it needs a newer operator": func(s *site, run *v1alpha1.WorkflowRun) { s.needsNewer(run, version) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r := s.replica()
			for _, name := range []string{"a", "b"} {
				s.semaphore(s.ns+name, 1, v1alpha1.OnBusyCancelOldest)
			}
			must(t, r.Resync(t.Context()))
			a, b := s.ns+"a/k", s.ns+"b/k"
			first := s.run("first", nil)
			r.takes(first, b, store.LocksHeld)
			r.takes(s.run("second", nil), a, store.LocksHeld)
			change(s, first)
			if _, err := r.Take(t.Context(), s.run("other", nil), "", []Request{{Name: a, Permits: 1}, {Name: b, Permits: 1}}); err != nil {
				t.Fatal(err)
			}
			if now := s.get("second"); now.Spec.Shutdown != "" {
				t.Errorf("it is cancelled: %v", now.Annotations)
			}
		})
	}
}

// refusing is a client by which the run "first" may not be changed.
type refusing struct {
	client.Client
	silent bool // a dry run does not find out
}

func (r refusing) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	all := &client.PatchOptions{}
	dry := len(all.ApplyOptions(opts).DryRun) > 0
	if o.GetName() == "first" && (!dry || !r.silent) {
		return apierrors.NewRequestEntityTooLargeError("it has no room")
	}
	return r.Client.Patch(ctx, o, patch, opts...)
}

// One of the holders may not be changed. The other run cannot begin before that one has ended by
// itself, so the end of the others would be of no use. The API server tells by a dry run, but not
// of room in etcd: who has the least there is asked first.
//
// mutations: cancelAll without its dry runs, that writes where one was refused, that writes in the
// order of the locks, or that goes on behind one that is refused.
func TestNobodyIsCancelledBesideWhoMayNotBeChanged(t *testing.T) {
	for name, silent := range map[string]bool{"as a dry run says": false, "as etcd has no room": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			r := s.replica()
			var requests []Request
			for _, name := range []string{"a", "b", "c"} {
				s.semaphore(s.ns+name, 1, v1alpha1.OnBusyCancelOldest)
				requests = append(requests, Request{Name: s.ns + name + "/k", Permits: 1})
			}
			must(t, r.Resync(t.Context()))
			var large map[string]string
			if silent {
				large = map[string]string{"large": strings.Repeat("x", 1000)}
			}
			r.takes(s.run("second", nil), requests[0].Name, store.LocksHeld)
			r.takes(s.run("first", large), requests[1].Name, store.LocksHeld)
			r.takes(s.run("third", nil), requests[2].Name, store.LocksHeld)
			cache := r.client
			r.client = refusing{cache, silent}
			other := s.run("other", nil)
			asks := func() {
				if _, err := r.Take(t.Context(), other, "", requests); err != nil {
					t.Fatal(err)
				}
			}
			asks()
			for _, name := range []string{"second", "third"} {
				if now := s.get(name); now.Spec.Shutdown != "" {
					t.Errorf("%s is cancelled: %v", name, now.Annotations)
				}
			}
			r.client = cache // somebody mends the policy
			asks()
			for _, name := range []string{"first", "second", "third"} {
				if now := s.get(name); now.Spec.Shutdown != v1alpha1.ShutdownCancel {
					t.Errorf("%s is not cancelled", name)
				}
			}
		})
	}
}

// A run that may not be changed, by a policy or as it has no room left, would have all locks looked
// at each second, for as long as another one waits for it. The resync that is due
// asks again anyway.
//
// mutations: cancel that hands on the second refusal, and one that hands on no error at all;
// Refused that goes by the reason.
func TestACancelThatIsRefusedAsksForNoResync(t *testing.T) {
	kind := v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource()
	for name, one := range map[string]struct {
		err  error
		asks int
	}{
		"a policy": {apierrors.NewForbidden(kind, "r", errors.New("legal hold")), 0},
		"a webhook that gives no reason": {
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "admission webhook denied the request"}}, 0,
		},
		"a webhook with the code of a conflict":         {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 409, Message: "denied"}}, 0},
		"a webhook with the code of a run that is gone": {&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 404, Message: "denied"}}, 0},
		"no room":             {apierrors.NewRequestEntityTooLargeError("limit is 3145728"), 0},
		"an API that is away": {apierrors.NewServiceUnavailable("away"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache := &journal{run: &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r", UID: "uid"}}, refuses: one.err}
			said := 0
			log := funcr.New(func(string, string) { said++ }, funcr.Options{})
			c := New(Options{Client: cache, Live: cache, Log: log})
			for range 2 {
				c.follow(t.Context(), "ns/other", store.LocksAnswer{Lock: "gpus", Cancel: []store.Cancel{{Wake: store.Wake{Ticket: "uid", Run: "ns/r"}}}})
			}
			if asks := len(c.kicks.News()); asks != one.asks || one.asks == 0 && said != 1 {
				t.Errorf("%d resyncs are asked for, and it is said %d times", asks, said)
			}
		})
	}
}
