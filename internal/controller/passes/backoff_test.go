// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// waits notes how long requests wait after errors.
type waits struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	of map[reconcile.Request][]time.Duration // of one worker
}

func (w waits) When(req reconcile.Request) time.Duration {
	wait := w.TypedRateLimiter.When(req)
	w.of[req] = append(w.of[req], wait)
	return wait
}

// The controller makes a pass that is not to wait in line, then one that fails, and so on: what
// waits in line is woken by an Add, as turns do. The last pass succeeds, and the next error is a
// first one again.
//
// mutations: Forget that always forgets, or never.
func TestTheWaitAfterErrorsGrowsWithTurnsInBetween(t *testing.T) {
	t.Parallel()
	const errorsInARow = 8
	var b Backoff
	var queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	noted := waits{b.Limiter(time.Microsecond, 16*time.Microsecond), map[reconcile.Request][]time.Duration{}}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "a"}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	passes, turn := 0, false
	c, err := controller.NewTypedUnmanaged("backoff", controller.Options{
		RateLimiter: noted, SkipNameValidation: new(true),
		Reconciler: UntilStop(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			if turn = !turn; turn {
				b.InLine(req)
				queue.Add(req)
				return reconcile.Result{}, nil
			}
			switch passes++; passes {
			case errorsInARow + 1:
				queue.Add(req)
				return reconcile.Result{}, nil
			case errorsInARow + 3:
				cancel()
				return reconcile.Result{}, nil
			}
			return reconcile.Result{}, errors.New("a webhook says no")
		})),
	})
	if err != nil {
		t.Fatal(err)
	}
	started := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		queue = q
		q.Add(req)
		return nil
	})
	if err := c.Watch(started); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	const us = time.Microsecond
	if want := []time.Duration{us, 2 * us, 4 * us, 8 * us, 16 * us, 16 * us, 16 * us, 16 * us, us}; !slices.Equal(noted.of[req], want) {
		t.Errorf("waits %v, want %v", noted.of[req], want)
	}
}

// mutation: a controller that gives turns with another limiter.
func TestEveryControllerWithTurnsHasTheBackoffForThem(t *testing.T) {
	t.Parallel()
	for _, c := range []string{"schedule/setup.go", "stepapproval/reconciler.go", "workflow/reconciler.go", "workflowrun/setup.go"} {
		text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(c)))
		if err != nil {
			t.Fatal(err)
		}
		if all, ours := strings.Count(string(text), "RateLimiter: "), strings.Count(string(text), " r.backoff.Limiter("); all != 1 || ours != 1 {
			t.Errorf("%s: %d limiters, %d for turns", c, all, ours)
		}
	}
}

// mutation: When that leaves the word of a pass that failed after all.
func TestAPassThatFailsIsNotInLine(t *testing.T) {
	t.Parallel()
	var b Backoff
	var req reconcile.Request
	l := b.Limiter(time.Second, time.Minute)
	b.InLine(req)
	l.When(req)
	if l.Forget(req); l.NumRequeues(req) != 0 {
		t.Error("a pass without an error forgets none")
	}
}
