// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

// Lock is a lock across runs: a key of a semaphore, or a mutex.
type Lock struct {
	Lock string `json:"lock"` // "gpu-pool/eu", "mutex:team-a/deploy"; "gpu-pool" of a semaphore that nobody uses
	// Permits is how many there are; absent: the Semaphore is gone, or may not be read.
	Permits    *int32             `json:"permits,omitempty"`
	OnBusy     v1alpha1.OnBusy    `json:"onBusy,omitempty"`
	Order      v1alpha1.LockOrder `json:"order,omitempty"`
	Rate       *v1alpha1.LockRate `json:"rate,omitempty"`       // how many may begin in a period
	Held       int32              `json:"held"`                 // permits, by statuses of runs: untold and hidden are beside it
	Waiting    int                `json:"waiting"`              // runs and steps
	OldestWait *time.Time         `json:"oldestWait,omitempty"` // since when
	// Hidden is what runs hold and wait for that the reader may not see, at most half a minute ago.
	Hidden  *Hidden      `json:"hidden,omitempty"`
	Untold  *Untold      `json:"untold,omitempty"`
	Holders []LockHolder `json:"holders,omitempty"` // the oldest first; as many as were asked for
	Waiters []LockWaiter `json:"waiters,omitempty"` // in order; likewise
	Help    []string     `json:"help,omitempty"`    // what to know of it, and what a user may do

	semaphore *v1alpha1.Semaphore
	listed    bool // by the status of its Semaphore
	guessed   int  // of those that wait, where it is not known where the run at the top stands
}

// LockHolder is a run, or a step, that holds a lock.
type LockHolder struct {
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Step      string     `json:"step,omitempty"` // absent: spec.locks of the run
	Item      *int32     `json:"item,omitempty"` // of a step with forEach; absent: the locks of the step itself
	Permits   int32      `json:"permits"`
	Fence     int64      `json:"fence"`
	Since     *time.Time `json:"since,omitempty"` // absent: not known
	Doing     string     `json:"doing"`           // the reason of its run, or the phase of the step

	run *v1alpha1.WorkflowRun
}

// LockWaiter is a run, or a step, that waits for a lock.
type LockWaiter struct {
	Position  int        `json:"position"` // from 1
	Namespace string     `json:"namespace"`
	Name      string     `json:"name"`
	Step      string     `json:"step,omitempty"`
	Item      *int32     `json:"item,omitempty"`
	Permits   int32      `json:"permits,omitempty"` // absent: not known
	Since     time.Time  `json:"since"`
	Until     *time.Time `json:"until,omitempty"` // when it ends as LockQueueTimeout; absent: never
	Why       string     `json:"why"`

	run     *v1alpha1.WorkflowRun
	stands  standing
	wants   []want
	guessed bool // what it asks for is not known but for this lock
}

// want is a lock that a run or a step asks for.
type want struct {
	lock    string
	permits int32 // 0: not known
}

// LockSight is what was read to show locks.
type LockSight struct {
	Runs       []v1alpha1.WorkflowRun // that are under way, with the steps of their Workflow where these are known
	Semaphores []v1alpha1.Semaphore   // nil: they may not be read
	Whole      bool                   // Runs are those of all namespaces
	Now        time.Time
	// Outlines says that Runs lack what expressions are about, so that none of them is evaluated.
	Outlines bool
	// Bodies are those of Runs that are whole nevertheless, by UID.
	Bodies map[types.UID]bool
	// Run is one that is known as a whole, in the place of its own outline; nil: there is none.
	Run *v1alpha1.WorkflowRun
	// Tops are the runs at the top, of child runs that wait, which are not among Runs.
	Tops Tops
}

// runs are those that are looked at.
func (s *LockSight) runs() iter.Seq[*v1alpha1.WorkflowRun] {
	return func(yield func(*v1alpha1.WorkflowRun) bool) {
		for i := range s.Runs {
			if run := &s.Runs[i]; (s.Run == nil || run.UID != s.Run.UID) && !yield(run) {
				return
			}
		}
		if s.Run != nil {
			yield(s.Run)
		}
	}
}

// tops are the runs whose place in line child runs may have.
func (s *LockSight) tops() iter.Seq[*v1alpha1.WorkflowRun] {
	return func(yield func(*v1alpha1.WorkflowRun) bool) {
		for i := range s.Tops.Ended {
			if !yield(&s.Tops.Ended[i]) {
				return
			}
		}
		s.runs()(yield)
	}
}

// Locks are the locks across runs that are held or waited for, and the semaphores that nobody uses:
// those for which the most wait first. Positions are those of the queue: by priority, then age, of
// the run at the top.
func Locks(s LockSight) []Lock {
	t := table{LockSight: s, all: map[string]*Lock{}, standings: standingsOf(s.tops())}
	for run := range s.runs() {
		t.holds(run)
		t.waits(run)
	}
	for i := range s.Semaphores {
		t.semaphore(&s.Semaphores[i])
	}
	for _, l := range t.all {
		t.settle(l)
	}
	for _, l := range t.all { // each may tell of another
		t.explain(l)
	}
	return slices.SortedFunc(func(yield func(Lock) bool) {
		for _, l := range t.all {
			if !yield(*l) {
				return
			}
		}
	}, func(a, b Lock) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held, a.Held), cmp.Compare(a.Lock, b.Lock))
	})
}

// table collects locks.
type table struct {
	LockSight
	all     map[string]*Lock
	decided int // runs whose expressions were looked at
	standings
}

func (t *table) of(lock string) *Lock {
	if t.all[lock] == nil {
		t.all[lock] = &Lock{Lock: lock}
	}
	return t.all[lock]
}

// holds enters what a run and its steps have.
func (t *table) holds(run *v1alpha1.WorkflowRun) {
	st := statusOf(run)
	doing := "Pending"
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		doing = c.Reason
	}
	enter := func(step string, item *int32, doing string, since *time.Time, held []v1alpha1.LockHold) {
		for _, h := range held {
			l := t.of(h.Name)
			l.Held += h.Permits
			l.Holders = append(l.Holders, LockHolder{
				Namespace: run.Namespace, Name: run.Name, Step: step, Item: item, Permits: h.Permits, Fence: h.Fence,
				Since: cmp.Or(since, t.heldSince(run, h.Fence)), Doing: doing, run: run,
			})
		}
	}
	if st.Admission != nil {
		enter("", nil, doing, secondTime(st.Admission.AdmittedAt), st.Locks)
	}
	for i := range st.Steps {
		s := &st.Steps[i]
		enter(s.Name, nil, string(s.Phase), nil, s.Locks)
		for _, l := range itemLocks(s) {
			enter(s.Name, &l.Item, itemPhase(s, l.Item), nil, l.Locks)
		}
	}
}

// heldSince is when a fence was given: it is the milliseconds of Redis' clock, unless fences were
// ahead of that. nil: they were.
func (t *table) heldSince(run *v1alpha1.WorkflowRun, fence int64) *time.Time {
	at := time.UnixMilli(fence)
	if at.Before(run.CreationTimestamp.Time) || at.After(t.Now.Add(time.Minute)) {
		return nil
	}
	return utc(at)
}

// waits enters what a run and its steps wait for.
func (t *table) waits(run *v1alpha1.WorkflowRun) {
	st := statusOf(run)
	asks := sync.OnceValue(func() map[string][]want { return t.asks(run) })
	enter := func(step string, item *int32, w *v1alpha1.LocksWait, requests []v1alpha1.LockRequest) {
		if w == nil {
			return
		}
		var wants []want
		if t.unclear(run, requests) {
			wants = asks()[partName(step, item)]
		}
		if !slices.ContainsFunc(wants, func(x want) bool { return x.lock == w.Lock }) {
			wants = wantsOf(run.Namespace, w.Lock, requests)
		}
		for _, x := range wants {
			l := t.of(x.lock)
			l.Waiters = append(l.Waiters, LockWaiter{
				Namespace: run.Namespace, Name: run.Name, Step: step, Item: item, Permits: x.permits, Since: w.StartedAt.UTC(), run: run, wants: wants, guessed: len(requests) == 0,
			})
		}
	}
	enter("", nil, lockWait(st), run.Spec.Locks)
	for i := range st.Steps {
		s := &st.Steps[i]
		if s.LockWait != nil {
			of, _ := requestsOf(run, s.Name)
			enter(s.Name, nil, s.LockWait, of)
		}
		for _, l := range itemLocks(s) {
			_, of := requestsOf(run, s.Name)
			enter(s.Name, &l.Item, l.LockWait, of)
		}
	}
}

// maxAsked bounds the runs whose expressions are evaluated for one answer.
const maxAsked = 1000

// unclear says whether a part of a run asks for several locks, of which some are named by
// expressions: status, which has one, does not say which these are.
func (t *table) unclear(run *v1alpha1.WorkflowRun, requests []v1alpha1.LockRequest) bool {
	return byExpressions(requests) && (!t.Outlines || run == t.Run || t.Bodies[run.UID])
}

// asks are the locks that the operator would ask for now, by part of the run; nil: they cannot
// be told.
func (t *table) asks(run *v1alpha1.WorkflowRun) map[string][]want {
	if t.decided++; t.decided > maxAsked {
		return nil
	}
	wide := *run // else none asks where there is no place
	wide.Spec.MaxParallelSteps = bounds.MaxSteps
	in := lifecycle.Input{Run: &wide, Now: t.Now, Lock: lifecycle.Lock{State: lifecycle.LockHeld}}
	in.Tenant, in.Permits = lifecycle.Tenant{Name: statusOf(run).Tenant, Allowed: true}, lifecycle.Permits{AnyClass: true, AnyTopic: true}
	in.Gate.State, in.Claim.State = lifecycle.GateOpen, lifecycle.ClaimOurs
	all := map[string][]want{}
	for _, ask := range lifecycle.Decide(in).Needs.Locks {
		for _, w := range ask.Wants {
			all[ask.Part] = append(all[ask.Part], want{lock: w.Name, permits: w.Permits})
		}
	}
	return all
}

// requestsOf are the locks that a step asks for, and each of its items, as far as its run says.
func requestsOf(run *v1alpha1.WorkflowRun, step string) (of, ofItem []v1alpha1.LockRequest) {
	for _, steps := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range steps {
			if s := &steps[i]; s.Name == step {
				if s.ForEach != nil {
					ofItem = s.ForEach.Locks
				}
				return s.Locks, ofItem
			}
		}
	}
	return nil, nil
}

// wantsOf are the locks of requests whose names are known without an expression, and the one that
// status names. Who waits has requests: none are those of a run whose steps are not known.
func wantsOf(namespace, named string, requests []v1alpha1.LockRequest) []want {
	if len(requests) == 0 && !strings.HasPrefix(named, render.MutexPrefix) {
		return []want{{lock: named}}
	}
	all, permits := []want{}, int32(0)
	for _, r := range requests {
		w := want{permits: 1}
		if r.Permits != nil {
			w.permits = *r.Permits
		}
		known := !strings.Contains(r.Mutex+r.Key, "${")
		switch {
		case r.Mutex != "":
			w.lock = render.MutexPrefix + namespace + "/" + r.Mutex
		default:
			w.lock = r.Semaphore + "/" + r.Key
		}
		if known {
			all = append(all, w)
		} else if r.Semaphore != "" && strings.HasPrefix(named, r.Semaphore+"/") {
			permits = max(permits, w.permits)
		}
	}
	if !slices.ContainsFunc(all, func(w want) bool { return w.lock == named }) {
		all = append(all, want{lock: named, permits: max(permits, 1)})
	}
	return all
}

// semaphore enters what a Semaphore says of its keys.
func (t *table) semaphore(sem *v1alpha1.Semaphore) {
	mine, used := sem.Name+"/", false
	if sem.Status != nil {
		for _, k := range sem.Status.Busiest {
			if !t.Whole || k.Held > 0 {
				t.of(mine+k.Key).busy(&k, t.Whole)
			}
			if l := t.all[mine+k.Key]; l != nil {
				l.listed = true
			}
		}
	}
	for name, l := range t.all {
		if strings.HasPrefix(name, mine) {
			l.semaphore, used = sem, true
		}
	}
	if !used {
		t.of(sem.Name).semaphore = sem
	}
}

// settle puts who has a lock and who waits for it in order.
func (t *table) settle(l *Lock) {
	switch sem := l.semaphore; {
	case sem != nil:
		l.Permits, l.OnBusy, l.Order, l.Rate = &sem.Spec.Permits, sem.Spec.OnBusy, sem.Spec.Order, sem.Spec.Rate
	case strings.HasPrefix(l.Lock, render.MutexPrefix):
		l.Permits, l.OnBusy, l.Order = new(int32(1)), v1alpha1.OnBusyQueue, v1alpha1.OrderFirstRunnable
	}
	slices.SortFunc(l.Holders, func(a, b LockHolder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Step, b.Step), compareItems(a.Item, b.Item))
	})
	for i := range l.Waiters {
		l.Waiters[i].stands = t.standings.of(l.Waiters[i].run)
		if root, below := topOf(l.Waiters[i].run); below && t.Tops.Unread[root] {
			l.guessed++
		}
	}
	slices.SortFunc(l.Waiters, func(a, b LockWaiter) int {
		return cmp.Or(a.stands.before(b.stands), inLine(a.run, b.run), a.Since.Compare(b.Since), cmp.Compare(a.Step, b.Step), compareItems(a.Item, b.Item))
	})
	l.Waiting = len(l.Waiters)
	for i := range l.Waiters {
		w := &l.Waiters[i]
		w.Position = i + 1
		l.OldestWait = earlier(l.OldestWait, &w.Since)
		if sem := l.semaphore; sem != nil && sem.Spec.Queue.TTLSeconds != nil {
			w.Until = utc(w.Since.Add(time.Duration(*sem.Spec.Queue.TTLSeconds) * time.Second))
		}
	}
}

// Bounded is a lock with so many holders, and so many that wait, at the most; 0: all.
func (l Lock) Bounded(most int) Lock {
	if most > 0 {
		l.Holders, l.Waiters = l.Holders[:min(most, len(l.Holders))], l.Waiters[:min(most, len(l.Waiters))]
	}
	return l
}
