// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// aParent is a run that names the run report/u-1 as the child of its step sub.
func aParent() *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Name: "boss", Namespace: "team-a", UID: "u-p"},
		Status: &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Tenant: "acme", Steps: []v1alpha1.StepStatus{
			{Name: "sub", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "report", UID: "u-1"}},
		}},
	}
}

// ownedRun is a run that claims that parent.
func ownedRun(steps ...v1alpha1.Step) *v1alpha1.WorkflowRun {
	run := newRun(steps...)
	run.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(aParent(), v1alpha1.GroupVersion.WithKind("WorkflowRun"))}
	return run
}

// goneParent is what a run that it owns sees of the parent once that was deleted.
func goneParent() *Parent {
	return &Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p"}, Over: "is gone", Gone: true, Terminated: true}
}

// pinned is a parent with the claim that status has.
func pinned(p *Parent, claim v1alpha1.ParentStatus) *Parent {
	p.Claim = claim
	return p
}

func hold(name string, fence int64) v1alpha1.LockHold {
	return v1alpha1.LockHold{Name: name, Permits: 1, Fence: fence}
}

func ended1(parent *v1alpha1.WorkflowRun, phase v1alpha1.RunPhase, reason string) {
	parent.Status.Phase, parent.Status.CompletedAt = phase, bounds.Second(epoch)
	parent.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: reason}}
}

// orphaning has the parent end, as it is deleted without its child, which is at its clean-up.
func orphaning(child, parent *v1alpha1.WorkflowRun) {
	ended1(parent, v1alpha1.RunCancelled, v1alpha1.ReasonTerminated)
	parent.DeletionTimestamp, parent.Finalizers = bounds.Second(epoch), []string{metav1.FinalizerOrphanDependents}
	child.Status = &v1alpha1.WorkflowRunStatus{
		Parent: &v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "boss", Level: 2}, Ending: &v1alpha1.EndingStatus{},
	}
}

// mutation: each line of SeenParent and Parent.names that is left out makes this fail.
func TestWhatARunSeesOfItsParent(t *testing.T) {
	claim := v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "boss", Level: 2}
	for name, c := range map[string]struct {
		adjust func(child, parent *v1alpha1.WorkflowRun)
		want   *Parent
	}{
		"named":         {func(_, _ *v1alpha1.WorkflowRun) {}, &Parent{Claim: claim, Tenant: "acme", Named: true}},
		"not named yet": {func(_, p *v1alpha1.WorkflowRun) { p.Status.Steps[0].ChildRun.UID = "" }, &Parent{Claim: claim, Tenant: "acme"}},
		"with a share of the runs that may be below the one at the top": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Status.Steps[0].ChildRun = &v1alpha1.ChildRunStatus{Name: "report", Below: new(int32(24))}
			},
			&Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "boss", Level: 2, Below: new(int32(24))}, Tenant: "acme"},
		},
		"not known":        {func(_, p *v1alpha1.WorkflowRun) { p.Status.Steps[0].ChildRun = nil }, &Parent{Claim: claim, Tenant: "acme"}},
		"without status":   {func(_, p *v1alpha1.WorkflowRun) { p.Status = nil }, &Parent{Claim: claim}},
		"another named":    {func(_, p *v1alpha1.WorkflowRun) { p.Status.Steps[0].ChildRun.UID = "u-2" }, &Parent{Claim: claim, Tenant: "acme", Over: "has another run of this name as the child of step sub"}},
		"the step ended":   {func(_, p *v1alpha1.WorkflowRun) { p.Status.Steps[0].Phase = v1alpha1.StepCancelled }, &Parent{Claim: claim, Tenant: "acme", Named: true, Over: "does not wait for it: step sub is Cancelled"}},
		"it ended":         {func(_, p *v1alpha1.WorkflowRun) { ended1(p, v1alpha1.RunFailed, "StepFailed") }, &Parent{Claim: claim, Tenant: "acme", Named: true, Over: "ended as Failed (StepFailed)"}},
		"it ended at once": {func(_, p *v1alpha1.WorkflowRun) { ended1(p, v1alpha1.RunCancelled, v1alpha1.ReasonTerminated) }, &Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true, Over: "ended as Cancelled (Terminated)"}},
		"it ended as it was deleted with --cascade=orphan": {
			func(c, p *v1alpha1.WorkflowRun) { orphaning(c, p); c.Status.Ending = nil },
			&Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true, Over: "ended as Cancelled (Terminated)"},
		},
		"it ended as it was deleted with --cascade=orphan, and the run cleans up": {
			orphaning, &Parent{Claim: claim, Tenant: "acme", Named: true, Over: "ended as Cancelled (Terminated)"},
		},
		"it was terminated, and is deleted with --cascade=orphan, and the run cleans up": {
			func(c, p *v1alpha1.WorkflowRun) { orphaning(c, p); p.Spec.Shutdown = v1alpha1.ShutdownTerminate },
			&Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true, Over: "ended as Cancelled (Terminated)"},
		},
		"it ended as it was deleted with --cascade=foreground, and the run cleans up": {
			func(c, p *v1alpha1.WorkflowRun) {
				orphaning(c, p)
				p.Finalizers = []string{metav1.FinalizerDeleteDependents}
			},
			&Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true, Over: "ended as Cancelled (Terminated)"},
		},
		"it ended at once, has a finalizer of that name, and the run cleans up": {
			func(c, p *v1alpha1.WorkflowRun) { orphaning(c, p); p.DeletionTimestamp = nil },
			&Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true, Over: "ended as Cancelled (Terminated)"},
		},
		"it is to end":          {func(_, p *v1alpha1.WorkflowRun) { p.Spec.Shutdown = v1alpha1.ShutdownTerminate }, &Parent{Claim: claim, Tenant: "acme", Named: true, Terminated: true}},
		"it is to be suspended": {func(_, p *v1alpha1.WorkflowRun) { p.Spec.Suspend = true }, &Parent{Claim: claim, Tenant: "acme", Named: true, Suspended: true}},
		"it is suspended":       {func(_, p *v1alpha1.WorkflowRun) { p.Status.Phase = v1alpha1.RunSuspended }, &Parent{Claim: claim, Tenant: "acme", Named: true, Suspended: true}},
		"it ended while it was suspended": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Spec.Suspend = true
				ended1(p, v1alpha1.RunCancelled, "Cancelled")
			},
			&Parent{Claim: claim, Tenant: "acme", Named: true, Over: "ended as Cancelled (Cancelled)"},
		},
		"the step ended while it was suspended": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Spec.Suspend = true
				p.Status.Steps[0].Phase = v1alpha1.StepCancelled
			},
			&Parent{Claim: claim, Tenant: "acme", Named: true, Over: "does not wait for it: step sub is Cancelled"},
		},
		"another of its name": {func(_, p *v1alpha1.WorkflowRun) { p.UID = "u-q" }, goneParent()},
		"gone, and the run cleans up": {func(c, p *v1alpha1.WorkflowRun) {
			p.UID = "u-q"
			c.Status = &v1alpha1.WorkflowRunStatus{Parent: claim.DeepCopy(), Ending: &v1alpha1.EndingStatus{}}
		}, pinned(goneParent(), claim)},
		"gone, and the run, which was taken from it, is under way": {func(c, p *v1alpha1.WorkflowRun) {
			p.UID, c.OwnerReferences = "u-q", nil
			c.Status = &v1alpha1.WorkflowRunStatus{Parent: claim.DeepCopy()}
		}, pinned(goneParent(), claim)},
		"gone, and the run, which was taken from it, cleans up": {func(c, p *v1alpha1.WorkflowRun) {
			p.UID, c.OwnerReferences = "u-q", nil
			c.Status = &v1alpha1.WorkflowRunStatus{Parent: claim.DeepCopy(), Ending: &v1alpha1.EndingStatus{}}
		}, pinned(&Parent{Over: "is gone", Gone: true}, claim)},
		"a child itself": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Status.Parent = &v1alpha1.ParentStatus{Name: "top", UID: "u-t", Root: "top"}
			},
			&Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "top", Level: 3}, Tenant: "acme", Named: true},
		},
		"a child further down": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Status.Parent = &v1alpha1.ParentStatus{Name: "top", UID: "u-t", Root: "top", Level: 4}
			},
			&Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "top", Level: 5}, Tenant: "acme", Named: true},
		},
		"a child deeper than status can say": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Status.Parent = &v1alpha1.ParentStatus{Name: "top", UID: "u-t", Root: "top", Level: bounds.MaxLevel}
			},
			&Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p", Root: "top", Level: bounds.MaxLevel}, Tenant: "acme", Named: true},
		},
		"inside of locks": {
			func(_, p *v1alpha1.WorkflowRun) {
				p.Status.Parent = &v1alpha1.ParentStatus{Name: "top", UID: "u-t", Root: "top", Locks: []v1alpha1.LockHold{hold("top", 3)}}
				p.Status.Locks = []v1alpha1.LockHold{hold("run", 4)}
				p.Status.Steps[0].Locks = []v1alpha1.LockHold{hold("step", 5)}
				p.Status.Steps = append(p.Status.Steps, v1alpha1.StepStatus{Name: "other", Locks: []v1alpha1.LockHold{hold("other", 6)}})
			},
			&Parent{Claim: v1alpha1.ParentStatus{
				Name: "boss", UID: "u-p", Root: "top", Level: 3, Locks: []v1alpha1.LockHold{hold("top", 3), hold("run", 4), hold("step", 5)},
			}, Tenant: "acme", Named: true},
		},
		"no owner":          {func(c, _ *v1alpha1.WorkflowRun) { c.OwnerReferences = nil }, nil},
		"no controller":     {func(c, _ *v1alpha1.WorkflowRun) { c.OwnerReferences[0].Controller = nil }, nil},
		"another kind":      {func(c, _ *v1alpha1.WorkflowRun) { c.OwnerReferences[0].Kind = "CronRun" }, nil},
		"an owner too late": {func(c, _ *v1alpha1.WorkflowRun) { c.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(1))} }, nil},
		"an owner taken away": {func(c, _ *v1alpha1.WorkflowRun) {
			c.OwnerReferences, c.Status = nil, &v1alpha1.WorkflowRunStatus{Fence: new(int64(1)), Parent: &v1alpha1.ParentStatus{Name: "boss", UID: "u-p"}}
		}, &Parent{Claim: claim, Tenant: "acme", Named: true}},
	} {
		t.Run(name, func(t *testing.T) {
			child, parent := ownedRun(newStep("a")), aParent()
			c.adjust(child, parent)
			if diff := cmp.Diff(c.want, facts.SeenParent(child, parent)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mutation: SeenParent that has a run follow the pause of one that ended, or that does not wait for
// it any more, makes this fail.
func TestAChildOfARunThatEndedWhileItWasSuspendedCleansUp(t *testing.T) {
	for name, end := range map[string]func(parent *v1alpha1.WorkflowRun){
		"it ended": func(parent *v1alpha1.WorkflowRun) { ended1(parent, v1alpha1.RunCancelled, "Cancelled") },
		"it was cancelled, and its own clean-up waits": func(parent *v1alpha1.WorkflowRun) {
			parent.Status.Ending = &v1alpha1.EndingStatus{Phase: v1alpha1.RunCancelled, Reason: v1alpha1.ReasonCancelled, AnnouncedAt: *bounds.Micro(epoch)}
			parent.Status.Steps[0].Phase = v1alpha1.StepCancelled
		},
	} {
		t.Run(name, func(t *testing.T) {
			run, parent := ownedRun(newStep("a")), aParent()
			run.Spec.Finally = []v1alpha1.Step{newStep("f")}
			in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1), Parent: facts.SeenParent(run, parent)})
			run.Status = persisted(t, new(Decide(in).Status))
			parent.Spec.Suspend, parent.Status.Phase = true, v1alpha1.RunSuspended
			in.Parent = facts.SeenParent(run, parent)
			run.Status = persisted(t, new(Decide(in).Status))
			end(parent)
			in.Parent = facts.SeenParent(run, parent)
			out := Decide(in)
			if len(out.Dispatch) != 1 || out.Dispatch[0].ID.Step != "f" || out.Status.Phase != v1alpha1.RunRunning {
				t.Errorf("dispatched %v, the run is %s", names(out.Dispatch), outcomeOf(&out.Status))
			}
		})
	}
}

func (s *story) seeing(parent *v1alpha1.WorkflowRun) { s.parent = facts.SeenParent(s.run, parent) }

// mutation: Decide without the stage parent, also without the lock, makes this fail; and finish
// for the terminated.
func TestARunEndsWithItsParent(t *testing.T) {
	over := &Parent{Claim: v1alpha1.ParentStatus{Name: "boss", UID: "u-p"}, Over: "ended as Failed (StepFailed)"}
	gone := goneParent()
	terminated := &Parent{Claim: gone.Claim, Terminated: true, Over: "ended as Cancelled (Terminated)"}
	for name, c := range map[string]struct {
		parent   *Parent
		lock     Lock
		results  []Result
		admitted bool
		want     string
	}{
		"over":                                   {over, held(1), nil, true, "Running/Finalizing"},
		"over, while the lock is busy":           {over, busy(), nil, true, "Running/Finalizing"},
		"over, while Redis is down":              {over, unavailable(), nil, true, "Running/WaitingForLock"},
		"over, before it was let in":             {over, held(1), nil, false, "Cancelled/Cancelled"},
		"over, before it was written":            {over, busy(), nil, false, "Cancelled/Cancelled"},
		"gone":                                   {gone, held(1), nil, true, "Cancelled/Terminated"},
		"gone, while the lock is busy":           {gone, busy(), nil, true, "Cancelled/Terminated"},
		"gone, while Redis is down":              {gone, unavailable(), nil, true, "Cancelled/Terminated"},
		"gone, before it was let in":             {gone, held(1), nil, false, "Cancelled/Terminated"},
		"gone, before it was written":            {gone, busy(), nil, false, "Cancelled/Terminated"},
		"terminated":                             {terminated, held(1), nil, true, "Cancelled/Terminated"},
		"terminated, while the lock is busy":     {terminated, busy(), nil, true, "Cancelled/Terminated"},
		"over, as the last result arrives":       {over, held(1), []Result{succeeded("a", 1, `{}`)}, true, "Running/Finalizing"},
		"gone, as the last result arrives":       {gone, held(1), []Result{succeeded("a", 1, `{}`)}, true, "Cancelled/Terminated"},
		"terminated, as the last result arrives": {terminated, held(1), []Result{succeeded("a", 1, `{}`)}, true, "Cancelled/Terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			run := ownedRun(newStep("a"))
			run.Spec.Finally = []v1alpha1.Step{newStep("f")}
			in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1), Parent: facts.SeenParent(run, aParent())})
			if c.admitted {
				run.Status = persisted(t, new(Decide(in).Status))
			}
			in.Lock, in.Parent, in.Results = c.lock, c.parent, c.results
			out := Decide(in)
			if got := outcomeOf(&out.Status); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if out.Status.Parent == nil || out.Status.Parent.UID != "u-p" {
				t.Errorf("pinned %+v", out.Status.Parent)
			}
		})
	}
}

// A child is asked for neither gate nor key; a run that only claims to be one is not let in by
// an open gate.
// mutation: admit without the case of a parent makes this fail.
func TestAChildNeedsNoGate(t *testing.T) {
	for name, c := range map[string]struct {
		adjust   func(*Parent)
		admitted bool
	}{
		"named":     {func(*Parent) {}, true},
		"not named": {func(p *Parent) { p.Named = false }, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := ownedRun(newStep("a"))
			run.Spec.IdempotencyKey = "k"
			in := letIn(Input{Run: run, Now: epoch.Add(time.Hour), Lock: held(1), Parent: facts.SeenParent(run, aParent())})
			c.adjust(in.Parent)
			in.Tenant = Tenant{Name: "other"}
			in.Policy = &v1alpha1.PolicyReference{Name: "p"}
			out := Decide(in)
			if status.Admitted(&out.Status) != c.admitted || out.Needs.Any() || out.Status.Tenant != "acme" || out.Status.Admission.Policy != "" {
				t.Errorf("needs %+v, tenant %s, admission %+v", out.Needs, out.Status.Tenant, out.Status.Admission)
			}
			got := status.Condition(&out.Status, v1alpha1.ConditionAdmitted)
			if want := map[bool]string{true: "under the slot of run boss", false: "Waits for run boss"}[c.admitted]; !strings.Contains(got.Message, want) {
				t.Errorf("%s: %s", got.Reason, got.Message)
			}
			in.Gate = Gate{State: GateFull}
			if again := Decide(in); status.Admitted(&again.Status) != c.admitted {
				t.Error("a gate was asked")
			}
		})
	}
}
