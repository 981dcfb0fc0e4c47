// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// pause is how long something of a run is left alone that the API server did not do.
type pause struct {
	tries int
	until time.Time // zero: there was none
}

// next is until when it is left alone after another try: longer each time, but no longer for a run
// that was woken before, which says nothing new.
func (w *pause) next(now time.Time) time.Time {
	if !now.Before(w.until) {
		w.until = now.Add(pacing.NoRoom(w.tries, lookAgain))
		w.tries++
	}
	return w.until
}

// conflicts are the status writes that were refused as conflicts since one was taken.
type conflicts struct {
	all   int
	alone int       // of these, those after which the run was as it had been
	until time.Time // none is tried before
}

// memory is what this process knows of one run beyond what the API server stores. Losing it (a
// crash) costs look-ups, never correctness. It is used by one pass at a time: the workqueue never
// runs two passes of a run at once.
type memory struct {
	uid types.UID
	// last is the run as this process last wrote it or read it live; the cache may lag behind it.
	last *v1alpha1.WorkflowRun
	// What the parts remember of the run.
	lock     leases.State
	jobs     dispatch.State
	slot     slots.State
	holds    holds.State
	children children.State
	asking   results.AskState
	ahead    ahead.State
	// fenceRefused is set once a write refused by the fence was counted for the rollout that the
	// run is in.
	fenceRefused bool
	// withdrawals are jobs still to be taken back from NATS; entries go when that was done.
	withdrawals []lifecycle.Withdrawal
	// failing is why effects fail, as it was told; "": they do not.
	failing string
	// refused is why the API server refuses the status, as people were told; "": it does not.
	refused metav1.StatusReason
	// serverErrors are the writes that were answered with code 500 since one was taken.
	serverErrors int
	conflicts    conflicts
	noRoom       noRoom
	// missing is of a run that the API server says does not exist, since it last gave or took it;
	// undeleted and unnoted are of one that ended: see deleteEnded and noteEdit.
	missing, undeleted, unnoted pause
	// toDesk says that the last pass that rendered any left jobs or child runs to be rendered again
	// at a desk.
	toDesk bool
	// doubt is a write of which it is not known whether it took effect; nil: none.
	doubt *doubt
	// statusWrites and events are what this process wrote of the run, for a metric.
	statusWrites, events int
	// lastWrite paces writes.
	lastWrite pacing.LastWrite
	// lastWriteBytes is the size of the object in the last write that was wanted.
	lastWriteBytes int
	beside         beside
	// outputs is what was found out about outputs in the object store for the results that wait,
	// without their bytes. It holds for as long as NATS has lost data so many times.
	outputs       lifecycle.Payloads
	outputsLosses uint64
	// atOnce bounds the results in one write after one with several was refused; 0: no bound. It
	// is halved until a result is refused alone (blamed), and ends with the next write that is
	// taken after that; or once as many were taken as were refused together (suspects): then none
	// was to blame.
	atOnce, suspects int
	blamed           bool
	// toldNewer is the version of operators that the run needs, once people were told that this one
	// leaves it alone.
	toldNewer int32
	// traced says that the spans were looked after which another process may not have sent.
	traced bool
	// full is set while the API server has no room for the run's status.
	full *full
	// met says that this process has asked itself whether there may be none.
	met bool
	// standoff is set while the API server refuses the status whatever is in it.
	standoff standoff
	// valid is what was validated: see validAs; "": nothing was.
	valid string
}

// newest picks the cache's copy or this process's own, and drops the own one when the cache
// has caught up.
func (m *memory) newest(cached *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	if m.last == nil {
		return cached
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, m.last.ResourceVersion)
	if err == nil && order < 0 {
		return m.last
	}
	m.last = nil
	return cached
}

// doubt is what is owed if a write took effect whose answer was lost.
type doubt struct {
	on       string    // resourceVersion that was written to: while the run has it, nothing took effect
	sent     time.Time // when the last of these writes was given up
	withdraw []lifecycle.Withdrawal
}

// doubtful notes that a write to a resourceVersion may or may not have taken effect, as may have
// earlier ones to the same. It was given up at a time. Each try withdraws what the one before did:
// that is noted once.
func (m *memory) doubtful(on string, sent time.Time, withdraw []lifecycle.Withdrawal) {
	if m.doubt == nil || m.doubt.on != on {
		m.doubt = &doubt{on: on}
	}
	m.doubt.sent = sent
	known := map[protocol.JobID]bool{}
	for _, w := range m.doubt.withdraw {
		known[w.ID] = true
	}
	for _, w := range withdraw {
		if !known[w.ID] {
			m.doubt.withdraw = append(m.doubt.withdraw, w)
		}
	}
}

// resolve ends the doubt about a write once the run is not any more what it was written to. If it
// was not that write which changed the run, too much is withdrawn: only what is not in flight any
// more, which does no harm.
func (m *memory) resolve(run *v1alpha1.WorkflowRun) {
	if m.doubt == nil || m.doubt.on == run.ResourceVersion {
		return
	}
	inFlight := map[protocol.JobID]bool{}
	for _, id := range lifecycle.InFlight(run) {
		inFlight[id] = true
	}
	for _, w := range m.doubt.withdraw {
		if !inFlight[w.ID] {
			m.withdrawals = append(m.withdrawals, w)
		}
	}
	m.doubt = nil
}

// memories holds the memory of each run this process works on: at most one entry per existing run.
type memories struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]*memory
}

// of returns the memory of a run; a run of the same name with another UID starts afresh.
func (ms *memories) of(key types.NamespacedName, uid types.UID) *memory {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m, ok := ms.byKey[key]
	if !ok || m.uid != uid {
		m = &memory{uid: uid}
		if ms.byKey == nil {
			ms.byKey = map[types.NamespacedName]*memory{}
		}
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

// forgetIf forgets the run of a name, if it is the one with that UID.
func (ms *memories) forgetIf(key types.NamespacedName, uid types.UID) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m := ms.byKey[key]; m != nil && m.uid == uid {
		delete(ms.byKey, key)
	}
}

func (ms *memories) forget(key types.NamespacedName) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.byKey, key)
}
