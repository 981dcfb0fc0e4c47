// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// maxMessage bounds what a condition says, in bytes.
const maxMessage = 2000

// observe gathers what a decision depends on.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.Schedule, mem *memory) (schedule.Input, error) {
	now := r.Clock.Now()
	in := schedule.Input{Now: now, Schedule: s, Failed: mem.failed}
	in.Table, in.Invalid = mem.tableOf(s)
	if s.Status != nil {
		in.Stuck = mem.stands(s.Status.Starting, now)
	}
	if s.Status != nil && s.Status.Timing != nil {
		in.Was, _ = mem.table(s.Status.Timing) // a zone that is gone has no slots
	}
	runs, err := r.Runs(ctx, s)
	if err != nil {
		return in, fmt.Errorf("list the runs of schedule %s: %w", s.Name, err)
	}
	if runs, err = r.complete(ctx, &in, mem, runs); err != nil {
		return in, err
	}
	in.Tried = mem.causes()
	if err := r.lookBelow(ctx, s, mem, runs); err != nil {
		return in, err
	}
	in.Runs = factsOf(s, mem, runs)
	if in.Stop, err = r.stops(ctx, s, runs, mem); err != nil {
		return in, err
	}
	is, err := r.refused(ctx, in, mem)
	if is.holds {
		in.Refused = is.why
	} else {
		in.Doubt = is.why
	}
	in.Unasked = is.unasked
	return in, err
}

// factsOf is what a decision has to know of runs.
func factsOf(s *v1alpha1.Schedule, mem *memory, runs []v1alpha1.WorkflowRun) (all []schedule.Run) {
	for i := range runs {
		if slot, ok := schedule.SlotOf(s.Name, runs[i].Name); ok { // else it was made ours by somebody else
			fact := runFact(&runs[i], slot)
			fact.CleansUp = mem.below[runs[i].UID].busy
			all = append(all, fact)
		}
	}
	return all
}

// tableOf is the timetable of a spec; nil: the spec is not valid, and why says so.
func (m *memory) tableOf(s *v1alpha1.Schedule) (t *cron.Timetable, why string) {
	t, err := m.table(&s.Spec.ScheduleTiming)
	if err != nil {
		return nil, cut(err.Error())
	}
	if m.read != s.Generation { // it compiles an expression
		m.read, m.problem = s.Generation, cut(schedule.Problem(&s.Spec))
	}
	if m.problem != "" {
		return nil, m.problem
	}
	return t, ""
}

// complete adds the runs that the cache does not have yet to those that it has.
func (r *Reconciler) complete(ctx context.Context, in *schedule.Input, mem *memory, runs []v1alpha1.WorkflowRun) ([]v1alpha1.WorkflowRun, error) {
	s := in.Schedule
	for i := range runs {
		if slot, ok := schedule.SlotOf(s.Name, runs[i].Name); ok {
			delete(mem.created, schedule.Minute(slot))
			if _, tried := mem.tries[schedule.Minute(slot)]; tried {
				mem.began(schedule.Minute(slot)) // the answer was lost
			}
		}
	}
	if err := r.takeOver(ctx, s, mem, runs); err != nil {
		return nil, err
	}
	if err := r.lookUpTried(ctx, in, mem, len(runs)+len(mem.created)); err != nil {
		return nil, err
	}
	for minute, one := range mem.created {
		if r.Clock.Since(one.at) > cacheDelay { // it may be gone already
			run, err := r.own(ctx, s, one.run.Name)
			if err != nil {
				return nil, err
			}
			if run == nil {
				delete(mem.created, minute)
				continue
			}
			one = mem.knows(minute, run, r.Clock.Now())
		}
		runs = append(runs, one.run)
	}
	return runs, nil
}

// takeOver looks up the run that began last, unless it is known. An owner before took its slot
// out of status.starting, since it knew of that run. Where the cache of this one is behind, the
// next slot would get a run beside it. It does so for each that status names: the first may be
// an old one.
func (r *Reconciler) takeOver(ctx context.Context, s *v1alpha1.Schedule, mem *memory, runs []v1alpha1.WorkflowRun) error {
	if s.Status == nil || len(s.Status.Last) == 0 || s.Status.Last[0].Run == mem.last {
		return nil
	}
	name := s.Status.Last[0].Run
	slot, ok := schedule.SlotOf(s.Name, name)
	if ok && slices.ContainsFunc(s.Status.Starting, func(t metav1.Time) bool { return t.Time.Equal(slot) }) {
		return nil // its creation says whether it is there
	}
	if ok && !mem.has(s.Name, slot, runs) {
		run, err := r.own(ctx, s, name)
		if err != nil {
			return err
		}
		if run != nil {
			mem.knows(schedule.Minute(slot), run, r.Clock.Now())
		}
	}
	mem.last = name
	return nil
}

// lookUpTried looks up the runs that could not be created: the answer to one may be lost, and
// another slot is not to take the place of a run that is there. So many runs are known.
func (r *Reconciler) lookUpTried(ctx context.Context, in *schedule.Input, mem *memory, runs int) error {
	s := in.Schedule
	if len(mem.tries) == 0 || !schedule.MayGiveWay(in, runs) {
		return nil
	}
	for minute := range mem.tries {
		run, err := r.own(ctx, s, schedule.RunName(s.Name, time.Unix(minute*60, 0)))
		if err != nil {
			return err
		}
		if run != nil {
			mem.knows(minute, run, r.Clock.Now())
			mem.began(minute)
		}
	}
	return nil
}

// cacheDelay is how long a run that was created may be missing in the cache before it is
// looked up.
const cacheDelay = time.Minute

// runFact is what a decision has to know of a run. That a run ended, and how, no version changes
// once it is written: it is read of one that needs a newer operator, too. Otherwise the history of
// a schedule would keep its next slots from their runs, after the operator was rolled back.
func runFact(run *v1alpha1.WorkflowRun, slot time.Time) schedule.Run {
	fact := schedule.Run{
		Name: run.Name, UID: string(run.UID), Slot: slot, Created: run.CreationTimestamp.Time,
		Cancelled: run.Spec.Shutdown != "", Deleting: !run.DeletionTimestamp.IsZero(), NeedsNewer: run.NeedsNewer() > 0,
	}
	if !status.Finished(run) {
		return fact
	}
	fact.Ended = run.Status.CompletedAt.Time
	switch run.Status.Phase {
	case v1alpha1.RunSucceeded:
		fact.Phase = schedule.Succeeded
	case v1alpha1.RunCancelled:
		fact.Phase = schedule.Cancelled
	default:
		fact.Phase = schedule.Failed
	}
	return fact
}

// verdict is what is known of runs of spec.runTemplate.
type verdict struct {
	// why they would be refused; empty: they would not, as far as is known.
	why string
	// holds says that no slot is tried meanwhile. What the operator finds itself only an edit
	// changes, or another namespace; about what a dry run found it asks again.
	holds bool
	// unasked says that nobody has answered yet.
	unasked bool
}

// refused says what becomes of runs of spec.runTemplate. The slot of the run that is tried is one
// of the schedule: a pattern of its Workflow may want the offset of the zone.
func (r *Reconciler) refused(ctx context.Context, in schedule.Input, mem *memory) (verdict, error) {
	s := in.Schedule
	var ns corev1.Namespace
	if err := r.Client.Get(ctx, client.ObjectKey{Name: s.Namespace}, &ns); err != nil {
		return verdict{}, fmt.Errorf("read namespace %s: %w", s.Namespace, err)
	}
	of := looked{aboutOf(s), ns.ResourceVersion, schedule.Fits(s) == nil}
	if is, known := mem.known(of, r.Clock.Now()); known {
		return is, nil
	}
	if mem.inLine(s) && !r.Aside.Free(s.Namespace) {
		return verdict{}, passes.ErrLater // not even read: there may be thousands
	}
	slot := someSlot(in)
	run, err := runOf(s, slot, local(in, slot))
	if err != nil {
		mem.looked, mem.wrongNow = of, cut(err.Error())
		return verdict{why: mem.wrongNow, holds: true}, nil
	}
	wrong, err := r.problems(ctx, mem, s, run)
	if err != nil {
		return verdict{}, err
	}
	mem.looked, mem.wrongNow = of, cut(cmp.Or(unpermitted(run, ns.Labels, ns.Annotations, r.RequireLists), wrong))
	if mem.wrongNow != "" {
		return verdict{why: mem.wrongNow, holds: true}, nil
	}
	return r.dryRun(ctx, s, run, mem), nil
}

// looked is what the operator's own look at a template depends on: an edit of the schedule, or of
// its namespace, makes another. A template may be large, and is decoded for a look.
type looked struct {
	about
	namespace string // its resourceVersion
	fits      bool   // with who made the schedule, whom the cache does not have where it does not fit
}

// known is what was found before, unless the API server is to be asked by now.
func (m *memory) known(of looked, now time.Time) (is verdict, known bool) {
	if m.looked != of {
		return verdict{}, false
	}
	if m.wrongNow != "" {
		return verdict{why: m.wrongNow, holds: true}, true
	}
	return m.is, m.tried == of.about && !m.asksAgain(now)
}

// asksAgain says whether the API server is to be asked again what it said of these runs.
func (m *memory) asksAgain(now time.Time) bool { return !m.again.IsZero() && !now.Before(m.again) }

// inLine says whether the template of a schedule waits for a desk.
func (m *memory) inLine(s *v1alpha1.Schedule) bool {
	return m.long == s.Generation && m.checked != s.Generation && !m.answered(s)
}

// someSlot is the next slot of a schedule, else one of long ago.
func someSlot(in schedule.Input) time.Time {
	if in.Table != nil {
		if slot, ok := in.Table.Next(in.Now); ok {
			return slot
		}
	}
	return time.Unix(0, 0)
}

// dryRun asks the API server whether it would create a run. It is asked once for each generation
// and signature, and again where it refused that: a policy may be mended, and nobody edits the
// schedules that it refused. Until then those that were never accepted are held, and asked about
// more seldom. The run has the name that it will have, as policies may look at that, too. Where the
// name is taken, admission has accepted the run before.
func (r *Reconciler) dryRun(ctx context.Context, s *v1alpha1.Schedule, run *v1alpha1.WorkflowRun, mem *memory) verdict {
	now := r.Clock.Now()
	of := aboutOf(s)
	if mem.tried == of && !mem.asksAgain(now) {
		return mem.is
	}
	name := run.Name
	err := r.Client.Create(ctx, run, client.DryRunAll, fieldOwner)
	switch {
	case err == nil, apierrors.IsAlreadyExists(err):
		mem.learn(of, verdict{}, time.Time{})
	case refusedForGood(err) && mem.mayHold(s, run):
		mem.learn(of, verdict{why: because("spec.runTemplate: ", err, name), holds: true}, r.nextAsk(now))
	case refusedForGood(err), apierrors.IsForbidden(err): // the former about the Workflow, say, which may be edited
		mem.learn(of, verdict{why: because(forNow, err, name)}, now.Add(longestWait))
	case mem.tried != of: // what was said of other runs is not believed of these
		return verdict{unasked: true}
	default: // it is tried again in the next pass; slots go on meanwhile
	}
	return mem.is
}

// mayHold says whether a schedule is held whose runs would be refused: it has its own steps, and
// was not accepted before.
func (m *memory) mayHold(s *v1alpha1.Schedule, run *v1alpha1.WorkflowRun) bool {
	return run.Spec.WorkflowRef == nil && (m.is.holds || !m.answered(s))
}

// forNow begins the words of a refusal that may end without an edit.
const forNow = "spec.runTemplate, for now (slots are tried all the same): "

const (
	// toldAfter is how long creations have to fail before the condition tells of it.
	toldAfter = time.Minute
	// stuckFor begins the words for that.
	stuckFor = "the run of a slot cannot be created for now, and is tried again: "
)

// someMinutes stands for the number in the name of a run, which is another one for each slot.
const someMinutes = "-<minutes>"

// because is why the API server refused the run of a name, be it in a dry run, in the same words
// for each slot, or status would be written at each.
func because(what string, err error, name string) string {
	some := name[:strings.LastIndexByte(name, '-')] + someMinutes
	return cut(what + strings.ReplaceAll(err.Error(), name, some))
}

// refusedForGood says whether the API server would refuse the same creation again. What is
// forbidden need not stay so: a quota is full for now, a webhook or a policy looks at more than
// the run, a right was taken for a while.
func refusedForGood(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// problems is invalid, asked once for each generation: it compiles all expressions of the
// template, and there is a pass each minute. What was accepted is not asked about again, by who
// takes over either: its slots would be late by the line for a desk.
func (r *Reconciler) problems(ctx context.Context, m *memory, s *v1alpha1.Schedule, run *v1alpha1.WorkflowRun) (string, error) {
	if m.checked != s.Generation && m.answered(s) {
		m.checked, m.wrong = s.Generation, ""
	}
	if m.checked != s.Generation {
		m.long = s.Generation
		early, cancel := r.Driven.Early(ctx, s.UID) // who hands over waits for its end
		defer cancel()
		wrong, err := r.invalid(early, run)
		if err != nil {
			return "", fmt.Errorf("validate the template: %w", err)
		}
		m.checked, m.wrong = s.Generation, wrong
	}
	return m.wrong, nil
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}
