// SPDX-License-Identifier: Apache-2.0

// Package passes is what the passes of all controllers have in common.
package passes

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// debug is the level of what only somebody wants to know who looks for a defect.
const debug = 1

// UntilStop makes passes until the operator is asked to stop. What ends a pass then is no error:
// the next owner of its object makes another. It is told at debug level, as it may be something
// else.
//
// A pass that comes again is as urgent as any other, whatever the last one was made for. The queue
// would go on with the priority of that: after a start all objects that are there would come behind
// each new one for as long as they only wait for times, and one that was once let in before others
// would be so for ever.
//
// A pass that fails comes again by the backoff of its queue, which takes no time beside an error.
func UntilStop(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, req)
		if ctx.Err() == nil {
			result.Priority = new(0)
			if err != nil {
				result.RequeueAfter = 0 // or it warns of that, with words for developers
			}
			return result, err //nolint:wrapcheck // of the controller, for its caller
		}
		if err != nil {
			log.FromContext(ctx).V(debug).Info("A pass ended with the operator", "cause", err.Error())
		}
		return reconcile.Result{}, nil
	})
}
