// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// locksShown is how many holders of a lock are shown, and how many that wait for it.
const locksShown = 10

func locksCommand(a *app) *cobra.Command {
	var format string
	most := locksShown
	cmd := &cobra.Command{
		Use:   "locks [LOCK]...",
		Short: "Show semaphores and mutexes: who holds them, who waits in which place and why, and what you may do",
		Long: `Show locks across runs: how many permits of each semaphore and key, and of each mutex, are held; which runs and steps hold them since when,
with their fences; which wait, in which place and why; and what you may do about it.

  kubectl syncopate locks                      all that are held or waited for, and the semaphores that nobody uses
  kubectl syncopate locks gpu-pool             all keys of a semaphore
  kubectl syncopate locks gpu-pool/eu          one key
  kubectl syncopate locks mutex:deploy         a mutex of the namespace; mutex:team-a/deploy one of another

It reads WorkflowRuns, of all namespaces or of the current one if you may not list the others, and Semaphores if you may list those: what you
may not see is said. Places are by priority, then age. What a run asks for that follows a Workflow is in
a revision: if you may not read that, it is gone, or 100 others were read, it is not known how many permits it needs, and of which other locks.
The lock of the operator's replicas on a run is another: kubectl syncopate run-locks.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			if most < 0 {
				return usagef("--limit %d is below 0", most)
			}
			locks, err := a.locks(cmd.Context(), given)
			if err != nil {
				return err
			}
			if format == formatJSON {
				for i := range locks {
					locks[i] = locks[i].Bounded(most)
				}
				return a.writeJSON(locks)
			}
			if len(locks) == 0 {
				a.note("No lock is held or waited for, and there is no Semaphore that you may see.")
				return nil
			}
			return runview.LocksText(a.Out, locks, most, a.Clock.Now())
		},
	}
	cmd.Flags().IntVar(&most, "limit", most, "How many holders of a lock are shown, and how many that wait for it; 0: all.")
	bindOutput(cmd, &format, formatTable)
	return cmd
}

// locks are those that are named, else all.
func (a *app) locks(ctx context.Context, names []string) ([]runview.Lock, error) {
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, err
	}
	seen, err := a.underWay(ctx, c, namespace, reads.Locks, "Only the runs of namespace %s are seen: you may not list those of others. They may hold locks, and wait for them.")
	if err != nil {
		return nil, err
	}
	if err := reads.LocksOfWaiting(ctx, c, seen); err != nil {
		return nil, err
	}
	sight, err := lockSight(ctx, c, seen, a.Clock.Now())
	if err != nil {
		return nil, err
	}
	if sight.Semaphores == nil {
		a.note("Semaphores are not seen, as you may not list them: how many permits there are is not known.")
	}
	all := runview.Locks(sight)
	if len(names) == 0 {
		return all, nil
	}
	return pickLocks(all, namespace, names, sight.Semaphores != nil)
}

// pickLocks are those of the given names. semaphores says whether Semaphores may be seen.
func pickLocks(all []runview.Lock, namespace string, names []string, semaphores bool) ([]runview.Lock, error) {
	picked := []runview.Lock{}
	for _, name := range names {
		found := runview.Matching(all, namespace, name)
		if len(found) == 0 {
			return nil, noLock(name, semaphores)
		}
		for i := range found {
			if !slices.ContainsFunc(picked, func(l runview.Lock) bool { return l.Lock == found[i].Lock }) {
				picked = append(picked, found[i])
			}
		}
	}
	return picked, nil
}

// noLock says that nothing is known of a name.
func noLock(name string, semaphores bool) error {
	if !semaphores {
		return fmt.Errorf("no run that you may see holds or waits for %q, and you may not list Semaphores", name)
	}
	return fmt.Errorf("there is no Semaphore or key %q that is used; a mutex is named mutex:%s, and the lock of a run is shown by kubectl syncopate run-locks %s", name, name, name)
}

// lockSight is what there is to know of locks, beside runs.
func lockSight(ctx context.Context, c client.Reader, seen reads.Seen, now time.Time) (runview.LockSight, error) {
	semaphores, err := reads.Semaphores(ctx, c)
	early, cancel := context.WithTimeout(ctx, othersPatience)
	defer cancel()
	return runview.LockSight{Runs: seen.Runs, Tops: reads.Tops(early, c, seen.Runs), Semaphores: semaphores, Whole: seen.All && !seen.More, Outlines: true, Bodies: seen.Whole, Now: now}, err
}

// seeLocks adds the locks that a run waits for to an answer: without what Semaphores say, if they
// cannot be read.
func (a *app) seeLocks(ctx context.Context, c client.Reader, answer *runview.Answer, run *v1alpha1.WorkflowRun, seen reads.Seen) error {
	if !runview.WaitsForLocks(run) {
		return nil
	}
	sight, err := lockSight(ctx, c, seen, a.Clock.Now())
	sight.Run = run // has the steps of its Workflow
	answer.WaitsFor(runview.Locks(sight))
	return err
}
