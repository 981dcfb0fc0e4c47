// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// Quota has the slots of tenants; *quota.Controller does.
type Quota interface {
	// Admit asks for a slot for a run as it was read before. An *AskedError says that the answer
	// will wake the run.
	Admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (store.Answer, error)
	// Release takes from a run whatever it has under a policy, and wakes who is next.
	Release(ctx context.Context, uid types.UID, tenant, policyName string) error
	// GiveUp is Release for a run that does without what it may have got: another process may have
	// got a slot for it, or have let it in meanwhile, and that slot stays its own.
	GiveUp(ctx context.Context, run *v1alpha1.WorkflowRun, tenant, policyName string) error
	// Forget forgets a run that another process drives from now on. What it has stays its own.
	Forget(uid types.UID)
}

// Keys has the idempotency keys of tenants; *quota.Controller does.
type Keys interface {
	// Claim claims the run's idempotency key. Nil: the key is this run's.
	Claim(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string) (*quota.Owner, error)
	// ReleaseKey gives a key up if it is that of the run.
	ReleaseKey(ctx context.Context, uid types.UID, tenant, key string) error
}

// Slots asks for runs. The zero value lets every run in: there are no limits and no keys.
type Slots struct {
	Quota Quota // nil: no limits
	Keys  Keys  // nil: no keys
	Asks  *Asks // the questions off the workers; nil: there are none
}

// Holding is where a run has a slot or a place in the queue.
type Holding struct{ Tenant, Policy string }

// State is what this process has got for a run.
type State struct {
	// Holding is where this process has got a slot or a place in the queue for the run, and not
	// released it; nil: nowhere.
	Holding *Holding
	// mayHave says that this process saw the run as one that is let in some day, and did not give
	// up since then what another process, or a rebuild, may have got for it.
	mayHave bool
	// turnLost says that the run was in the queues of its locks, and had to leave them as it had no
	// slot. Its next process finds that out anew.
	turnLost bool
	inVain   int       // how often it kept a slot for as long as it may
	since    time.Time // when it began to keep the one that it keeps; zero: it keeps none
	until    time.Time // when that is over at the latest
	restsTo  time.Time // it keeps none before
}

const (
	// leastIdle is for how long a run that waits for its locks keeps a slot in vain,
	// the first time.
	leastIdle = time.Minute
	// restFactor is for how many times as long as it kept its slot it keeps none then.
	restFactor = 4
	// mostDoubled keeps what is doubled in its range: it is a year.
	mostDoubled = 19
)

// Idle says whether a run, as it was read, may keep its slot while it waits for its locks, and for
// how long at the most. After each time it may not for four times as long as it did: of the time
// until it has its locks it takes the slot from others for a fifth, whatever ended each time. Where
// all of the time was not enough, it may for twice as long then: however long others hold its
// locks, some day it waits for longer than they do.
func (st *State) Idle(run *v1alpha1.WorkflowRun, now time.Time) (may bool, longest time.Duration) {
	st.sees(run, now) // the answer to a write may have been lost
	if last := now.Add(restFactor * st.longest()); st.restsTo.After(last) {
		st.restsTo = last // no rest is longer: the clock was set back
	}
	return st.turnLost && !now.Before(st.restsTo), st.longest()
}

// sees notes whether a run keeps its slot, as status says at a time. However the clock was set, or
// the process stopped meanwhile, it kept it for no longer than it may.
func (st *State) sees(run *v1alpha1.WorkflowRun, now time.Time) {
	switch until := lifecycle.KeptUntil(run); {
	case !until.IsZero():
		if began := until.Add(-st.longest()); st.since.IsZero() && began.Before(now) {
			st.since = began // another process may have written it, a while ago
		} else if st.since.IsZero() {
			st.since = now
		}
		st.until = until
	case !st.since.IsZero():
		kept := min(now.Sub(st.since), st.longest())
		if rests := now.Add(restFactor * kept); rests.After(st.restsTo) {
			st.restsTo = rests
		}
		if !now.Before(st.until) {
			st.inVain++
		}
		st.since = time.Time{}
	}
}

func (st *State) longest() time.Duration { return leastIdle << min(st.inVain, mostDoubled) }

// Claim claims the run's idempotency key. The claim says so, too, where the error is why
// nothing is known.
func (s *Slots) Claim(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string) (lifecycle.Claim, error) {
	if s.Keys == nil {
		return lifecycle.Claim{State: lifecycle.ClaimOurs}, nil
	}
	owner, err := s.Keys.Claim(ctx, run, tenant)
	switch {
	case err != nil:
		return lifecycle.Claim{State: lifecycle.ClaimUnavailable, Cause: err.Error()}, err
	case owner == nil:
		return lifecycle.Claim{State: lifecycle.ClaimOurs}, nil
	default:
		return lifecycle.Claim{State: lifecycle.ClaimTaken, Owner: owner.Name, Same: owner.Same}, nil
	}
}

// Answer is what the quota said in a pass.
type Answer struct {
	Gate lifecycle.Gate
	// Until is when a pass stops to wait without a word for the answer that is not there
	// yet; else zero.
	Until time.Time
}

// Ask asks for a slot. It is asked once in a pass, after the run was read: a grant that is out of
// date when the write comes is refused by the run's resourceVersion. The answer says so, too, where
// the error is why there is none.
func (s *Slots) Ask(ctx context.Context, st *State, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective) (Answer, error) {
	if s.Quota == nil {
		return Answer{Gate: lifecycle.Gate{State: lifecycle.GateOpen}}, nil
	}
	at := Holding{Tenant: tenant, Policy: p.Name}
	if st.Holding != nil && *st.Holding != at {
		if err := s.Release(ctx, st, run.UID); err != nil { // the class has another policy now: the place under the old one is not needed
			return Answer{Gate: gateOf(err)}, err
		}
	}
	st.Holding = &at // before the answer, which may get lost
	answer, err := s.Quota.Admit(ctx, run, at.Tenant, p)
	if asked, ok := errors.AsType[*AskedError](err); ok {
		return Answer{Gate: lifecycle.Gate{State: lifecycle.GateAsked}, Until: asked.Since.Add(patience)}, nil
	}
	if err != nil {
		return Answer{Gate: gateOf(err)}, fmt.Errorf("ask for a slot: %w", err)
	}
	gate := lifecycle.Gate{
		State: lifecycle.GateFull, Used: answer.Used, Limit: answer.Limit, Position: answer.Position, Waiting: answer.Waiting, Ahead: answer.Ahead,
		All: answer.All, Total: answer.Total,
	}
	if answer.Admitted {
		gate.State = lifecycle.GateOpen
	}
	return Answer{Gate: gate}, nil
}

// gateOf says what an error of the gate means.
func gateOf(err error) lifecycle.Gate {
	g := lifecycle.Gate{State: lifecycle.GateUnavailable, Cause: err.Error()}
	if _, ok := errors.AsType[*store.BusyError](err); ok {
		g.State = lifecycle.GateBusy
	}
	if _, ok := errors.AsType[*store.RebuildingError](err); ok {
		g.State = lifecycle.GateRebuilding
	}
	return g
}

// ExpectedUntil is when a pass stops to wait for an answer without a word: until then nothing
// is written, since the answer most likely comes with it. Zero: none was asked for, or that
// time is over.
func (a Answer) ExpectedUntil(now time.Time) time.Time {
	if a.Gate.State != lifecycle.GateAsked {
		return time.Time{}
	}
	if a.Until.After(now) {
		return a.Until
	}
	return time.Time{}
}

// Release gives up what the run has; who is next is woken. Until it worked it is remembered.
func (s *Slots) Release(ctx context.Context, st *State, uid types.UID) error {
	if st.Holding == nil {
		return nil
	}
	if s.Quota != nil {
		if err := s.Quota.Release(ctx, uid, st.Holding.Tenant, st.Holding.Policy); err != nil {
			return fmt.Errorf("leave the gate of %s: %w", st.Holding.Tenant, err)
		}
	}
	st.Holding = nil
	return nil
}

// GiveUp gives up what a run has that cannot be let in, as its status is refused; who is next is
// woken. Until it worked it is remembered. It may have a slot that this process knows nothing of:
// another one got it, or a rebuild counted the run as if it were admitted. If another process let
// the run in meanwhile, its slot stays its own.
func (s *Slots) GiveUp(ctx context.Context, st *State, run *v1alpha1.WorkflowRun) error {
	at := st.Holding
	if at == nil {
		at = HoldingOf(run)
	}
	st.mayHave = st.mayHave || !over(run)
	if at == nil {
		return nil
	}
	if s.Quota != nil {
		if err := s.Quota.GiveUp(ctx, run, at.Tenant, at.Policy); err != nil {
			return fmt.Errorf("give up a slot of %s: %w", at.Tenant, err)
		}
	}
	st.Holding, st.mayHave = nil, !over(run)
	return nil
}

// AwaitLocks gives up the slot of a run that waits for its locks, unless status says that it keeps
// it. Whoever holds the locks needs no slot.
func (s *Slots) AwaitLocks(ctx context.Context, st *State, run *v1alpha1.WorkflowRun) error {
	if !lifecycle.KeptUntil(run).IsZero() {
		return nil
	}
	return s.Release(ctx, st, run.UID)
}

// ReleaseIfOver gives up the slot of a run that ended, and the place of one that was suspended
// before it was admitted. What a process leaves behind that dies before, the resync of the
// quota controller finds. So whoever takes over runs that are suspended asks nobody: there may be
// thousands.
func (s *Slots) ReleaseIfOver(ctx context.Context, st *State, run *v1alpha1.WorkflowRun) error {
	switch {
	case !over(run):
		st.mayHave = true
		return nil
	case lifecycle.Finished(run) || st.Holding != nil:
		return s.Release(ctx, st, run.UID)
	case st.mayHave:
		return s.GiveUp(ctx, st, run)
	default:
		return nil
	}
}

// Wrote notes that this process wrote a run, at a time. A place in the queues of its locks is lost
// with that, whatever the gate, or the idempotency key, said or did not say.
func (s *Slots) Wrote(st *State, was, now *v1alpha1.WorkflowRun, at time.Time) {
	if s.Asks != nil {
		s.Asks.Wrote(now.UID, was.ResourceVersion, now.ResourceVersion)
	}
	st.sees(was, at)
	st.sees(now, at)
	st.mayHave = st.mayHave || !over(was)
	st.turnLost = st.turnLost || waitsForLocks(was) && !waitsForLocks(now) && !lifecycle.Admitted(now) && !over(now)
	if st.Holding == nil && over(now) {
		st.Holding = HoldingOf(now) // by another process, before this one drove the run
	}
}

// Forget ends what this process asks for a run that another one drives from now on.
func (s *Slots) Forget(uid types.UID) {
	if s.Quota != nil {
		s.Quota.Forget(uid)
	}
}

// waitsForLocks says whether status has a run that is not admitted wait for its locks.
func waitsForLocks(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && run.Status.Admission != nil && run.Status.Admission.LockWait != nil
}

// over says whether a run needs nothing from its quota: it ended, or it was suspended before
// it was admitted.
func over(run *v1alpha1.WorkflowRun) bool {
	return lifecycle.Finished(run) || (run.Spec.Suspend && !lifecycle.Admitted(run))
}

// HoldingOf is where a run has a slot or a place as far as its status tells; nil: nowhere.
func HoldingOf(run *v1alpha1.WorkflowRun) *Holding {
	st := run.Status
	switch {
	case st == nil || st.Tenant == "" || st.Parent != nil: // a child has the slot of its root, and never one of its own
		return nil
	case st.Admission != nil && st.Admission.AdmittedAt != nil:
		return &Holding{Tenant: st.Tenant, Policy: st.Admission.Policy}
	case st.Policy != nil:
		return &Holding{Tenant: st.Tenant, Policy: st.Policy.Name}
	default:
		return nil
	}
}

// ReleaseDeleted gives up what a deleted run had, and its idempotency key; key "": it had none.
func (s *Slots) ReleaseDeleted(ctx context.Context, uid types.UID, at *Holding, tenant, key string) error {
	failed := s.Release(ctx, &State{Holding: at}, uid)
	if key != "" && s.Keys != nil {
		failed = errors.Join(failed, s.Keys.ReleaseKey(ctx, uid, tenant, key))
	}
	if failed != nil {
		return fmt.Errorf("give up what deleted run %s had: %w", uid, failed)
	}
	return nil
}
