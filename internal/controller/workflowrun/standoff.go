// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// standoff is what this process knows of a run whose status the API server refuses whatever is in
// it.
type standoff struct {
	on    uint64 // what others may edit of the run, in short: what is decided after an edit may be taken
	tries int    // that were refused
	until time.Time
	all   bool // even the status as it is was refused: results wait, too
	cause error
}

// standOff ends a pass whose write was refused, and not for one of its results: an admission policy
// forbids it, say. That may last, for many runs, so each try waits twice as long as the one before.
// Only an edit of the run is tried at once, or a result, if one may help: deadlines wait. Others
// have the slot and the locks meanwhile of a run that is not admitted.
func standOff(ctx context.Context, p *pass, cause error) reconcile.Result {
	tellRefused(p, cause)
	m, now := &p.mem.standoff, p.r.Clock.Now()
	if on := editable(p.run); m.on != on {
		*m = standoff{on: on, all: m.all}
	}
	m.cause = cause
	m.until = now.Add(pacing.NoRoom(m.tries, lookAgain))
	m.tries++
	log.FromContext(ctx).Info("The API server refuses the run's status: it is tried again", "at", m.until, "cause", cause.Error())
	if err := letOthers(ctx, p); err != nil {
		return p.effectsAgain(ctx, err)
	}
	p.notYet = comesAgain(m.until, p.batch.PatienceEnds(resultPatience), now)
	return p.again(p.notYet)
}

// letOthers gives up what a run has that is not admitted and is not written for now: its slot, or
// its place in line, and its locks. A write whose answer was lost may have been taken: the
// run keeps all of it then, until that is known. So it does if it is admitted: it works with
// what it has.
func letOthers(ctx context.Context, p *pass) error {
	if lifecycle.Admitted(p.run) {
		return nil
	}
	if doubtful, err := inDoubt(ctx, p); doubtful || err != nil {
		return err
	}
	return errors.Join(p.r.Slots.GiveUp(ctx, &p.mem.slot, asStored(p, p.run)), p.r.Holds.ReleaseAll(ctx, &p.mem.holds))
}

// doubtTime is after how long a write whose answer was lost is not under way any more: twice the
// time that the API server gives a request by default.
const doubtTime = 2 * time.Minute

// inDoubt says whether a write may have been taken, or may still be, of which nobody knows. Where
// each write is refused since, the run stays what it was written to: if it still is that, live,
// once no write is under way any more, none was taken.
func inDoubt(ctx context.Context, p *pass) (bool, error) {
	m := p.mem
	if m.doubt == nil || p.r.Clock.Now().Before(m.doubt.sent.Add(doubtTime)) {
		return m.doubt != nil, nil
	}
	now := &v1alpha1.WorkflowRun{}
	if err := p.r.Live.Get(ctx, p.key, now); err != nil {
		return true, client.IgnoreNotFound(err) // that it is gone the cache says soon
	}
	if now.UID == m.uid && now.ResourceVersion == m.doubt.on {
		m.doubt = nil
	}
	return m.doubt != nil, nil
}

// comesAgain is when a pass over a run that stands off comes again: when the patience of results
// ends, if any wait, but in a second at the earliest.
func comesAgain(until, patience, now time.Time) time.Time {
	soon := now.Add(actRetryDelay)
	if patience.IsZero() || !patience.Before(soon) {
		return pacing.Earliest(until, patience)
	}
	return pacing.Earliest(until, soon)
}

// standsOff is until when a run is not written whose status was refused; zero: it may be tried.
func standsOff(p *pass) time.Time {
	m := &p.mem.standoff
	if m.tries == 0 || !m.until.After(p.r.Clock.Now()) || p.ahead.Lags() || p.ahead.Closes || (p.batch.Waits() && !m.all) || m.on != editable(p.run) {
		return time.Time{}
	}
	return m.until
}

// standsBy ends a pass over a run of which the API server takes no status, as far as is known.
func standsBy(ctx context.Context, p *pass) (result reconcile.Result, done bool, err error) {
	if result, idle := idles(ctx, p); idle {
		return result, true, nil
	}
	return heldUp(ctx, p)
}

// idles ends a pass over a run that stands off. It does what is left of before and needs no
// status: jobs are withdrawn, results that wait go back to NATS when their patience is over, and
// what it could not give up before is given up. It asks for no slot and no lock, which it could not
// write: others have them meanwhile.
func idles(ctx context.Context, p *pass) (result reconcile.Result, done bool) {
	off := standsOff(p)
	if off.IsZero() {
		return reconcile.Result{}, false
	}
	p.handBack(ctx, p.mem.standoff.cause)
	if err := errors.Join(p.withdraw(ctx), letOthers(ctx, p)); err != nil {
		return p.effectsAgain(ctx, err), true
	}
	p.notYet = comesAgain(off, p.batch.PatienceEnds(resultPatience), p.r.Clock.Now())
	return p.again(p.notYet), true
}

// heldUp ends a pass over a run of which the API server refused even the status as it is, if it
// still does. That is tried before anything else, with each second try: the run asks for no slot
// and no lock that it could not write. With the others, and after an edit, it is what the run would
// be next: a policy may look at what is in a status, and take its end.
func heldUp(ctx context.Context, p *pass) (result reconcile.Result, done bool, err error) {
	if m := &p.mem.standoff; !m.all || m.tries%2 == 0 || m.on != editable(p.run) || !hasAsIs(p) || p.ahead.Closes {
		return reconcile.Result{}, false, nil
	}
	switch answer, err := putUnchanged(ctx, p); {
	case p.desk.InLine():
		return reconcile.Result{}, true, err
	case answer == isRefused || err != nil && outage(err):
		result, err = p.unwritten(ctx, &writeError{err: err, unchanged: true})
		return result, true, err
	}
	p.mem.standoff.all = false
	return reconcile.Result{}, false, nil
}

// suspected says whether several results are in the write, of which it was found out before that
// one is to blame.
func suspected(p *pass) bool { return len(p.batch.Carried()) > 1 && p.mem.suspects > 0 }

// hasAsIs says whether the run, as this process has it, has the status that is stored, and one at
// all.
func hasAsIs(p *pass) bool { return !p.ahead.Lags() && !p.run.Unwritten() }

// asItIs is what the API server says to the status as it is.
type asItIs int

const (
	isTaken asItIs = iota
	isRefused
	isUnknown
)

// refusesUnchanged says whether the API server refuses even the status as it is, so that no result
// is to blame. That is tried before others are tried apart, and before one is blamed.
func refusesUnchanged(ctx context.Context, p *pass, cause error) asItIs {
	var write *writeError
	switch {
	case errors.As(cause, &write) && write.unchanged:
		return isRefused
	case p.mem.standoff.all && !p.asIs:
		return isRefused // as far as the last try has shown: the next one is of that
	case tooLarge(cause) || p.asIs || !hasAsIs(p) || suspected(p):
		return isTaken
	}
	answer, _ := putUnchanged(ctx, p)
	if answer == isRefused {
		p.mem.standoff.all = true
		p.mem.atOnce, p.mem.suspects, p.mem.blamed = 0, 0, false
	}
	return answer
}

// putUnchanged writes the status as it is, in a time of its own, and says whether that is refused
// for what it is. etcd is not asked to store it, but whoever may refuse a status is. It ends with
// the partition. The error is why it was not written.
func putUnchanged(ctx context.Context, p *pass) (answer asItIs, err error) {
	ctx, stop := context.WithTimeout(ctx, passTimeout)
	defer stop()
	defer context.AfterFunc(p.while, stop)() //nolint:contextcheck // that of the partition
	p.asIs = true
	before := p.mem.lastWrite // the write that comes next waits for that one
	tried, err := p.put(ctx, p.run.DeepCopy())
	p.mem.lastWrite = before
	switch {
	case err == nil:
		return isTaken, nil
	case tooLarge(err): // it says nothing of what is in it
	case apierrors.IsConflict(err):
		answer = isUnknown
		if _, refused, _ := conflicted(ctx, p); refused {
			answer = isRefused
		}
	case !tried || outage(err) || overtaken(err):
		answer = isUnknown
	default:
		answer = isRefused
	}
	return answer, fmt.Errorf("write the status as it is: %w", err)
}

// overtaken says that a write was refused for what others did to the run.
func overtaken(err error) bool { return apierrors.IsNotFound(err) || isStaleWriter(err) }

// edited says whether somebody changed a run, or metadata of it that a policy may look at, or that
// takes room. What the operator marks is no edit.
func edited(was, now metav1.Object) bool {
	return was.GetGeneration() != now.GetGeneration() || was.GetUID() != now.GetUID() ||
		!maps.Equal(was.GetLabels(), now.GetLabels()) || !slices.Equal(was.GetFinalizers(), now.GetFinalizers()) ||
		!equality.Semantic.DeepEqual(was.GetOwnerReferences(), now.GetOwnerReferences()) || !maps.Equal(passes.NotOurs(was.GetAnnotations()), passes.NotOurs(now.GetAnnotations()))
}

// editable is a hash of what others may edit of a run.
func editable(run *v1alpha1.WorkflowRun) uint64 {
	h := fnv.New64a()
	for _, texts := range []map[string]string{run.Labels, passes.NotOurs(run.Annotations)} {
		for _, k := range slices.Sorted(maps.Keys(texts)) {
			fmt.Fprintf(h, "%q%q", k, texts[k])
		}
		fmt.Fprintln(h)
	}
	fmt.Fprintf(h, "%d%q", run.Generation, run.Finalizers)
	for _, o := range run.OwnerReferences {
		fmt.Fprintf(h, "%q%t%t", o.UID, ptr.Deref(o.Controller, false), ptr.Deref(o.BlockOwnerDeletion, false))
	}
	return h.Sum64()
}
