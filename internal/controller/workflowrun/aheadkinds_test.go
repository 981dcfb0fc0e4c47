// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// mode is one of spec.checkpoint. What a spec demands of one mode it demands of the other.
type mode struct {
	name    string
	replica func(ctx context.Context, w *world, holder string) *replica
}

var modes = []mode{
	{"", func(ctx context.Context, w *world, holder string) *replica { return w.newReplica(ctx, holder) }},
	{" (ahead)", func(ctx context.Context, w *world, holder string) *replica {
		w.coalesced(ctx)
		return w.newReplica(ctx, holder, here)
	}},
}

// inModes makes a spec in each mode.
func inModes(text string, body func(ctx SpecContext, m mode)) {
	for _, m := range modes {
		It(text+m.name, matrix, func(ctx SpecContext) { body(ctx, m) }, NodeTimeout(2*patience))
	}
}

// shape is a kind of run.
type shape struct {
	steps func(w *world) []v1alpha1.Step
	jobs  int                             // that are stored until the run has ended
	ends  func(end *v1alpha1.WorkflowRun) // checks the end
	spec  func(*v1alpha1.WorkflowRunSpec) // nil: as it is
}

func withInput(s v1alpha1.Step, input string) v1alpha1.Step {
	s.Job.Input = &runtime.RawExtension{Raw: []byte(input)}
	return s
}

func withItems(s v1alpha1.Step, items string) v1alpha1.Step {
	s.ForEach = &v1alpha1.ForEach{Items: items, MaxParallel: 2}
	return withInput(s, `{"n":"${item}"}`)
}

func continued(s v1alpha1.Step) v1alpha1.Step {
	s.OnFailure = v1alpha1.FailureContinue
	return s
}

func only(s v1alpha1.Step, when string) v1alpha1.Step {
	s.When = when
	return s
}

// phaseOf wants a phase of a step.
func phaseOf(name string, phase v1alpha1.StepPhase) func(*v1alpha1.WorkflowRun) {
	return func(end *v1alpha1.WorkflowRun) {
		GinkgoHelper()
		Expect(stepOf(end, name).Phase).To(Equal(phase), "step %s", name)
	}
}

// shapes have something between their first and their last step: what may come before the write of
// status, and what may not. Steps are answered by their names: see answer.
var shapes = map[string]shape{
	"a condition that holds, and one that does not": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{
				step("first"), only(step("yes", "first"), `has(steps.first.output.job)`), only(step("no", "yes"), `steps.yes.phase == 'Failed'`), step("last", "no"),
			}
		},
		jobs: 3, ends: phaseOf("no", v1alpha1.StepSkipped),
	},
	"a failure that does not matter": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{step("first"), continued(step("bad", "first")), step("last", "bad")}
		},
		jobs: 3, ends: phaseOf("bad", v1alpha1.StepFailed),
	},
	"inputs made of outputs": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{step("first"), withInput(step("reads", "first"), `{"of":"${steps.first.output.job}"}`), withInput(step("last", "reads"), `{"of":"${steps.reads.output.job}"}`)}
		},
		jobs: 3, ends: phaseOf("reads", v1alpha1.StepSucceeded),
	},
	"items": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{step("first"), withItems(step("all", "first"), `${[1, 2, 3]}`), withInput(step("last", "all"), `{"n":"${size(steps.all.output)}"}`)}
		},
		jobs: 5, ends: func(end *v1alpha1.WorkflowRun) { Expect(stepOf(end, "all").ForEach.Succeeded).To(BeEquivalentTo(3)) },
	},
	"a child run": {
		steps: func(w *world) []v1alpha1.Step { return w.parentOf(draws) },
		jobs:  3, ends: phaseOf("sub", v1alpha1.StepSucceeded),
	},
	"an output that its worker put into the object store": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{step("first"), step("large", "first"), withInput(step("last", "large"), `{"n":"${steps.large.output.n}"}`)}
		},
		jobs: 3, ends: func(end *v1alpha1.WorkflowRun) { Expect(stepOf(end, "large").OutputRef).NotTo(BeNil()) },
	},
	"an output too large for status": {
		steps: func(*world) []v1alpha1.Step {
			return []v1alpha1.Step{step("first"), step("wide", "first"), withInput(step("last", "wide"), `{"n":"${steps.wide.output.n}"}`)}
		},
		jobs: 3, ends: func(end *v1alpha1.WorkflowRun) { Expect(stepOf(end, "wide").OutputRef).NotTo(BeNil()) },
	},
	"clean-up": {
		steps: func(*world) []v1alpha1.Step { return chainOf(2) },
		spec:  func(s *v1alpha1.WorkflowRunSpec) { s.Finally = []v1alpha1.Step{step("tidy"), step("sweep", "tidy")} },
		jobs:  4, ends: phaseOf("sweep", v1alpha1.StepSucceeded),
	},
}

func (s shape) create(ctx context.Context, w *world) *v1alpha1.WorkflowRun {
	return w.create(ctx, s.steps(w), func(spec *v1alpha1.WorkflowRunSpec) {
		if s.spec != nil {
			s.spec(spec)
		}
	})
}

// answer does all jobs that wait, each by the name of its step.
func (w *world) answer(ctx context.Context) {
	for _, t := range w.take(ctx) {
		switch t.id.Step {
		case "bad":
			t.say(ctx, `{"status":"Failed","final":true,"error":{"code":"E"}}`)
		case "large":
			t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
		case "wide":
			t.say(ctx, `{"status":"Succeeded","output":`+large(10<<10)+`}`)
		default:
			t.say(ctx, succeeded(t.id))
		}
		Expect(t.msg.DoubleAck(ctx)).To(Succeed())
	}
}

// play makes passes over all runs, with the worker at work, until all have ended or the replica is
// dead. The clock moves when there is nothing else to do.
func (r *replica) play(ctx context.Context) {
	GinkgoHelper()
	until(ctx, "all runs end", func() bool {
		ended, news := true, 0
		runs, stored := r.w.all(ctx), r.w.jobsStored(ctx)
		for i := range runs {
			news += r.pump(ctx)
			_, _ = r.pass(ctx, &runs[i])
			ended = ended && lifecycle.Finished(&runs[i])
		}
		if ended || r.dead.Load() {
			return true
		}
		if news == 0 && r.w.jobsStored(ctx) == stored {
			r.w.clock.Step(100 * time.Millisecond)
		}
		Expect(r.router.Orphans().Sort(ctx)).To(Succeed())
		r.w.answer(ctx)
		return false
	})
}

// doAt does something when the replica gets to a place for the nth time. If it dies, nothing leaves
// it any more.
func (r *replica) doAt(place string, n int, dies bool, do func()) {
	var count atomic.Int64
	r.hook = func(ctx context.Context, at string) error {
		if at != place || count.Add(1) != int64(n) {
			return nil
		}
		do()
		if dies {
			r.kill(context.WithoutCancel(ctx))
			return errDead
		}
		return nil
	}
}

// Mutations that make specs below fail: see ahead_test.go.
var _ = Describe("a run that may be ahead of its status, with", func() {
	for name, s := range shapes {
		for _, p := range []struct {
			place string
			nth   int
		}{{"", 0}, {"publish/before", 2}, {"publish/after", 2}, {"publish/after", 3}, {"status/before", 1}, {"status/after", 1}, {"status/after", 2}, {"settle/before", 1}} {
			It(fmt.Sprintf("%s, ends as it should, whatever crashes (%s %d)", name, p.place, p.nth), matrix, func(ctx SpecContext) {
				w := newWorld(ctx, withWindow(tinyWindow))
				w.coalesced(ctx)
				r := w.newReplica(ctx, "first", here)
				run := s.create(ctx, w)
				if p.place != "" {
					r.killAt(p.place, p.nth)
					r.play(ctx)
					w.outliveWindow(ctx)
					for _, one := range w.all(ctx) {
						w.dropLock(ctx, &one)
					}
					r = w.newReplica(ctx, "second", here)
				}
				r.play(ctx)
				end := w.get(ctx, run)
				Expect(endOf(end)).To(Equal("Succeeded/Succeeded"), messageOf(end, v1alpha1.ConditionSucceeded))
				s.ends(end)
				r.drained(ctx, run)
				Expect(w.jobsStored(ctx)).To(Equal(s.jobs), "each attempt is stored exactly once")
				Expect(w.jobsQueued(ctx)).To(BeZero())
			}, NodeTimeout(2*patience))
		}
	}
})

// The moments are those at which something has left the process, or is about to, while status does
// not say so.
var _ = Describe("a wish at a moment at which the run is ahead of its status:", func() {
	wishes := map[string]struct {
		patch string
		end   string
	}{
		"suspend and resume": {`{"spec":{"suspend":true}}`, "Succeeded/Succeeded"},
		"cancel":             {`{"spec":{"shutdown":"Cancel"}}`, "Cancelled/Cancelled"},
		"terminate":          {`{"spec":{"shutdown":"Terminate"}}`, "Cancelled/Terminated"},
		"delete":             {"", ""},
	}
	for verb, wish := range wishes {
		for _, place := range []string{"publish/before", "publish/after", "status/before"} {
			for _, dies := range []bool{false, true} {
				nth := 1
				if strings.HasPrefix(place, "publish") {
					nth = 2
				}
				It(fmt.Sprintf("%s, at %s, for the %d. time; the process dies then: %t", verb, place, nth, dies), matrix, func(ctx SpecContext) {
					w := newWorld(ctx, withWindow(tinyWindow))
					w.policySpec(ctx, w.ns, v1alpha1.LockPolicySpec{RunLock: brief(), Checkpoint: v1alpha1.CheckpointPolicy{
						Mode: v1alpha1.CheckpointCoalesced, MaxResults: 2, MaxDelayMillis: longest,
					}})
					r := w.newReplica(ctx, "first", here)
					run := w.create(ctx, chainOf(4))
					done := false
					r.doAt(place, nth, dies, func() {
						done = true
						if wish.patch != "" {
							w.patch(ctx, run, wish.patch)
							return
						}
						last := w.get(ctx, run)
						Expect(w.client.Delete(ctx, run)).To(Succeed())
						r.Index.Remove(last, true)
					})
					until(ctx, "the moment comes", func() bool {
						r.pump(ctx)
						_, _ = r.pass(ctx, run)
						if !done {
							w.work(ctx)
						}
						return done
					})
					if dies {
						w.dropLock(ctx, run)
						r = w.newReplica(ctx, "second", here)
					}
					if verb == "suspend and resume" {
						r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
							w.work(ctx)
							return lifecycle.Finished(now) || (!now.Unwritten() && now.Status.Phase == v1alpha1.RunSuspended)
						})
						begun := w.jobsStored(ctx)
						for range 5 {
							w.work(ctx)
							r.turn(ctx, run)
						}
						Expect(w.jobsStored(ctx)).To(Equal(begun), "nothing begins while it is suspended")
						w.patch(ctx, run, `{"spec":{"suspend":false}}`)
					}
					if wish.end != "" {
						Expect(endOf(r.finish(ctx, run))).To(Equal(wish.end))
						r.drained(ctx, run)
					} else {
						r.turn(ctx, run)
					}
					Expect(r.GC.Round(ctx)).To(Succeed())
					Expect(w.jobsQueued(ctx)).To(BeZero())
					until(ctx, "the lock is free", func() bool { w.clock.Step(time.Second); return !w.locked(ctx, run) })
				}, NodeTimeout(2*patience))
			}
		}
	}
})
