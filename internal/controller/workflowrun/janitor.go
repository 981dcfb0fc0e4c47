package workflowrun

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// janitorPause is the time between two rounds of the janitor.
const janitorPause = 10 * time.Minute

// leftovers says which runs have messages with NATS, and removes them; *bus.Bus does.
type leftovers interface {
	RunsWithMessages(ctx context.Context) (map[string][]string, error)
}

// janitor purges the messages of runs that have ended or are gone, which a crash between the end of a run and its clean-up
// left over. Nothing depends on it but disk: late results are recognised as stale, dead jobs have a time to live.
type janitor struct {
	*Reconciler
	leftovers leftovers
}

// Start makes a round at once and then every janitorPause until ctx ends.
func (j *janitor) Start(ctx context.Context) error {
	tick := j.clock.NewTicker(janitorPause)
	defer tick.Stop()
	for {
		if err := j.round(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Left-over messages stay until the next round")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
		}
	}
}

func (j *janitor) round(ctx context.Context) error {
	// The messages are listed before the runs: a run that is missing from the later list is gone, not new.
	topics, err := j.leftovers.RunsWithMessages(ctx)
	if err != nil || len(topics) == 0 {
		return err
	}
	existing, err := j.census(ctx)
	if err != nil {
		return err
	}
	for uid, queued := range topics {
		dead, err := j.dead(ctx, existing, types.UID(uid))
		if err != nil {
			return err
		}
		if !dead {
			continue
		}
		if err := j.purge(ctx, uid, queued); err != nil {
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
