// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// history is every state that the runs of a tenant had, in the order in which the API
// server accepted them.
type history struct {
	stop func() // watching, and waits until it ended

	mu       sync.Mutex
	tenant   string
	limit    int
	last     map[string]*v1alpha1.WorkflowRun
	inside   map[string]bool
	ended    map[string]bool
	holders  map[string]int
	most     int
	problems []string
}

// watchHistory watches the runs of a tenant in all namespaces until the spec ends.
func watchHistory(ctx context.Context, tenant string, limit int) *history {
	GinkgoHelper()
	h := &history{
		tenant: tenant, limit: limit, last: map[string]*v1alpha1.WorkflowRun{},
		inside: map[string]bool{}, ended: map[string]bool{}, holders: map[string]int{},
	}
	ctx, leave := context.WithCancel(context.WithoutCancel(ctx))
	watcher, err := h.begin(ctx)
	Expect(err).NotTo(HaveOccurred())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			h.follow(ctx, watcher)
			_ = wait.PollUntilContextCancel(ctx, pollInterval, false, func(ctx context.Context) (bool, error) {
				watcher, err = h.begin(ctx)
				return err == nil, nil
			})
		}
	}()
	h.stop = sync.OnceFunc(func() {
		leave()
		<-done
	})
	DeferCleanup(h.stop)
	return h
}

// begin reads all runs and watches them from then on. An API server ends a watch for good where it
// serves a kind anew, as after an upgrade of its definition.
func (h *history) begin(ctx context.Context) (*watchtools.RetryWatcher, error) {
	var list v1alpha1.WorkflowRunList
	if err := k8s.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		h.see(watch.Event{Type: watch.Modified, Object: &list.Items[i]})
	}
	return watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Raw: &o})
		},
	})
}

// follow sees what a watch tells, until it ends.
func (h *history) follow(ctx context.Context, watcher *watchtools.RetryWatcher) {
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, more := <-watcher.ResultChan():
			if !more {
				return
			}
			h.see(e)
		}
	}
}

func (h *history) see(e watch.Event) {
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	if !ok || run.Status == nil || run.Status.Tenant != h.tenant {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := run.Namespace + "/" + run.Name
	if before := h.last[key]; before != nil {
		h.compare(key, before.Status, run.Status)
	}
	h.last[key] = run
	if run.Status.Lock != nil {
		h.holders[run.Status.Lock.Holder]++
	}
	if isChild(run) {
		return
	}
	over := e.Type == watch.Deleted || run.Status.CompletedAt != nil
	if over {
		h.ended[key] = true
		delete(h.inside, key)
	} else if run.Status.Admission != nil && run.Status.Admission.AdmittedAt != nil && !h.inside[key] {
		h.inside[key] = true
		if len(h.inside) > h.limit {
			h.problems = append(h.problems, fmt.Sprintf("%s is the %dth run under way, the limit is %d", key, len(h.inside), h.limit))
		}
	}
	h.most = max(h.most, len(h.inside))
}

// compare checks one write.
func (h *history) compare(key string, before, after *v1alpha1.WorkflowRunStatus) {
	report := func(format string, args ...any) {
		h.problems = append(h.problems, key+": "+fmt.Sprintf(format, args...))
	}
	if before.Fence != nil && (after.Fence == nil || *after.Fence < *before.Fence) {
		report("fence went back from %d", *before.Fence)
	}
	if before.CompletedAt != nil && after.Phase != before.Phase {
		report("phase went from %s to %s after the end", before.Phase, after.Phase)
	}
	for i := range min(len(before.Steps), len(after.Steps)) {
		b, a := before.Steps[i], after.Steps[i]
		if a.Attempt < b.Attempt {
			report("step %s went from attempt %d to %d", a.Name, b.Attempt, a.Attempt)
		}
		if b.Phase == v1alpha1.StepSucceeded && a.Phase != v1alpha1.StepSucceeded {
			report("step %s went from Succeeded to %s", a.Name, a.Phase)
		}
	}
}

// allow changes the limit from now on.
func (h *history) allow(limit int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit = limit
}

func (h *history) done() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ended)
}

// writers is how many replicas wrote.
func (h *history) writers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holders)
}

// mostInside is how many runs were under way at the same time at most.
func (h *history) mostInside() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.most
}

func (h *history) expectKept() {
	GinkgoHelper()
	h.mu.Lock()
	defer h.mu.Unlock()
	Expect(h.problems).To(BeEmpty())
}
