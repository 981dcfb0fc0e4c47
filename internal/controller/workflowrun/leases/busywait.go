// SPDX-License-Identifier: Apache-2.0

package leases

import (
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

const (
	// leastBusyPatience is how long a busy lock is waited for at least before its run says so: a
	// busy lock is ordinary.
	leastBusyPatience = time.Second
	// renewedBy is how much later a lock ends when it was renewed, and not only looked at again.
	renewedBy = time.Second
	// busyPause is how long a lock that was found busy is not tried again for results that come: of
	// a thousand, each would make a pass for nothing.
	busyPause = 100 * time.Millisecond
)

// busyWait is what a pass learns of a lock that its run waits for. Status says so once it is
// overdue: then the holder is gone, as a rule, and cannot say it. A holder that shows life, because
// it renews its lock or writes the run, is left alone for half a TTL after that.
type busyWait struct {
	since      time.Time     // when it was first found busy; zero: it is not waited for
	last       time.Time     // and when last
	version    string        // resourceVersion of the run after the last look
	generation int64         // of the run, likewise
	owner      lockmgr.Owner // as of the last sign of life
	life       time.Time     // the last sign of life; zero: there was none
}

// look notes that the lock was found busy.
func (b *busyWait) look(run *v1alpha1.WorkflowRun, owner lockmgr.Owner, now time.Time) {
	if b.since.IsZero() {
		*b = busyWait{since: now, last: now, owner: owner}
		return
	}
	b.last = now
	wrote := b.version != run.ResourceVersion && b.generation == run.Generation
	renewed := owner.Token != b.owner.Token || owner.Ends.Sub(b.owner.Ends) > renewedBy
	if wrote || (renewed && b.owner.Token != "") {
		b.life = now
	}
	if renewed {
		b.owner = owner
	}
}

// looked notes the run as it is after a look: what this process wrote itself is no sign of life.
func (b *busyWait) looked(run *v1alpha1.WorkflowRun) {
	b.version, b.generation = run.ResourceVersion, run.Generation
}

// overdueAt is from when on status says that the lock is waited for.
func (b *busyWait) overdueAt(p policy.RunLock) time.Time {
	patience := max(p.Wait.Budget, leastBusyPatience)
	if b.life.IsZero() {
		return b.since.Add(patience)
	}
	return b.life.Add(max(patience, p.TTL/2))
}

// notBefore is when the lock is to be tried again, if its run is still what it was after the last
// look; zero: it was another since, or the lock is not waited for.
func (b *busyWait) notBefore(run *v1alpha1.WorkflowRun, retry policy.BusyRetry) time.Time {
	if b.since.IsZero() || b.version != run.ResourceVersion {
		return time.Time{}
	}
	return b.last.Add(min(busyPause, retry.Delay/2))
}

// text says who holds the lock and who waits for it, and, after the separator, what is
// of this moment.
func (b *busyWait) text(run *v1alpha1.WorkflowRun, owner lockmgr.Owner, waiter string, retry policy.BusyRetry) string {
	text := fmt.Sprintf("The run lock is held by %s; %s waits for it since %s", holderText(run.Status, owner), waiter, clockTime(b.since))
	switch {
	case owner.Token == "":
	case owner.Ends.IsZero():
		text += fmt.Sprintf("; it has no TTL, so it does not end by itself: if nobody works on the run, delete the key {run:%s}:lock in Redis", run.UID)
	default:
		text += "; if its holder is gone, it ends at " + clockTime(owner.Ends) + " at the latest"
	}
	return text + "; it is tried again every " + retry.String()
}

// holderText names the holder of a lock, as far as status knows it.
func holderText(st *v1alpha1.WorkflowRunStatus, owner lockmgr.Owner) string {
	last := &v1alpha1.RunLockStatus{}
	if st != nil && st.Lock != nil {
		last = st.Lock
	}
	switch {
	case owner.Token == "":
		return "another process"
	case owner.Token == last.LeaseID && last.AcquiredAt != nil:
		return last.Holder + " since " + clockTime(last.AcquiredAt.Time)
	case owner.Token == last.LeaseID, lockmgr.SameProcess(owner.Token, last.LeaseID):
		return last.Holder
	case !lockmgr.SameProcess(owner.Token, owner.Token):
		return "a key that no operator wrote"
	default:
		return "a process that did not write the run before"
	}
}

func clockTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
