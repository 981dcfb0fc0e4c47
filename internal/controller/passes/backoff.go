// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Backoff is the wait of a controller's passes after errors: it doubles with each error of an
// object in a row. It is the rate limiter of the controller's queue, which Limiter makes of it.
//
// The controller forgets the errors of an object after each pass that has none. One that ended as
// it is in line, for a turn or a desk, says nothing about what failed before: it would make the
// wait begin anew with each turn. So errors are forgotten by passes that were made.
type Backoff struct {
	workqueue.TypedRateLimiter[reconcile.Request]
	inLine sync.Map // requests whose pass ended in line, until the controller says so: one of a worker at most
}

// Limiter is the rate limiter. It begins with a first wait, and has none that is longer than
// longest. It is called once, before the controller starts.
func (b *Backoff) Limiter(first, longest time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	b.TypedRateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, longest)
	return b
}

// InLine is called by a pass that ends without an error as its object is in line. The queue has
// each request once, so what the controller says of it next is about the same pass.
func (b *Backoff) InLine(req reconcile.Request) { b.inLine.Store(req, true) }

// Enter begins a pass if it is the turn of its object, as a function of the controller says; nil:
// it always is. If it may not, the pass ends without an error, and its object is woken. Else it
// calls leave at its end.
func (b *Backoff) Enter(turn func(types.NamespacedName) (leave func(), may bool), req reconcile.Request) (leave func(), may bool) {
	if turn == nil {
		return func() {}, true
	}
	leave, may = turn(req.NamespacedName)
	if !may {
		b.InLine(req)
	}
	return leave, may
}

// When is how long a request waits whose pass failed.
func (b *Backoff) When(req reconcile.Request) time.Duration {
	b.inLine.Delete(req)
	return b.TypedRateLimiter.When(req)
}

// Forget forgets the errors of a request, unless its pass ended in line.
func (b *Backoff) Forget(req reconcile.Request) {
	if _, waits := b.inLine.LoadAndDelete(req); !waits {
		b.TypedRateLimiter.Forget(req)
	}
}
