// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// history checks every state of the runs of a world as the API server reports it.
type history struct {
	mu       sync.Mutex
	last     map[string]*v1alpha1.WorkflowRun
	writes   int
	holders  map[string]int
	authors  map[string][]author // of each run, by its UID
	problems []string
}

// record watches the runs of a world until ctx ends.
func (w *world) record(ctx context.Context) *history {
	GinkgoHelper()
	h := &history{last: map[string]*v1alpha1.WorkflowRun{}, holders: map[string]int{}, authors: map[string][]author{}}
	// The API server drops watchers that fall behind; the retry watcher goes on where it was
	// dropped, so no state is missed.
	var list v1alpha1.WorkflowRunList
	Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: w.namespace, Raw: &o})
		},
	})
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			h.see(e)
		}
	}()
	DeferCleanup(func() {
		watcher.Stop()
		<-done
	})
	return h
}

func (h *history) see(e watch.Event) {
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	if !ok || e.Type != watch.Modified || run.Unwritten() || run.Status.Fence == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes++
	h.holders[run.Status.Lock.Holder]++
	h.note(run)
	if before := h.last[run.Name]; before != nil {
		h.compare(before, run)
	}
	h.last[run.Name] = run
}

// compare checks one step of a run's history: I3, G2, G7.
func (h *history) compare(before, after *v1alpha1.WorkflowRun) {
	report := func(format string, args ...any) {
		h.problems = append(h.problems, after.Name+": "+fmt.Sprintf(format, args...))
	}
	b, a := before.Status, after.Status
	if *a.Fence < *b.Fence {
		report("fence went from %d to %d", *b.Fence, *a.Fence)
	}
	if *a.Fence == *b.Fence && a.Lock.LeaseID != b.Lock.LeaseID {
		report("fence %d of two leases", *a.Fence)
	}
	if b.CompletedAt != nil && a.Phase != b.Phase {
		report("phase went from %s to %s after the end", b.Phase, a.Phase)
	}
	for i := range b.Steps {
		if a.Steps[i].Attempt < b.Steps[i].Attempt || a.Steps[i].Attempt > b.Steps[i].Attempt+1 {
			report("step %s went from attempt %d to %d", b.Steps[i].Name, b.Steps[i].Attempt, a.Steps[i].Attempt)
		}
		if b.Steps[i].Phase == v1alpha1.StepSucceeded && a.Steps[i].Phase != v1alpha1.StepSucceeded {
			report("step %s left Succeeded for %s", b.Steps[i].Name, a.Steps[i].Phase)
		}
	}
}

var _ = Describe("two operators that both believe that they own everything", func() {
	It("dispatch nothing twice, lose no result, and never lower a fence", func(ctx context.Context) {
		const runs = 200
		w := newWorld(ctx)
		h := w.record(ctx)
		w.startManager(ctx, "left")
		w.startManager(ctx, "right")
		w.startWorker(ctx, 32, echo, "pair.work")
		begin := time.Now()
		spec := singleStep("pair.work")
		second := spec.Steps[0]
		second.Name, second.DependsOn = "more", []string{"work"}
		spec.Steps = append(spec.Steps, second)
		w.create(ctx, runs, spec)
		w.eventuallyAll(ctx, v1alpha1.RunSucceeded, runs)
		took := sinceStart(begin)
		w.expectEachOnce(2 * runs)
		Eventually(func(g Gomega) {
			h.mu.Lock()
			defer h.mu.Unlock()
			finished := 0
			for _, run := range h.last {
				if run.Status.CompletedAt != nil {
					finished++
				}
			}
			g.Expect(finished).To(Equal(runs))
		}).WithContext(ctx).Should(Succeed())
		h.mu.Lock()
		defer h.mu.Unlock()
		AddReportEntry("two operators", fmt.Sprintf("%d runs of 2 steps in %s, %d status writes, by holder %v", runs, took, h.writes, h.holders))
		Expect(h.problems).To(BeEmpty())
		Expect(h.holders).To(HaveLen(2), "both operators wrote")
	}, NodeTimeout(specTimeout))
})
