package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// janitorPause is the time between two rounds of the janitor.
const janitorPause = 10 * time.Minute

// janitorRetry is the time until the next round when one failed.
const janitorRetry = 30 * time.Second

// uploadSilence is after how long without another part an upload is taken for broken off. What it stored until then takes room; if it
// goes on later, its output misses parts and its attempt fails. So it is as long as a job may take by default.
const uploadSilence = time.Hour

// stock lists what is with NATS; *bus.Bus does.
type stock interface {
	QueuedJobs(ctx context.Context) ([]bus.QueuedJob, error)
	Payloads(ctx context.Context) ([]string, error)
	LooseParts(ctx context.Context, silent time.Duration) ([]string, error)
	DropParts(ctx context.Context, parts []string) error
}

// janitor takes back jobs that nobody waits for any more, which a crash between the end of an attempt or a run and its clean-up
// left in the queue; that saves workers useless work, and a job's time to live would do the same later. And it drops the outputs of
// runs that are gone.
type janitor struct {
	*Reconciler
	stock stock
}

// Start makes a round at once and then every janitorPause until ctx ends.
func (j *janitor) Start(ctx context.Context) error {
	for {
		pause := janitorPause
		if err := errors.Join(j.takeBackJobs(ctx), j.dropOrphans(ctx), j.dropParts(ctx)); err != nil && ctx.Err() == nil {
			pause = janitorRetry
			log.FromContext(ctx).Info("Left-over jobs or outputs stay until the next round", "delay", pause, "cause", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.clock.After(pause):
		}
	}
}

func (j *janitor) takeBackJobs(ctx context.Context) error {
	// The jobs are listed before the runs: a run that is missing from the later list is gone, not new.
	list, err := j.stock.QueuedJobs(ctx)
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
	for _, q := range list {
		obsolete, err := j.obsolete(ctx, existing, q.ID)
		if err != nil {
			return err
		}
		if !obsolete {
			continue
		}
		if err := j.takeBack(ctx, q.ID.RunUID, []lifecycle.Withdrawal{{ID: q.ID, Topic: q.Topic}}); err != nil {
			return err
		}
	}
	return nil
}

// obsolete says whether nobody waits for a job any more: its run is gone, or has ended, or its attempt has. None of this ever
// changes back, so the cache may be trusted with it.
func (j *janitor) obsolete(ctx context.Context, existing map[types.UID]types.NamespacedName, id protocol.JobID) (bool, error) {
	key, ok := existing[types.UID(id.RunUID)]
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
	if string(run.UID) != id.RunUID || run.Status == nil {
		return false, nil // the cache is behind
	}
	if run.NeedsNewer() > 0 {
		return false, nil // what its status says of the attempt may be read wrongly
	}
	return lifecycle.Over(run, id), nil
}
