// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// plainFact says what a run says of each of its tickets, by a look at all of its steps for each.
type plainFact struct {
	uid     types.UID
	tickets map[string]Part
	parts   []string
	status  *v1alpha1.WorkflowRunStatus
}

func plainFactOf(run *v1alpha1.WorkflowRun) plainFact {
	f := plainFact{uid: run.UID, tickets: map[string]Part{}, parts: plainPartsOf(run), status: run.Status}
	for _, ticket := range plainTicketsOf(run) {
		f.tickets[ticket] = partOfTicket(f.status, ticket)
	}
	return f
}

func (f plainFact) part(ticket string) (p Part, ok bool) {
	if p, ok = f.tickets[ticket]; ok || f.uid != uidOf(ticket) {
		return p, ok
	}
	_, part, _ := strings.Cut(ticket, "/")
	step, _, ofItem := strings.Cut(part, "/")
	if !ofItem || !slices.Contains(f.parts, step+"/") {
		return Part{}, false
	}
	return partOfTicket(f.status, ticket), true
}

func plainTicketsOf(run *v1alpha1.WorkflowRun) []string {
	var all []string
	for _, part := range plainPartsOf(run) {
		if _, ofItems := strings.CutSuffix(part, "/"); !ofItems {
			all = append(all, TicketOf(run.UID, part))
		}
	}
	for _, s := range stepsOf(run) {
		if s.ForEach == nil {
			continue
		}
		for _, l := range s.ForEach.Locks {
			all = append(all, TicketOf(run.UID, l.Part(s.Name)))
		}
	}
	return all
}

func plainPartsOf(run *v1alpha1.WorkflowRun) []string {
	var all []string
	if run.Spec.WorkflowRef != nil {
		all = append(all, "")
		for _, s := range stepsOf(run) {
			all = append(all, s.Name, s.Name+"/")
		}
		return all
	}
	if len(run.Spec.Locks) > 0 {
		all = append(all, "")
	}
	for _, steps := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range steps {
			if len(steps[i].Locks) > 0 {
				all = append(all, steps[i].Name)
			}
			if f := steps[i].ForEach; f != nil && len(f.Locks) > 0 {
				all = append(all, steps[i].Name+"/")
			}
		}
	}
	return all
}

// runByChance is a run with some steps and locks, of which it holds some, waits for some, and has
// some that it does not declare.
func runByChance(r *rand.Rand) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{}
	run.UID, run.Name, run.Namespace = "r", "r", "ns"
	some := []v1alpha1.LockRequest{{Mutex: "x"}}
	chance := func() bool { return r.IntN(2) == 0 }
	if chance() {
		run.Spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"}
	} else {
		if chance() {
			run.Spec.Locks = some
		}
		for i := range 4 {
			step := v1alpha1.Step{Name: fmt.Sprint("s", i)}
			if chance() {
				step.Locks = some
			}
			if chance() {
				step.ForEach = &v1alpha1.ForEach{}
				if chance() {
					step.ForEach.Locks = some
				}
			}
			run.Spec.Steps = append(run.Spec.Steps, step)
		}
		run.Spec.Finally, run.Spec.Steps = run.Spec.Steps[3:], run.Spec.Steps[:3]
	}
	if r.IntN(8) == 0 {
		return run
	}
	run.Status = &v1alpha1.WorkflowRunStatus{}
	if r.IntN(4) == 0 {
		run.Status.CompletedAt = &metav1.Time{}
	}
	held := func() []v1alpha1.LockHold {
		if chance() {
			return nil
		}
		return []v1alpha1.LockHold{{Name: "a", Permits: 1, Fence: 1 + r.Int64N(9)}}
	}
	wait := func() *v1alpha1.LocksWait {
		if chance() {
			return nil
		}
		return &v1alpha1.LocksWait{Lock: "a"}
	}
	run.Status.Locks, run.Status.Admission = held(), &v1alpha1.AdmissionStatus{LockWait: wait()}
	phases := []v1alpha1.StepPhase{v1alpha1.StepPending, v1alpha1.StepRunning, v1alpha1.StepSucceeded, v1alpha1.StepCancelled}
	for i := range 5 {
		s := v1alpha1.StepStatus{Name: fmt.Sprint("s", i), Phase: phases[r.IntN(len(phases))], Locks: held(), LockWait: wait()}
		if chance() {
			s.ForEach = &v1alpha1.ForEachStatus{Begun: r.Int32N(4), Groups: []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepRunning}}}
			for item := range r.Int32N(4) {
				s.ForEach.Locks = append(s.ForEach.Locks, v1alpha1.ItemLocks{Item: item, Locks: held(), LockWait: wait()})
			}
		}
		run.Status.Steps = append(run.Status.Steps, s)
	}
	return run
}

// mutations: tickets that has what is not declared, that leaves out items, or those of finally, and
// part that takes each step of a run for one with locks, make this fail.
func TestWhatARunSaysOfItsTicketsIsWhatItsStatusSays(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		run := runByChance(r)
		want, got := plainFactOf(run), factOf(run)
		all := []string{"r", "r/", "other", "other/s0", "r/none", "r/none/1"}
		for i := range 6 {
			all = append(all, fmt.Sprint("r/s", i))
			for item := range 4 {
				all = append(all, fmt.Sprint("r/s", i, "/", item), fmt.Sprint("r/s", i, "/0", item))
			}
			all = append(all, fmt.Sprint("r/s", i, "/odd"), fmt.Sprint("r/s", i, "/"))
		}
		for _, ticket := range all {
			p, ok := want.part(ticket)
			if q, is := got.part(ticket); is != ok || !cmp.Equal(p, q) {
				t.Fatalf("%s: %+v, %t, want %+v, %t\n%+v", ticket, q, is, p, ok, run)
			}
		}
		live := map[string]Part{}
		for ticket, p := range want.tickets {
			if !p.Over && (len(p.Holds) > 0 || p.Waits) {
				live[ticket] = p
			}
		}
		for ticket, p := range got.tickets {
			if p.Over || len(p.Holds) == 0 && !p.Waits {
				delete(got.tickets, ticket)
			}
		}
		if diff := cmp.Diff(live, got.tickets); diff != "" {
			t.Fatalf("holds and waits: want -, got +\n%s\n%+v", diff, run)
		}
		if !slices.Equal(plainTicketsOf(run), TicketsOf(run)) {
			t.Fatalf("tickets: %v, want %v", TicketsOf(run), plainTicketsOf(run))
		}
	}
}

// Most runs that there are have ended, and a resync looks at all of them each half minute: their
// steps cost it nothing. Of those under way it keeps what holds or waits.
//
// mutations: factOf that looks at the steps of a run that ended, or that keeps each step,
// makes this fail.
func TestStepsWithoutLocksCostAResyncNothing(t *testing.T) {
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{}}
	run.UID, run.Name, run.Namespace, run.Spec.WorkflowRef = "r", "r", "ns", &v1alpha1.WorkflowReference{Name: "w"}
	for i := range 200 {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprint("s", i), Phase: v1alpha1.StepRunning})
	}
	cost := func() float64 { return testing.AllocsPerRun(10, func() { factOf(run) }) }
	if n := cost(); n > 20 {
		t.Errorf("%v allocations for a run under way", n)
	}
	run.Status.Steps[7].Locks = []v1alpha1.LockHold{{Name: "a", Permits: 1, Fence: 1}}
	if f := factOf(run); len(f.tickets) != 1 {
		t.Errorf("%d parts are kept, want that with a lock", len(f.tickets))
	}
	run.Status.CompletedAt = &metav1.Time{}
	for i := range run.Status.Steps {
		run.Status.Steps[i].Locks = run.Status.Steps[7].Locks
	}
	if n := cost(); n > 20 {
		t.Errorf("%v allocations for a run that ended", n)
	}
	s := store.LocksSnapshot{Holds: []store.Holding{{Ticket: store.Ticket{ID: "r/s9"}}}, Waiters: []store.Waiter{{Ticket: store.Ticket{ID: "r/s8"}}}}
	if f := audit(map[types.UID]fact{"r": factOf(run)}, s, oneEach, noneRated, noneBelow); len(f.drop) != 2 {
		t.Errorf("drops %v, want what Redis has of it", f.drop)
	}
}
