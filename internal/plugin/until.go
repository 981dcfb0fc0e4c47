// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Between two questions: the first pause, how often it is that, and the longest one. A run can be
// large, and many may be waited for.
const (
	pollEvery    = 250 * time.Millisecond
	quick        = 20
	longestPause = 5 * time.Second
)

// errReplaced is told of a run that was deleted and made anew.
var errReplaced = errors.New("was replaced by another one")

// lastAnswer is how long the answer to the question after the limit may take.
const lastAnswer = 5 * time.Second

// until asks until something is done. An API server that does not answer is asked again; only an
// answer that stays as it is ends that. late says that limit is over, and why is the error of the
// last question, if it had one. What is done in the last pause before the limit is not late.
func until(ctx context.Context, limit time.Duration, done func(ctx context.Context) (bool, error)) (late bool, why error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	asked := false
	err := pauses().Until(limited, true, true, func(ctx context.Context) (bool, error) {
		ok, err := done(ctx)
		if err != nil && stays(err) {
			return false, err
		}
		// The end of the limit cuts a question short. That says nothing, unless it is all there is.
		if limited.Err() == nil || !asked {
			last, asked = err, true
		}
		return ok && err == nil, nil
	})
	switch {
	case err == nil:
		return false, nil
	case stays(err):
		return false, err
	case ctx.Err() != nil:
		return false, ctx.Err()
	}
	return onceMore(ctx, last, done)
}

// onceMore asks after the limit. last is what counts if there is no answer.
func onceMore(ctx context.Context, last error, done func(ctx context.Context) (bool, error)) (late bool, why error) {
	final, cancel := context.WithTimeout(ctx, lastAnswer)
	defer cancel()
	switch ok, err := done(final); {
	case err == nil:
		return !ok, nil
	case stays(err):
		return false, err
	case ctx.Err() != nil:
		return false, ctx.Err()
	default:
		return true, last
	}
}

// pauses are those between questions.
func pauses() wait.DelayFunc {
	asked, pause := 0, pollEvery
	return func() time.Duration {
		if asked++; asked > quick {
			pause = min(2*pause, longestPause)
		}
		return pause
	}
}

// readAgain reads a run that was read or made before.
func readAgain(ctx context.Context, c client.Reader, run, now *v1alpha1.WorkflowRun) error {
	err := c.Get(ctx, client.ObjectKeyFromObject(run), now)
	if err == nil && now.UID != run.UID {
		err = errReplaced
	}
	if err != nil {
		return fmt.Errorf("run %s/%s: %w", run.Namespace, run.Name, err)
	}
	return nil
}

// stays says whether the same question would get the same answer.
func stays(err error) bool {
	return gone(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
