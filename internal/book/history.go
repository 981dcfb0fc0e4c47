// SPDX-License-Identifier: Apache-2.0

package book

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// History follows every status write of the runs of a namespace, as a watch of the API server tells
// it, whoever wrote.
type History struct {
	// see is called for each version of a run with the one before it (nil at first), and when it
	// was seen. It is called by one goroutine and must be quick: the API server drops watchers that
	// fall behind for long.
	see func(was, next *v1alpha1.WorkflowRun, at time.Time)

	mu     sync.Mutex
	last   map[types.UID]*v1alpha1.WorkflowRun
	seen   map[string]bool // by versionOf
	writes int
	broken string // why the history is not whole; "": it is
}

func newHistory(see func(was, next *v1alpha1.WorkflowRun, at time.Time)) *History {
	return &History{see: see, last: map[types.UID]*v1alpha1.WorkflowRun{}, seen: map[string]bool{}}
}

// Follow begins the history of a namespace, until stop. Runs must be created after it.
func Follow(ctx context.Context, k8s client.WithWatch, namespace string, see func(was, next *v1alpha1.WorkflowRun, at time.Time)) (h *History, stop func(), err error) {
	h = newHistory(see)
	var list v1alpha1.WorkflowRunList
	if err := k8s.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	// The API server ends watches from time to time; the retry watcher goes on where it was, so no
	// version is missed.
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: namespace, Raw: &o})
		},
	})
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			h.take(e, clock.RealClock{}.Now())
		}
	}()
	return h, func() {
		watcher.Stop()
		<-done
	}, nil
}

func (h *History) take(e watch.Event, at time.Time) {
	run, ok := e.Object.(*v1alpha1.WorkflowRun)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !ok && e.Type == watch.Error:
		h.broken = fmt.Sprintf("the watch ended: %v", e.Object)
	case !ok || e.Type == watch.Deleted || e.Type == watch.Bookmark:
	default:
		if e.Type == watch.Modified {
			h.writes++
		}
		h.see(h.last[run.UID], run, at)
		h.last[run.UID] = run
		h.seen[versionOf(run)] = true
	}
}

// Finished counts the runs that ended. broken says why the history is not whole; "": it is.
func (h *History) Finished() (n int, broken string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, run := range h.last {
		if !run.Unwritten() && run.Status.CompletedAt != nil {
			n++
		}
	}
	return n, h.broken
}

// Has says which of these versions the history has not seen; "": it has all, so nothing that was
// written before them is missing. The runs may have been written since.
func (h *History) Has(runs []v1alpha1.WorkflowRun) (missing string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range runs {
		if !h.seen[versionOf(&runs[i])] {
			return runs[i].Name + " " + h.broken
		}
	}
	return ""
}

func versionOf(run *v1alpha1.WorkflowRun) string { return string(run.UID) + "/" + run.ResourceVersion }

// Size is how many runs and writes there were.
func (h *History) Size() (runs, writes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.last), h.writes
}
