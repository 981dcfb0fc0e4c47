// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// redisFlags are those of the operator that say where Redis is.
type redisFlags struct {
	// addrs are those of the flag; "": those of $REDIS_ADDRS, else defaultAddrs. why does not ask
	// Redis then.
	addrs, master string
	cluster       bool
	files         lockmgr.Files
}

// defaultAddrs is where Redis is if neither a flag nor the environment says so.
const defaultAddrs = "127.0.0.1:6379"

// redisByEnv says which Redis is asked without the flag.
const redisByEnv = "$REDIS_ADDRS, else " + defaultAddrs

func (f *redisFlags) bind(cmd *cobra.Command, without string) {
	flags := cmd.Flags()
	flags.StringVar(&f.addrs, "redis-addrs", "", "Redis addresses, separated by commas: one server, several cluster nodes, or sentinels with --redis-master; none: "+without+".")
	flags.StringVar(&f.master, "redis-master", "", "Name of the master that the sentinels watch.")
	flags.BoolVar(&f.cluster, "redis-cluster", false, "The address is that of a Redis Cluster.")
	flags.BoolVar(&f.files.TLS, "redis-tls", false, "Use TLS for Redis. User and password come from $REDIS_USERNAME and $REDIS_PASSWORD, those for the sentinels from $REDIS_SENTINEL_USERNAME and $REDIS_SENTINEL_PASSWORD.")
	flags.StringVar(&f.files.CA, "redis-ca", "", "CA certificates to verify Redis with; implies --redis-tls.")
	flags.StringVar(&f.files.Cert, "redis-cert", "", "Client certificate for Redis; implies --redis-tls.")
	flags.StringVar(&f.files.Key, "redis-key", "", "Key of the client certificate for Redis.")
}

func (f *redisFlags) config(getenv func(string) string) (lockmgr.ClientConfig, error) {
	addrs := cmp.Or(f.addrs, getenv("REDIS_ADDRS"), defaultAddrs)
	c := lockmgr.ClientConfig{
		Addrs: strings.Split(strings.ReplaceAll(addrs, " ", ""), ","), MasterName: f.master, Cluster: f.cluster,
		Username: getenv("REDIS_USERNAME"), Password: getenv("REDIS_PASSWORD"),
		SentinelUsername: getenv("REDIS_SENTINEL_USERNAME"), SentinelPassword: getenv("REDIS_SENTINEL_PASSWORD"),
	}
	if err := f.files.Apply(&c); err != nil {
		return c, fmt.Errorf("configure Redis: %w", err)
	}
	return c, nil
}

func (a *app) runLocksCommand() *cobra.Command {
	var format string
	var store redisFlags
	cmd := &cobra.Command{
		Use:   "run-locks [RUN]...",
		Short: "Show run locks: which replica of the operator works on which run, fences and validity, by policy and run",
		Long: `Show the run locks of runs that are under way: which replica of the operator holds them and since when, their fences, for how long their
holders may work under them, when they end if nobody renews them, and how many replicas wait in line; by LockPolicy, and by run.
Semaphores and mutexes, which runs hold, are shown by kubectl syncopate locks.

Without a RUN it shows those of all namespaces that are held or waited for, or of the current one if you may not list the others.
Locks are in Redis, so this connects to it, and changes nothing. For a Redis inside the cluster:

  kubectl -n redis port-forward svc/redis 6379:6379

PAST VALIDITY counts locks whose holder does not work under them any more: most likely it is gone. STORED is the fence of the last write of
the run. Locks of admission (strategy: Lock) are not among them.`,
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := output(format, formatTable, formatJSON); err != nil {
				return err
			}
			locks, err := a.runLocks(cmd.Context(), &store, given)
			if err != nil {
				return err
			}
			if format == formatJSON {
				return a.writeJSON(locks)
			}
			if len(locks) == 0 {
				a.note("No run lock is held or waited for.")
				return nil
			}
			return runview.RunLocksText(a.Out, locks, a.Clock.Now())
		},
	}
	store.bind(cmd, redisByEnv)
	bindOutput(cmd, &format, formatTable)
	return cmd
}

// runLocks are those of the runs that are named, else of all that are held or waited for.
func (a *app) runLocks(ctx context.Context, store *redisFlags, names []string) ([]runview.RunLock, error) {
	c, namespace, err := a.Cluster()
	if err != nil {
		return nil, err
	}
	rules, err := reads.Policies(ctx, c)
	if err != nil {
		return nil, err
	}
	runs, err := a.runsOf(ctx, c, namespace, names)
	if err != nil {
		return nil, err
	}
	seen, err := a.look(ctx, store, runs)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return runview.RunLocks(runs, seen, rules, a.Clock.Now()), nil
	}
	list := make([]runview.RunLock, len(runs))
	for i := range runs {
		list[i] = runview.RunLockOf(&runs[i], seen[string(runs[i].UID)], rules, a.Clock.Now())
	}
	return list, nil
}

// runsOf are the runs that are named, else all.
func (a *app) runsOf(ctx context.Context, c client.Reader, namespace string, names []string) (runs []v1alpha1.WorkflowRun, err error) {
	for _, name := range names {
		run, _, err := a.run(ctx, name)
		if err != nil {
			return nil, err
		}
		runs = append(runs, *run)
	}
	if len(names) > 0 {
		return runs, nil
	}
	seen, err := a.underWay(ctx, c, namespace, reads.Bare, "Only the run locks of namespace %s are shown: you may not list those of others.")
	return seen.Runs, err
}

// look reads the locks of runs from Redis.
func (a *app) look(ctx context.Context, store *redisFlags, runs []v1alpha1.WorkflowRun) (map[string]runview.Sight, error) {
	config, err := store.config(a.Getenv)
	if err != nil {
		return nil, err
	}
	client, err := lockmgr.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("configure Redis: %w", err)
	}
	defer func() { _ = client.Close() }()
	uids := make([]string, len(runs))
	for i := range runs {
		uids[i] = string(runs[i].UID)
	}
	seen, err := lockmgr.Look(ctx, client, uids)
	if err != nil {
		return nil, err
	}
	views := make(map[string]runview.Sight, len(seen))
	for uid, s := range seen {
		views[uid] = runview.Sight(s)
	}
	return views, nil
}

// seeLock adds the lock of a run under way to an answer, where the user says where Redis is.
func (a *app) seeLock(ctx context.Context, store *redisFlags, answer *runview.Answer, run *v1alpha1.WorkflowRun, rules []v1alpha1.LockPolicy) error {
	if store.addrs == "" || answer.Ended {
		return nil
	}
	seen, err := a.look(ctx, store, []v1alpha1.WorkflowRun{*run})
	if err != nil {
		return err
	}
	answer.Sees(runview.RunLockOf(run, seen[string(run.UID)], rules, a.Clock.Now()))
	return nil
}
