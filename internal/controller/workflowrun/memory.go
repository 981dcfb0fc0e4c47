package workflowrun

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// memory is what this process knows of one run beyond what the API server stores. Losing it (a crash) costs look-ups, never
// correctness. It is used by one pass at a time: the workqueue never runs two passes of a run at once.
type memory struct {
	uid types.UID
	// last is the run as this process last wrote it or read it live; the cache may lag behind it.
	last *v1alpha1.WorkflowRun
	// published are the attempts in flight which this process knew to be with NATS, with how often NATS had lost data before that was
	// found out: after another loss nobody knows it any more. Pruned to those in status.
	published map[protocol.JobID]uint64
	// untold are attempts whose publish failed, so that their event waits until it is made up for. Pruned like published.
	untold map[protocol.JobID]bool
	// writer is the lease under which this process last wrote the run. While status shows it nobody else has written since. "": none.
	writer string
	// floor is the highest fence of others that NATS has told of; a lease at or below it could dispatch nothing.
	floor int64
	// unfencedSince is when the first write as a new holder was first put off because NATS could not be told; zero: it was not.
	unfencedSince time.Time
	// withdrawals are jobs still to be taken back from NATS; entries go when that was done.
	withdrawals []lifecycle.Withdrawal
	// doubt is a write of which nobody knows whether it took effect; nil: none.
	doubt *doubt
	// lastWrite paces writes.
	lastWrite pacing.LastWrite
	// lastWriteBytes is the size of the object in the last write that was wanted.
	lastWriteBytes int
	// lostLease is the reason why this process lost its last lease of the run, until status tells it.
	lostLease string
	// busy is about the lock that the run waits for.
	busy busyWait
	// busyRetries is how often it was tried again since it was first found busy.
	busyRetries int
	// leaselessSince is up to when metrics know how long the run has wanted a lease again after it lost one; zero: it has one, or wants none.
	leaselessSince time.Time
	// inHand is set once this process has looked after the run: it does what is due, and no lock keeps it from it.
	inHand bool
	// slot is what this process has got of the run's quota.
	slot slots.State
	// children is what became of the creation of child runs.
	children children.State
	// outputs is what was found out about outputs in the object store for the results that wait, without their bytes.
	outputs lifecycle.Payloads
	// asking is about results that were not delivered, or given back, while a time-out is due.
	asking asking
	// atOnce bounds the results in one write after one with several was refused; 0: no bound. It is halved until a result is
	// refused alone (blamed), and ends with the next write that is taken after that.
	atOnce int
	blamed bool
	// toldNewer is the version of operators that the run needs, once people were told that this one leaves it alone.
	toldNewer int32
	// full is set while the API server has no room for the run's status.
	full *full
}

// doubt is what is owed if a write took effect whose answer was lost.
type doubt struct {
	on       string // resourceVersion that was written to: while the run has it, nothing took effect
	withdraw []lifecycle.Withdrawal
}

// doubtful notes that a write to a resourceVersion may or may not have taken effect, as may have earlier ones to the same.
func (m *memory) doubtful(on string, withdraw []lifecycle.Withdrawal) {
	if m.doubt != nil && m.doubt.on == on {
		withdraw = append(m.doubt.withdraw, withdraw...)
	}
	m.doubt = &doubt{on: on, withdraw: withdraw}
}

// resolve ends the doubt about a write once the run is not any more what it was written to. If it was not that write which
// changed the run, too much is withdrawn: only what is not in flight any more, which does no harm.
func (m *memory) resolve(run *v1alpha1.WorkflowRun) {
	if m.doubt == nil || m.doubt.on == run.ResourceVersion {
		return
	}
	inFlight := lifecycle.InFlight(run)
	for _, w := range m.doubt.withdraw {
		if !slices.Contains(inFlight, w.ID) {
			m.withdrawals = append(m.withdrawals, w)
		}
	}
	m.doubt = nil
}

// unpublished lists the attempts which are in status and not known to be with NATS, which has lost data so many times. Those whose
// answer is a dead letter have nothing there to look for.
func (m *memory) unpublished(run *v1alpha1.WorkflowRun, losses uint64) []protocol.JobID {
	var ids []protocol.JobID
	for _, id := range lifecycle.Unanswered(run) {
		if at, ok := m.published[id]; !ok || at != losses {
			ids = append(ids, id)
		}
	}
	return ids
}

// prune forgets published attempts that are no longer in flight.
func (m *memory) prune(run *v1alpha1.WorkflowRun) {
	inFlight := lifecycle.InFlight(run)
	maps.DeleteFunc(m.untold, func(id protocol.JobID, _ bool) bool { return !slices.Contains(inFlight, id) })
	if len(m.published) <= len(inFlight) {
		return
	}
	kept := make(map[protocol.JobID]uint64, len(inFlight))
	for _, id := range inFlight {
		if at, ok := m.published[id]; ok {
			kept[id] = at
		}
	}
	m.published = kept
}

// memories holds the memory of each run this process works on: at most one entry per existing run.
type memories struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*memory
}

func newMemories() *memories {
	return &memories{byKey: map[types.NamespacedName]*memory{}}
}

// of returns the memory of a run; a run of the same name with another UID starts afresh.
func (ms *memories) of(key types.NamespacedName, uid types.UID) *memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m, ok := ms.byKey[key]
	if !ok || m.uid != uid {
		m = &memory{uid: uid, published: map[protocol.JobID]uint64{}, untold: map[protocol.JobID]bool{}}
		ms.byKey[key] = m
	}
	return m
}

// peek returns the memory of a run, or nil.
func (ms *memories) peek(key types.NamespacedName) *memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.byKey[key]
}

func (ms *memories) forget(key types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.byKey, key)
}
