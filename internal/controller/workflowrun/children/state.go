// SPDX-License-Identifier: Apache-2.0

package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// State is what became of the creation of the child runs of a run, until status has their uid. One
// pass at a time uses it.
type State struct {
	of map[string]creation // by name
	// full is since a quota refused a child: all are counted by it, so one is tried for all.
	full fullness
	// generation and annotations are those of the run for which children were refused: an edit may
	// be the mend, or its author knows of one.
	generation  int64
	annotations map[string]string
	// changed is when a cause that the run told was last replaced, or the first one told.
	changed time.Time
	// told are the kinds of causes that are in the log.
	told map[string]bool
	// turn is that of the run among those of its namespace that want places; nil: it wants none, or
	// asks for it with the next child.
	turn *turn
	// lacks is since when there is no place for all of its children; zero: there is.
	lacks time.Time
}

// fullness is how long a quota is left alone.
type fullness struct {
	tries int
	until time.Time // zero: it refused none
}

// creation is what is known of the creation of a child run. What the API server said of it comes
// as fact, kind and so on; note makes of it when it is tried again.
type creation struct {
	fact lifecycle.Child
	// kind is that of fact's cause: causes of one kind differ in words only.
	kind    string
	created bool          // by this process, just now
	refused bool          // by somebody's word: see passes.Refused
	full    bool          // by a quota
	wait    time.Duration // that the API server asks for, or the usual one

	tries int       // refusals in a row
	again time.Time // ChildPostponed: when it is tried again; else it is no matter
	// flight is a creation under way; nil: none.
	flight *flight
	// there is the run that has the name and could not be compared; empty: the name is free.
	there types.UID
	// blind: it could not be read which one has the name.
	blind bool
	// since is when it was first refused to compare the run that is there; zero: it was not.
	since time.Time
}

// dueAt is when a child is to be created; false: it is not, as things are.
func (st *State) dueAt(b *creation) (time.Time, bool) {
	if b.flight != nil || (b.fact.State != lifecycle.ChildUnknown && b.fact.State != lifecycle.ChildPostponed) {
		return time.Time{}, false
	}
	if b.again.Before(st.full.until) {
		return st.full.until, true
	}
	return b.again, true
}

// NotYetCreated are the steps whose child run is in status and not known to exist, as far as it is
// time to create them. While a quota is full none is due as long as one is tried: see probes. Nor
// is one while the run waits for its turn: that wakes it.
func (st *State) NotYetCreated(run *v1alpha1.WorkflowRun, now time.Time) []string {
	if st.turn.waits() {
		return nil
	}
	return st.due(run, now)
}

// due are those that are to be created once there is a place.
func (st *State) due(run *v1alpha1.WorkflowRun, now time.Time) []string {
	var steps []string
	if st.probes() {
		return nil
	}
	for _, s := range lifecycle.Children(run) {
		b := st.of[s.ChildRun.Name]
		if at, due := st.dueAt(&b); s.ChildRun.UID == "" && due && !now.Before(at) {
			steps = append(steps, s.Name)
		}
	}
	return steps
}

// probes says whether it is being found out if a quota is still full. The end of that
// wakes the run.
func (st *State) probes() bool {
	if st.full.until.IsZero() {
		return false
	}
	for _, b := range st.of {
		if b.flight != nil {
			return true
		}
	}
	return false
}

// stops says whether no other child is to be tried now: it would be refused as one just was.
func (st *State) stops() bool { return st.probes() || st.fullByNow() }

// edited tries at once what was refused before the run was edited. An annotation counts: little of
// the spec can change once the run is admitted. Those of the operator do not: it marks runs.
func (st *State) edited(run *v1alpha1.WorkflowRun) {
	annotations := passes.NotOurs(run.Annotations)
	if st.generation == run.Generation && maps.Equal(st.annotations, annotations) {
		return
	}
	st.generation, st.annotations, st.full = run.Generation, annotations, fullness{}
	for name, b := range st.of {
		b.again, b.tries = time.Time{}, 0
		st.of[name] = b
	}
}

// put remembers what is known of a child.
func (st *State) put(name string, b creation) {
	if st.of == nil {
		st.of = map[string]creation{}
	}
	st.of[name] = b
}

// note remembers what became of a creation, for the next pass, which is to be made at once. A run
// that is there and cannot be compared for long ends the wait: it would be one without an end, as
// it waits, too. The time of one run is not that of another.
func (st *State) note(ctx context.Context, name string, b creation, now time.Time) {
	was := st.of[name]
	waited := was.fact.State == lifecycle.ChildPostponed && b.fact.State == lifecycle.ChildPostponed
	if same := b.blind || b.there == was.there; waited && same {
		if !b.since.IsZero() && !was.since.IsZero() && now.Sub(was.since) >= compareBound {
			b.fact.State, waited = lifecycle.ChildRefused, false
		}
		b.there, b.since = was.there, cmp.Or(was.since, b.since)
	}
	if b.fact.State == lifecycle.ChildPostponed {
		st.pace(&b, was.tries, now)
		st.log(ctx, &b, now)
		st.tell(&b, &was, waited, now)
	}
	if b.created {
		st.full, st.told = fullness{}, nil
	}
	st.put(name, b)
}

// pace says when a child is tried again that was put off: ever later after refusals, since whoever
// refused is likely to do it again, and each try goes through all webhooks.
func (st *State) pace(b *creation, tries int, now time.Time) {
	switch {
	case b.full:
		if !now.Before(st.full.until) { // those that were tried together are one try
			st.full.until = now.Add(max(b.wait, pacing.NoRoom(st.full.tries, mostDelay)))
			st.full.tries++
		}
		return
	case b.refused:
		b.wait = max(b.wait, pacing.NoRoom(tries, mostDelay))
		b.tries = tries + 1
	}
	b.again = now.Add(b.wait)
	if end := b.since.Add(compareBound); !b.since.IsZero() && now.Before(end) && end.Before(b.again) {
		b.again = end // once it has passed, what is no refusal has its usual wait
	}
}

// tell keeps the cause that the run tells of, if the new one is of its kind or comes too soon: each
// other one costs a write.
func (st *State) tell(b, was *creation, waited bool, now time.Time) {
	soon := now.Sub(st.changed) < textPause && !now.Equal(st.changed)
	if waited && (b.kind == was.kind || soon) {
		b.fact, b.kind = was.fact, was.kind
		return
	}
	if waited || st.changed.IsZero() { // one more child that waits says nothing about the others
		st.changed = now
	}
}

// log has each cause of a wait in the log once, and not with each child and each try.
func (st *State) log(ctx context.Context, b *creation, now time.Time) {
	l := log.FromContext(ctx)
	if st.told[b.kind] {
		l = l.V(1)
	} else {
		if st.told == nil {
			st.told = map[string]bool{}
		}
		st.told[b.kind] = true
	}
	at, _ := st.dueAt(b)
	l.Info("A child run cannot be created", "delay", at.Sub(now), "cause", b.fact.Cause)
}

// errSilent is of a request that was not answered in time.
var errSilent = errors.New("the API server did not answer")

// within makes a request that is given so much time.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	bounded, stop := context.WithTimeout(ctx, limit)
	defer stop()
	err := do(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w within %s", errSilent, limit)
	}
	return err
}

// kindOf tells errors apart by more than their words, in which there are names and numbers.
func kindOf(err error) string {
	var is apierrors.APIStatus
	switch {
	case errors.Is(err, errSilent):
		return "silent"
	case fullQuota(err):
		return "quota"
	case errors.As(err, &is):
		return fmt.Sprintf("%d %s", is.Status().Code, is.Status().Reason)
	default:
		return "other"
	}
}

// fullQuota says whether a quota of the namespace refused. Nothing but the words tells it
// from a policy.
func fullQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}
