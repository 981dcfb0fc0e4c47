// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// history follows every status write of a world's runs, as a watch of the API server tells
// it, whoever wrote.
type history struct {
	// see is called for each version of a run with the one before it (nil at first), and when it
	// was seen. It is called by one goroutine and must be quick: the API server drops watchers that
	// fall behind for long.
	see func(was, next *v1alpha1.WorkflowRun, at time.Time)

	mu     sync.Mutex
	last   map[types.UID]*v1alpha1.WorkflowRun
	writes int
	broken string // why the history is not whole; "": it is
}

// follow begins a history that ends with the test. Runs must be created after it.
func (w *world) follow(ctx context.Context, see func(was, next *v1alpha1.WorkflowRun, at time.Time)) *history {
	w.tb.Helper()
	h := &history{see: see, last: map[types.UID]*v1alpha1.WorkflowRun{}}
	var list v1alpha1.WorkflowRunList
	if err := site.k8s.List(ctx, &list, client.InNamespace(w.namespace)); err != nil {
		w.tb.Fatal(err)
	}
	// The API server ends watches from time to time; the retry watcher goes on where it was, so no
	// version is missed.
	watcher, err := watchtools.NewRetryWatcherWithContext(context.WithoutCancel(ctx), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return site.k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, &client.ListOptions{Namespace: w.namespace, Raw: &o})
		},
	})
	if err != nil {
		w.tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range watcher.ResultChan() {
			h.take(e, time.Now())
		}
	}()
	w.tb.Cleanup(func() {
		watcher.Stop()
		<-done
	})
	return h
}

func (h *history) take(e watch.Event, at time.Time) {
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
	}
}

// finished counts the runs that ended.
func (h *history) finished() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, run := range h.last {
		if !run.Unwritten() && run.Status.CompletedAt != nil {
			n++
		}
	}
	return n
}

// awaitFinished waits for the end of all runs.
func (h *history) awaitFinished(ctx context.Context, tb testing.TB, patience time.Duration, count int) {
	tb.Helper()
	await(ctx, tb, patience, "all runs end", func() string {
		n := h.finished()
		h.mu.Lock()
		defer h.mu.Unlock()
		switch {
		case h.broken != "":
			return h.broken
		case n < count:
			return fmt.Sprintf("%d of %d did", n, count)
		default:
			return ""
		}
	})
}

// awaitVersions waits until the history has seen the given versions, so that nothing that was
// written before them is missing.
func (h *history) awaitVersions(ctx context.Context, tb testing.TB, patience time.Duration, runs []v1alpha1.WorkflowRun) {
	tb.Helper()
	await(ctx, tb, patience, "the watch tells of the last writes", func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range runs {
			if seen := h.last[runs[i].UID]; seen == nil || seen.ResourceVersion != runs[i].ResourceVersion {
				return runs[i].Name + " " + h.broken
			}
		}
		return ""
	})
}
