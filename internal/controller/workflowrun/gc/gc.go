// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// roundPause is the time between two rounds.
const roundPause = 10 * time.Minute

// firstRound is when the first round begins: each may list all runs, and whoever has just taken
// over is busy enough with those that go on.
const firstRound = 10 * time.Second

// roundRetry is the time until the next round when one failed.
const roundRetry = 30 * time.Second

// uploadSilence is after how long without another part an upload is taken for broken off. What it
// stored until then takes room; if it goes on later, its output misses parts and its attempt fails.
// So it is as long as a job may take by default.
const uploadSilence = time.Hour

// strayAge is how old an output under a name of no run has to be. By such a name no run reads it,
// so its age is for other programs only: it is more than any stream keeps a message that could tell
// of it, of which results have the longest, 30 days.
const strayAge = 31 * 24 * time.Hour

// maxStrays is how many of them a round looks at.
const maxStrays = 100

// withdrawParallel bounds the jobs that are withdrawn at the same time.
const withdrawParallel = 16

// withdrawer takes jobs back; *jobs.Queue does.
type withdrawer interface {
	Withdraw(ctx context.Context, topic string, id protocol.JobID) error
	// Cancel tells workers to stop.
	Cancel(ctx context.Context, runUID string, jobs []protocol.JobID) error
}

// Jobs is where jobs are; *jobs.Queue is that.
type Jobs interface {
	withdrawer
	List(ctx context.Context) ([]jobs.QueuedJob, error)
}

// Outputs is where outputs are; *payloads.Store is that.
type Outputs interface {
	List(ctx context.Context) ([]string, error)
	Drop(ctx context.Context, names []string) error
}

// Uploads are the parts of outputs on their way; *payloads.Store has them.
type Uploads interface {
	LooseParts(ctx context.Context, silent time.Duration) ([]string, error)
	DropParts(ctx context.Context, parts []string) error
}

// Strays are outputs under names of no run; *payloads.Store has them.
type Strays interface {
	Strays(ctx context.Context, old time.Duration, most int) ([]string, error)
	DropStrays(ctx context.Context, strays []string) error
}

// Collector removes what runs left behind.
type Collector struct {
	Jobs    Jobs
	Outputs Outputs
	Uploads Uploads
	Strays  Strays
	Cache   client.Reader
	Live    client.Reader // reads from the API server
	Clock   clock.Clock
}

// Deleted removes what a deleted run had in flight, and its outputs. After an error the tombstone
// has the jobs that are left.
func (c *Collector) Deleted(ctx context.Context, g *results.Tombstone) (err error) {
	g.Jobs, err = Withdraw(ctx, c.Jobs, string(g.UID), g.Jobs)
	return errors.Join(err, c.Outputs.Drop(ctx, g.Outputs))
}

// Start makes a round after firstRound, and then one every roundPause, until ctx ends.
func (c *Collector) Start(ctx context.Context) error {
	for pause := firstRound; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(pause):
		}
		pause = roundPause
		if err := c.Round(ctx); err != nil && ctx.Err() == nil {
			pause = roundRetry
			log.FromContext(ctx).Info("Left-over jobs or outputs stay until the next round", "delay", pause, "cause", err.Error())
		}
	}
}

// Round looks for what is left behind, and removes it. Parts that stay are no reason for another
// round soon: each lists all runs.
func (c *Collector) Round(ctx context.Context) error {
	err := errors.Join(c.withdrawJobs(ctx), c.dropOutputs(ctx), c.dropStrays(ctx))
	if failed := c.dropParts(ctx); failed != nil && ctx.Err() == nil {
		log.FromContext(ctx).Info("Parts of outputs that nobody uploads stay until the next round", "cause", failed.Error())
	}
	return err
}

func (c *Collector) withdrawJobs(ctx context.Context) error {
	// The jobs are listed before the runs: a run that is missing from the later list is
	// gone, not new.
	list, err := c.Jobs.List(ctx)
	if many, ok := errors.AsType[*bus.TooManyError](err); ok {
		log.FromContext(ctx).Info("Left-over jobs stay until fewer are queued, or until their time is over", "jobs", many.Has, "most", many.Most)
		return nil // the next round is soon enough
	}
	if err != nil {
		return fmt.Errorf("list queued jobs: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	existing, err := results.LiveRuns(ctx, c.Live)
	if err != nil {
		return err
	}
	for _, q := range list {
		obsolete, err := c.obsolete(ctx, existing, q.ID)
		if err != nil {
			return err
		}
		if !obsolete {
			continue
		}
		if _, err := Withdraw(ctx, c.Jobs, q.ID.RunUID, []lifecycle.Withdrawal{{ID: q.ID, Topic: q.Topic}}); err != nil {
			return err
		}
	}
	return nil
}

// obsolete says whether nobody waits for a job any more: its run is gone, or has ended, or its
// attempt has. None of this ever changes back, so the cache may be trusted with it.
func (c *Collector) obsolete(ctx context.Context, existing map[types.UID]types.NamespacedName, id protocol.JobID) (bool, error) {
	key, ok := existing[types.UID(id.RunUID)]
	if !ok {
		return true, nil
	}
	run := &v1alpha1.WorkflowRun{}
	if err := c.Cache.Get(ctx, key, run, client.UnsafeDisableDeepCopy); err != nil { // it is read only, and once for each of its jobs
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
	// Of a run that has ended status need not have all attempts: a process that was ahead of it,
	// and died, may have dispatched more.
	return lifecycle.Finished(run) || lifecycle.Over(run, id), nil
}

// dropOutputs takes outputs of deleted runs out of the object store: those that no status names,
// and those whose operator died before it had dropped them.
func (c *Collector) dropOutputs(ctx context.Context) error {
	// Listed before the runs: a run that is missing from the later list is gone, not new.
	names, err := c.Outputs.List(ctx)
	if err != nil {
		return fmt.Errorf("list outputs: %w", err)
	}
	if len(names) == 0 {
		return nil
	}
	existing, err := results.LiveRuns(ctx, c.Live)
	if err != nil {
		return err
	}
	var orphans []string
	for _, name := range names {
		uid, ok := protocol.PayloadRun(name)
		if _, exists := existing[types.UID(uid)]; ok && !exists {
			orphans = append(orphans, name)
		}
	}
	return c.Outputs.Drop(ctx, orphans)
}

// dropStrays drops old outputs under names of no run, some in each round. Their parts are loose
// after it.
func (c *Collector) dropStrays(ctx context.Context) error {
	strays, err := c.Strays.Strays(ctx, strayAge, maxStrays)
	if err != nil {
		return fmt.Errorf("list stray outputs: %w", err)
	}
	if err := c.Strays.DropStrays(ctx, strays); err != nil {
		return err
	}
	if len(strays) > 0 {
		log.FromContext(ctx).Info("Outputs under names of no run were dropped", "outputs", len(strays), "olderThan", strayAge)
	}
	return nil
}

// dropParts drops parts that belong to no object and are not about to: no worker uploads
// them any more.
func (c *Collector) dropParts(ctx context.Context) error {
	parts, err := c.Uploads.LooseParts(ctx, uploadSilence)
	if err != nil {
		return fmt.Errorf("list loose parts: %w", err)
	}
	return c.Uploads.DropParts(ctx, parts)
}
