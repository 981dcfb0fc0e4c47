// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// natsPatience is how long why asks NATS in all: the answer stands without it.
	natsPatience = 3 * time.Second
	// maxSights is of how many jobs why asks; it tells of ten steps.
	maxSights = 10
)

// seeJobs adds what NATS has of the jobs and answers that a run waits for. Where the user did not
// say that there is a NATS (told), that none answers is not worth a word.
func (a *app) seeJobs(ctx context.Context, c client.Reader, answer *runview.Answer, run *v1alpha1.WorkflowRun, told bool) {
	jobs := runview.Jobs(run)
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, natsPatience)
	defer cancel()
	if err := a.askNATS(ctx, c, answer, string(run.UID), jobs); err != nil && told {
		a.note("NATS did not answer all: %s", OneLine(err))
	}
}

func (a *app) askNATS(ctx context.Context, c client.Reader, answer *runview.Answer, uid string, jobs []runview.Job) error {
	d, err := a.letters(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	letters, _, err := d.List(ctx, deadletters.Filter{RunUID: uid}, defaultLimit)
	if err != nil {
		return err
	}
	aside := a.putAside(letters)
	answer.Aside(jobs, aside)
	ours := sync.OnceValue(func() bool { return namesOurs(ctx, c, d) })
	for _, j := range jobs[:min(len(jobs), maxSights)] {
		if j.Started || j.Attempt == 0 {
			continue
		}
		sight, err := d.SeeJob(ctx, j.Topic, protocol.JobID{RunUID: uid, Step: j.Step, Item: protocol.NoItem, Attempt: j.Attempt})
		if err != nil {
			return err
		}
		answer.Delivered(j, runview.JobSight(sight))
		if !sight.Stored && ours() { // another cluster's NATS never had it
			answer.Missing(j, aside, a.Clock.Now())
		}
	}
	return nil
}

// namesOurs says whether NATS names the cluster of c for certain.
func namesOurs(ctx context.Context, c client.Reader, d *deadletters.Store) bool {
	theirs, err := d.Installation(ctx)
	return err == nil && theirs != "" && same(ctx, c, theirs, "its streams say") == nil
}

// putAside are the letters that name a job.
func (a *app) putAside(letters []deadletters.Letter) []runview.PutAside {
	var all []runview.PutAside
	for _, l := range letters {
		id, err := a.names().ParseResult(l.Subject)
		if err != nil {
			continue
		}
		all = append(all, runview.PutAside{
			Sequence: l.Sequence, StoredAt: l.StoredAt, Step: id.Step, Item: id.Item, Attempt: id.Attempt, Reason: l.Reason, Cause: causeOf(l),
		})
	}
	return all
}
