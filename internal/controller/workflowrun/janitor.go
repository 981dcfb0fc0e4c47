package workflowrun

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// janitorPause is the time between two rounds of the janitor.
const janitorPause = 10 * time.Minute

// queued lists the jobs that are with NATS; *bus.Bus does.
type queued interface {
	QueuedJobs(ctx context.Context) ([]bus.QueuedJob, error)
}

// janitor takes back the jobs of runs that have ended or are gone, which a crash between the end of a run and its clean-up
// left in the queue. It saves workers useless work; a job's time to live would do the same later.
type janitor struct {
	*Reconciler
	queued queued
}

// Start makes a round at once and then every janitorPause until ctx ends.
func (j *janitor) Start(ctx context.Context) error {
	tick := j.clock.NewTicker(janitorPause)
	defer tick.Stop()
	for {
		if err := j.round(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Left-over jobs stay until the next round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

func (j *janitor) round(ctx context.Context) error {
	// The jobs are listed before the runs: a run that is missing from the later list is gone, not new.
	list, err := j.queued.QueuedJobs(ctx)
	if err != nil {
		return fmt.Errorf("list queued jobs: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	existing, err := j.census(ctx)
	if err != nil {
		return err
	}
	ofDead := map[types.UID]bool{}
	for _, q := range list {
		uid := types.UID(q.ID.RunUID)
		dead, known := ofDead[uid]
		if !known {
			if dead, err = j.dead(ctx, existing, uid); err != nil {
				return err
			}
			ofDead[uid] = dead
		}
		if !dead {
			continue
		}
		if err := j.takeBack(ctx, q.ID.RunUID, []lifecycle.Withdrawal{{ID: q.ID, Topic: q.Topic}}); err != nil {
			return err
		}
	}
	return nil
}

// dead says whether a run has ended or does not exist. Ends are absorbing, so the cache may be trusted with them.
func (j *janitor) dead(ctx context.Context, existing map[types.UID]types.NamespacedName, uid types.UID) (bool, error) {
	key, ok := existing[uid]
	if !ok {
		return true, nil
	}
	run := &v1alpha1.WorkflowRun{}
	if err := j.client.Get(ctx, key, run); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil // not in the cache yet
		}
		return false, fmt.Errorf("read run: %w", err)
	}
	return run.UID == uid && lifecycle.Finished(run), nil
}
