// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/leases"
)

// history records each accepted write of each run, as a watch tells it: whoever wrote,
// by whatever way.
type history struct {
	watch watch.Interface
	done  sync.WaitGroup

	mu     sync.Mutex
	writes map[types.UID][]*v1alpha1.WorkflowRun
	// believed is what writers of this process take for stored, by uid and resourceVersion.
	believed map[types.UID]map[string]*v1alpha1.WorkflowRun
}

func newHistory(ctx context.Context, c client.WithWatch) *history {
	w, err := c.Watch(ctx, &v1alpha1.WorkflowRunList{})
	Expect(err).NotTo(HaveOccurred())
	h := &history{watch: w, writes: map[types.UID][]*v1alpha1.WorkflowRun{}, believed: map[types.UID]map[string]*v1alpha1.WorkflowRun{}}
	h.done.Go(func() {
		for e := range w.ResultChan() {
			if run, ok := e.Object.(*v1alpha1.WorkflowRun); ok && e.Type != watch.Deleted {
				h.mu.Lock()
				h.writes[run.UID] = append(h.writes[run.UID], run)
				h.mu.Unlock()
			}
		}
	})
	return h
}

func (h *history) stop() {
	h.watch.Stop()
	h.done.Wait()
}

// believe records what a writer goes on with after its write was accepted.
func (h *history) believe(run *v1alpha1.WorkflowRun) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.believed[run.UID] == nil {
		h.believed[run.UID] = map[string]*v1alpha1.WorkflowRun{}
	}
	h.believed[run.UID][run.ResourceVersion] = run.DeepCopy()
}

// checkBeliefs returns where a writer went on with another status or spec than the one that was
// stored. Writers do not read back what they wrote, so that must be exactly what is stored.
//
// mutation: times in nanoseconds, or outputs in the worker's own bytes, make this fail
// (bounds.Micro, bounds.Canonical).
func (h *history) checkBeliefs(versions []*v1alpha1.WorkflowRun) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var wrong []string
	for _, stored := range versions {
		believed := h.believed[stored.UID][stored.ResourceVersion]
		if believed == nil {
			continue
		}
		if diff := cmp.Diff(stored.Status, believed.Status, cmpopts.EquateEmpty()); diff != "" {
			wrong = append(wrong, fmt.Sprintf("run %s: status (-stored +believed):\n%s", stored.Name, diff))
		}
		if diff := cmp.Diff(stored.Spec, believed.Spec); diff != "" {
			wrong = append(wrong, fmt.Sprintf("run %s: spec (-stored +believed):\n%s", stored.Name, diff))
		}
	}
	return wrong
}

// of returns the versions of a run once the given one is among them.
func (h *history) of(uid types.UID, resourceVersion string) []*v1alpha1.WorkflowRun {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.writes[uid]
	if !slices.ContainsFunc(all, func(r *v1alpha1.WorkflowRun) bool { return r.ResourceVersion == resourceVersion }) {
		return nil
	}
	return slices.Clone(all)
}

// checkHistory returns what is wrong with the order of writes of one run.
func checkHistory(versions []*v1alpha1.WorkflowRun) []string {
	var wrong []string
	ends := map[string]int{}
	for i, next := range versions {
		if i == 0 || next.Unwritten() {
			continue
		}
		was := versions[i-1]
		at := fmt.Sprintf("run %s, write %d: ", next.Name, i)
		oldFence, oldLease := leases.FenceOf(was)
		fence, lease := leases.FenceOf(next)
		if fence < oldFence || (fence == oldFence && lease != oldLease) {
			wrong = append(wrong, at+fmt.Sprintf("fence %d of %q after %d of %q", fence, lease, oldFence, oldLease))
		}
		if was.Unwritten() {
			continue
		}
		if was.Status.CompletedAt != nil && was.Status.Phase != next.Status.Phase {
			wrong = append(wrong, at+"changed an end")
		}
		wrong = append(wrong, checkSteps(at, was.Status.Steps, next.Status.Steps, ends)...)
	}
	for attempt, n := range ends {
		if n > 1 {
			wrong = append(wrong, fmt.Sprintf("attempt %s ended %d times", attempt, n))
		}
	}
	return wrong
}

// checkSteps looks at each step of two writes in a row; ends counts how often each attempt ended.
func checkSteps(at string, was, next []v1alpha1.StepStatus, ends map[string]int) []string {
	var wrong []string
	for k := range next {
		if k >= len(was) {
			break
		}
		from, to := &was[k], &next[k]
		if to.Attempt < from.Attempt || to.Attempt > from.Attempt+1 {
			wrong = append(wrong, at+fmt.Sprintf("step %s: attempt %d after %d", to.Name, to.Attempt, from.Attempt))
		}
		if isInFlight(from.Phase) && (!isInFlight(to.Phase) || to.Attempt != from.Attempt) {
			attempt := from.JobID
			if attempt == "" {
				attempt = "of step " + from.Name // with items, or a child run
			}
			ends[attempt]++
		}
		if isEnded(from.Phase) && from.Phase != to.Phase {
			wrong = append(wrong, at+fmt.Sprintf("step %s: %s after %s", to.Name, to.Phase, from.Phase))
		}
	}
	return wrong
}

func isInFlight(p v1alpha1.StepPhase) bool {
	return p == v1alpha1.StepDispatched || p == v1alpha1.StepRunning
}

func isEnded(p v1alpha1.StepPhase) bool {
	switch p {
	case v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
		return true
	default:
		return false
	}
}
