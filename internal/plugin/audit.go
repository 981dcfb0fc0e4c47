// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/audit/stores"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

const auditHelp = `Compare what the API server, Redis and NATS say of the same runs: slots, locks, jobs, results, outputs. It changes nothing without --repair.

It looks twice, 90 s apart, since the stores are read while they change; where the first look finds nothing there is no second one.
docs/audit.md says for each kind how it arises, by when it heals by itself, and what mends it. For NATS and Redis inside the cluster:

  kubectl -n nats port-forward svc/nats 4222:4222
  kubectl -n redis port-forward svc/redis 6379:6379

--repair mends what is safe: it reads each run again before, takes only what its run does not need any more (docs/audit.md), and publishes nothing. It refuses a
NATS or a Redis of another cluster, as behind a port-forward that was left open. A Redis that names no installation, as right after it lost its
data, is anybody's.

Exit codes: 0 the stores agree, or all was mended; 1 they differ; 3 a store could not be read; 2, as of all commands, a command line that makes no
sense.`

// connectWait is how long NATS may take to be reached.
const connectWait = 5 * time.Second

type auditFlags struct {
	format string
	repair bool
	wait   time.Duration
	redis  redisFlags
}

func auditCommand(a *app) *cobra.Command {
	var f auditFlags
	cmd := &cobra.Command{
		Use: "audit [--repair]", Short: "Compare API server, Redis and NATS", Long: auditHelp, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output(f.format, formatTable, formatJSON); err != nil {
				return err
			}
			return f.run(cmd.Context(), a)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.repair, "repair", false, "Mend what is safe to mend.")
	flags.DurationVar(&f.wait, "wait", stores.Pause, "Time between the two looks; a shorter one may tell differences that are on their way to heal.")
	flags.StringVarP(&f.format, "output", "o", formatTable, "Format: table or json.")
	a.nats.bind(cmd)
	f.redis.bind(cmd, redisByEnv)
	return cmd
}

func (f *auditFlags) run(ctx context.Context, a *app) error {
	s, end, err := f.stores(ctx, a)
	if err != nil {
		return err
	}
	defer end()
	if f.repair {
		if err := ours(ctx, s.API, s.NATS); err != nil {
			return err
		}
		if err := oursIsRedis(ctx, s.API, s.Quota, s.Clock); err != nil {
			return err
		}
	}
	report, err := s.Twice(ctx, f.wait)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	told := auditTold{Report: report}
	if f.repair {
		for _, m := range s.Mend(ctx, report.Findings) {
			told.Mended = append(told.Mended, mendedText(m.Err))
			if m.Err == nil {
				told.healed++
			}
		}
	}
	return told.tell(a, f.format)
}

// stores connects to what is compared.
func (f *auditFlags) stores(ctx context.Context, a *app) (*stores.Stores, func(), error) {
	c, _, err := a.Cluster()
	if err != nil {
		return nil, nil, err
	}
	config, err := f.redis.config(a.Getenv)
	if err != nil {
		return nil, nil, err
	}
	redis, err := lockmgr.NewClient(config)
	if err != nil {
		return nil, nil, fmt.Errorf("configure Redis: %w", err)
	}
	nats, err := bus.Connect(ctx, a.nats.config(a.Getenv))
	if err != nil {
		return nil, nil, errors.Join(err, redis.Close())
	}
	reached, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	nats.AwaitConnected(reached)
	end := func() { nats.Close(context.WithoutCancel(ctx)); _ = redis.Close() }
	return &stores.Stores{API: c, Redis: redis, Quota: store.New(redis, store.Options{Explain: lockmgr.Explain}), NATS: nats, Clock: clock.RealClock{}}, end, nil
}

// auditTold is an audit as it is told.
type auditTold struct {
	stores.Report

	// Mended says of each finding what --repair made of it.
	Mended []string `json:"mended,omitempty"`
	healed int
}

func mendedText(err error) string {
	if err == nil {
		return "mended"
	}
	return OneLine(err)
}

func (t *auditTold) tell(a *app, format string) error {
	var err error
	if format == formatJSON {
		err = a.writeJSON(t)
	} else {
		err = t.table(a.Out)
	}
	if err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	switch left := len(t.Findings) - t.healed; {
	case left > 0:
		return &AuditError{Outcome: check.Failed, Count: left}
	case len(t.Unread) > 0:
		return &AuditError{Outcome: check.Unknown, Count: len(t.Unread)}
	}
	return nil
}

func (t *auditTold) table(out io.Writer) error {
	if len(t.Findings) == 0 && len(t.Unread) == 0 {
		fmt.Fprintf(out, "API server, Redis and NATS agree about %d runs.\n", t.Runs)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "KIND\tRUN\tMESSAGE\n")
	for i, f := range t.Findings {
		run := f.Run
		if run == "" {
			run = "(gone)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Kind, run, oneLine(f.Message))
		about := f.Kind.About()
		if t.Mended != nil {
			fmt.Fprintf(w, "\t\t-> %s\n", t.Mended[i])
			continue
		}
		if about.Heals != "" {
			fmt.Fprintf(w, "\t\t   heals %s\n", about.Heals)
		}
		fmt.Fprintf(w, "\t\t-> %s\n", about.Advice())
	}
	for _, part := range slices.Sorted(maps.Keys(t.Unread)) {
		fmt.Fprintf(w, "Unread\t\t%s: %s\n", part, oneLine(t.Unread[part]))
	}
	return w.Flush()
}
