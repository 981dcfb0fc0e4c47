// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// errOld says that the cache has an older version than the API server.
var errOld = errors.New("the cache has an older version")

// createPause is the wait before a run is created again that could not be.
const createPause = 5 * time.Second

// act does what a stored decision says. It returns when to try again what could not be done, or 0.
// It ends between two calls when the schedule is to be handed over, which is an error: the other
// runs of the partition would stand still for as long. The next owner decides the rest again.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.Schedule, in schedule.Input, d *schedule.Decision, mem *memory) (retry time.Duration, err error) {
	early, cancel := r.Driven.Early(ctx, s.UID)
	defer cancel()
	r.tell(s, d)
	for _, slot := range d.Create {
		if err := handedOver(early); err != nil {
			return 0, err
		}
		wait, err := r.settle(ctx, s, in, d, slot, mem)
		if err != nil {
			return 0, err
		}
		retry = sooner(retry, wait)
	}
	pause, failed := r.cancelAll(ctx, early, s, d)
	wait, err := r.prune(ctx, early, s, d, mem)
	return sooner(sooner(retry, pause), wait), errors.Join(failed, err)
}

// cancelAll cancels runs, until early ends. It returns when to ask again for those that may not be
// cancelled, or 0: it is asked for in each pass before that, too. What fails stops no other, up to
// maxFailed.
func (r *Reconciler) cancelAll(ctx, early context.Context, s *v1alpha1.Schedule, d *schedule.Decision) (retry time.Duration, err error) {
	var errs []error
	for i := range d.Cancel {
		if err := handedOver(early); err != nil {
			return 0, err
		}
		if len(errs) == maxFailed {
			break
		}
		pause, err := r.cancel(ctx, s, &d.Cancel[i])
		if err != nil {
			errs = append(errs, err)
		}
		retry = sooner(retry, pause)
	}
	return retry, errors.Join(errs...)
}

// handedOver is an error once a schedule is to be handed over.
func handedOver(early context.Context) error {
	if early.Err() == nil {
		return nil
	}
	return fmt.Errorf("leave the rest to the next owner: %w", context.Cause(early))
}

// sooner is the shorter of two waits; 0: there is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

const (
	// cleanUpPause is the wait before it is looked again whether the clean-up below a run is over.
	cleanUpPause = 10 * time.Second
	// deletedPause is the wait before the deletion of a run that is still there is asked for again,
	// also if it failed.
	deletedPause = time.Minute
	// refusedPause is the same for a run that a policy or a webhook keeps, or does not let be
	// cancelled.
	refusedPause = 10 * time.Minute
)

const (
	// maxDeleted bounds the runs that one pass deletes. The next slot waits for its end.
	maxDeleted = 50
	// maxWaits bounds the runs that one pass finds to wait. A look may be a read of the API server
	// for each child that is gone.
	maxWaits = 100
	// maxFailed bounds the deletions of a pass that fail, and the cancels: an API server, or a
	// webhook, that hangs takes its time for each.
	maxFailed = 3
)

// prune deletes runs that ended, until early ends. It returns when to look again, at those that
// have to wait or at more, or 0. What fails stops no other, and comes last in the next passes.
func (r *Reconciler) prune(ctx, early context.Context, s *v1alpha1.Schedule, d *schedule.Decision, mem *memory) (time.Duration, error) {
	now := r.Clock.Now()
	found, deleted := 0, 0
	var errs []error
	for _, one := range mem.toPrune(d.Delete, now) {
		if err := handedOver(early); err != nil {
			return 0, err
		}
		if deleted == maxDeleted {
			return time.Millisecond, errors.Join(errs...)
		}
		if found == maxWaits || len(errs) == maxFailed {
			break
		}
		pause, err := r.delete(ctx, s, &one)
		mem.waits[one.UID] = now.Add(cmp.Or(pause, deletedPause)) // the cache of the next pass may have it still
		switch {
		case err != nil:
			errs = append(errs, err)
		case pause > 0:
			found++
		default:
			deleted++
		}
	}
	if found == maxWaits {
		return cleanUpPause, errors.Join(errs...)
	}
	return mem.nextLook(now), errors.Join(errs...)
}

// settle creates the run of a slot, unless the schedule is held since the slot got one, or it
// failed and a later slot waits to cancel it: then there is one only if it was created before that.
// What failed has a pause first: words that change with each try make passes by themselves.
func (r *Reconciler) settle(ctx context.Context, s *v1alpha1.Schedule, in schedule.Input, d *schedule.Decision, slot time.Time, mem *memory) (time.Duration, error) {
	if held := d.Status.Held; held != "" {
		return r.giveUp(ctx, s, schedule.Minute(slot), mem, held, "")
	}
	before, tried := mem.tries[schedule.Minute(slot)]
	if tried && s.Spec.Overlap == v1alpha1.OverlapCancelOther && len(d.Status.Waiting) > 0 {
		return r.giveUp(ctx, s, schedule.Minute(slot), mem, v1alpha1.SlotStartFailed, before.text)
	}
	if wait := mem.rests(schedule.Minute(slot), r.Clock.Now()); wait > 0 {
		return wait, nil
	}
	return r.create(ctx, s, in, slot, mem)
}

// giveUp gives a slot a reason, unless it has its run: the answer to its creation may be lost, with
// an owner or without, and the cache may not have it yet.
func (r *Reconciler) giveUp(ctx context.Context, s *v1alpha1.Schedule, minute int64, mem *memory, reason v1alpha1.SlotReason, message string) (time.Duration, error) {
	run, err := r.own(ctx, s, schedule.RunName(s.Name, time.Unix(minute*60, 0)))
	switch {
	case err != nil:
		return 0, err
	case run == nil:
		return mem.fail(minute, reason, message)
	}
	mem.knows(minute, run, r.Clock.Now())
	mem.began(minute)
	return confirmPause, nil
}

// live is the run of a name as the API server has it; nil: there is none.
func (r *Reconciler) live(ctx context.Context, s *v1alpha1.Schedule, name string) (*v1alpha1.WorkflowRun, error) {
	run := &v1alpha1.WorkflowRun{}
	switch err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, run); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read run %s: %w", name, err)
	}
	return run, nil
}

// own is live, of a run of the schedule only.
func (r *Reconciler) own(ctx context.Context, s *v1alpha1.Schedule, name string) (*v1alpha1.WorkflowRun, error) {
	run, err := r.live(ctx, s, name)
	if run == nil || !metav1.IsControlledBy(run, s) {
		return nil, err
	}
	return run, nil
}

// create creates the run of a slot. What becomes of it is in mem for the next pass, which is made
// after the returned wait.
func (r *Reconciler) create(ctx context.Context, s *v1alpha1.Schedule, in schedule.Input, slot time.Time, mem *memory) (time.Duration, error) {
	minute := schedule.Minute(slot)
	run, err := runOf(s, slot, local(in, slot))
	switch {
	case err != nil:
		return r.giveUp(ctx, s, minute, mem, v1alpha1.SlotTemplateRefused, err.Error())
	case in.Refused != "":
		return r.giveUp(ctx, s, minute, mem, v1alpha1.SlotTemplateRefused, in.Refused)
	}
	err = r.Client.Create(ctx, run, fieldOwner)
	if err == nil {
		mem.learn(aboutOf(s), verdict{}, time.Time{}) // the dry run is no better witness
	}
	if apierrors.IsAlreadyExists(err) {
		run, err = r.whose(ctx, s, run.Name, mem, err)
		if errors.Is(err, errTaken) {
			return mem.fail(minute, v1alpha1.SlotNameTaken, err.Error())
		}
	}
	if err != nil {
		return r.notCreated(ctx, s, schedule.RunName(s.Name, slot), minute, mem, err)
	}
	mem.knows(minute, run, r.Clock.Now())
	mem.began(minute)
	r.Metrics.started(r.Clock.Now().Sub(slot), schedule.BackfillHas(s.Status.Backfill, slot))
	return confirmPause, nil
}

// errTaken says that the name of a slot's run is another's.
var errTaken = errors.New("is not of this schedule")

const (
	// leaveBound is how long runs are waited for that will give back the names of slots' runs. A
	// finalizer may keep them for ever, and other slots wait with these: so it is for all together.
	leaveBound = 2 * time.Minute
	// leaveAnew is the time from the first such run after which others are waited for again.
	leaveAnew = time.Hour
)

// whose is the run of a slot that exists already. The error wraps errTaken where its name is taken
// by another; else it is tried again.
func (r *Reconciler) whose(ctx context.Context, s *v1alpha1.Schedule, name string, mem *memory, exists error) (*v1alpha1.WorkflowRun, error) {
	run, err := r.live(ctx, s, name)
	bound := min(leaveBound, time.Duration(s.Spec.CatchUp.WindowSeconds)*time.Second)
	switch {
	case err != nil:
		return nil, err
	case run == nil:
		return nil, exists
	case metav1.IsControlledBy(run, s):
		return run, nil
	case leaves(run, s) && mem.inTheWay(r.Clock.Now()) <= bound:
		return nil, exists
	default:
		return nil, fmt.Errorf("run %s %w", name, errTaken)
	}
}

// leaves says whether a run that has the name of a slot's run will give it back: it is being
// deleted, or the garbage collector will do that, as it is of an earlier schedule of this name.
func leaves(other *v1alpha1.WorkflowRun, s *v1alpha1.Schedule) bool {
	before := ownerOf(other) != nil && metav1.GetControllerOf(other).Name == s.Name
	return before || !other.DeletionTimestamp.IsZero()
}

// notCreated says when a creation is tried again, or gives it up.
func (r *Reconciler) notCreated(ctx context.Context, s *v1alpha1.Schedule, name string, minute int64, mem *memory, err error) (time.Duration, error) {
	switch {
	case ctx.Err() != nil:
		return 0, fmt.Errorf("create run %s: %w", name, err)
	case refusedForGood(err):
		// An answer of before says nothing of the next slot; nor does this one, so it
		// is asked again.
		mem.learn(aboutOf(s), verdict{why: because(forNow, err, name)}, r.Clock.Now().Add(longestWait))
		return r.giveUp(ctx, s, minute, mem, v1alpha1.SlotTemplateRefused, err.Error())
	}
	now := r.Clock.Now()
	mem.blame(cause{words: because("", err, name), reason: apierrors.ReasonForError(err), of: aboutOf(s), at: now})
	if apierrors.IsForbidden(err) { // also after it was accepted: users are told
		mem.learn(aboutOf(s), verdict{why: cut(forNow + mem.stuck.words)}, now.Add(longestWait))
	}
	one := mem.tries[minute]
	if one.first.IsZero() {
		one.first = now
	}
	if mem.failing.IsZero() {
		mem.failing = now
	}
	if now.Sub(one.first) > time.Duration(s.Spec.CatchUp.WindowSeconds)*time.Second {
		return r.giveUp(ctx, s, minute, mem, v1alpha1.SlotStartFailed, err.Error())
	}
	wait := createPause
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		wait = min(time.Duration(seconds)*time.Second, longestWait)
	}
	one.last, one.pause, one.text, one.taken = now, wait, cut(err.Error()), apierrors.IsAlreadyExists(err)
	mem.tries[minute] = one
	log.FromContext(ctx).Info("The run of a slot cannot be created", "run", name, "delay", wait, "cause", err.Error())
	return wait, nil
}

// fail notes that a slot gets no run, for the next pass, which is made at once.
func (m *memory) fail(minute int64, reason v1alpha1.SlotReason, message string) (time.Duration, error) {
	m.failed[minute] = schedule.Failure{Reason: reason, Message: message}
	m.settled(minute)
	return time.Millisecond, nil
}

// local is a slot as the clocks of the schedule's zone show it.
func local(in schedule.Input, slot time.Time) string {
	table := in.Table
	if table == nil {
		table = in.Was
	}
	if table == nil {
		return slot.UTC().Format(time.RFC3339)
	}
	return table.In(slot).Format(time.RFC3339)
}

// confirmPause is the wait before status says that a run was created: creations of
// other schedules, at the same minute, go first.
const confirmPause = 2 * time.Second

// cancel cancels a run, unless another has its name now, or it is gone or ended by force, which
// cannot be taken back: that is invalid. One that may not be cancelled is asked again after pause,
// and so is one that needs a newer operator.
func (r *Reconciler) cancel(ctx context.Context, s *v1alpha1.Schedule, one *schedule.Run) (pause time.Duration, err error) {
	newer, err := r.newer(ctx, s, one)
	switch {
	case err != nil:
		return 0, err
	case newer:
		return notCancelled(ctx, one, errNewer), nil
	}
	text := `{"spec":{"shutdown":"Cancel"}}`
	if one.UID != "" {
		text = fmt.Sprintf(`{"metadata":{"uid":%q},"spec":{"shutdown":"Cancel"}}`, one.UID)
	}
	err = r.Client.Patch(ctx, object(s, one), client.RawPatch(client.Merge.Type(), []byte(text)), fieldOwner)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsInvalid(err):
		return 0, nil
	case passes.Refused(err):
		return notCancelled(ctx, one, err), nil
	default:
		return 0, fmt.Errorf("cancel run %s: %w", one.Name, err)
	}
}

// notCancelled logs why a run may not be cancelled. It returns when to ask again.
func notCancelled(ctx context.Context, one *schedule.Run, cause error) (pause time.Duration) {
	log.FromContext(ctx).Info("A run may not be cancelled", "run", one.Name, "delay", refusedPause, "cause", cause.Error())
	return refusedPause
}

// delete deletes a run that ended, unless another has its name now. It has to wait for pause
// while a run below it is at its clean-up, or if it may not be deleted, as one that needs a newer
// operator: the others are not to wait with it.
func (r *Reconciler) delete(ctx context.Context, s *v1alpha1.Schedule, one *schedule.Run) (pause time.Duration, err error) {
	run, waits := object(s, one), false
	err = r.Client.Get(ctx, client.ObjectKeyFromObject(run), run)
	switch {
	case apierrors.IsNotFound(err), err == nil && string(run.UID) != one.UID:
		return 0, nil // it is gone, or the cache does not have it yet: nobody knows what is below it
	case err == nil && run.NeedsNewer() > 0:
		return notDeleted(ctx, one, errNewer), nil
	case err == nil:
		waits, err = r.Below(ctx, run)
	}
	if err != nil {
		return 0, fmt.Errorf("look at run %s before it is deleted: %w", one.Name, err)
	}
	if waits {
		return cleanUpPause, nil
	}
	err = r.Client.Delete(ctx, object(s, one), client.PropagationPolicy(metav1.DeletePropagationBackground), client.Preconditions{UID: new(types.UID(one.UID))})
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil
	case passes.Refused(err):
		return notDeleted(ctx, one, err), nil
	default:
		return 0, fmt.Errorf("delete run %s: %w", one.Name, err)
	}
}

// notDeleted logs why a run may not be deleted. It returns when to ask again.
func notDeleted(ctx context.Context, one *schedule.Run, cause error) (pause time.Duration) {
	log.FromContext(ctx).Info("A run that ended may not be deleted", "run", one.Name, "delay", refusedPause, "cause", cause.Error())
	return refusedPause
}

// object names a run of a schedule.
func object(s *v1alpha1.Schedule, one *schedule.Run) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: one.Name}}
}
