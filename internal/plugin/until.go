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

// sighting is a run that is waited for, as it was seen last.
type sighting struct {
	run *v1alpha1.WorkflowRun
	// since is a version of the API server's state in which the run was there: that of the last
	// list that had it, or else of the run's last write, which may be long ago.
	since string
	alone bool // runs may be read, not listed
}

func sightingOf(run *v1alpha1.WorkflowRun) *sighting {
	return &sighting{run: run, since: run.ResourceVersion}
}

// again looks at the run once more.
func (s *sighting) again(ctx context.Context, c client.Reader) error {
	now, since, err := s.read(ctx, c)
	if err == nil && now.UID != s.run.UID {
		err = errReplaced
	}
	if err != nil {
		return fmt.Errorf("run %s/%s: %w", s.run.Namespace, s.run.Name, err)
	}
	s.run, s.since = now, since
	return nil
}

// read lists the one run, since a list says of which version it is.
func (s *sighting) read(ctx context.Context, c client.Reader) (now *v1alpha1.WorkflowRun, since string, err error) {
	if !s.alone {
		var list v1alpha1.WorkflowRunList
		err := c.List(ctx, &list, client.InNamespace(s.run.Namespace), client.MatchingFields{"metadata.name": s.run.Name})
		switch s.alone = apierrors.IsForbidden(err); {
		case s.alone:
		case err != nil:
			return nil, "", err
		case len(list.Items) == 0:
			return nil, "", apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), s.run.Name)
		default:
			return &list.Items[0], list.ResourceVersion, nil
		}
	}
	now = &v1alpha1.WorkflowRun{}
	err = c.Get(ctx, client.ObjectKeyFromObject(s.run), now)
	return now, now.ResourceVersion, err
}

// stays says whether the same question would get the same answer.
func stays(err error) bool {
	return gone(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}
