// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/check"
	"github.com/syncopate-dev/syncopate/internal/check/probe"
)

const formatPrometheus = "prometheus"

const checkHelp = `Look whether an installation is well: versions, CRDs and their rules, admission policies, the operator and its rights, webhook, partitions,
LockPolicies, NATS, Redis, clocks. It changes nothing, takes less than 10 s, and may be run in production.

Each line has a code; docs/checks.md says for each what it means and what to do. What cannot be reached is Unknown. For NATS and Redis inside the
cluster:

  kubectl -n nats port-forward svc/nats 4222:4222
  kubectl -n redis port-forward svc/redis 6379:6379

Exit codes: 0 well, perhaps with warnings; 1 something failed; 3 nothing failed, and something could not be told; 2, as of all commands, a command
line that makes no sense.`

// checkFlags are those of check itself.
type checkFlags struct {
	format, operator, file string
	pre                    bool
	redis                  redisFlags
}

// checkCommand is check. Its parts are functions of what they need of the app.
func checkCommand(a *app) *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use: "check [-f FILE] [--pre]", Short: "Look whether an installation is well", Long: checkHelp, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output(f.format, formatTable, formatJSON, formatPrometheus); err != nil {
				return err
			}
			if f.pre && f.file != "" {
				return usagef("-f needs what is installed, and --pre says that nothing is")
			}
			o, err := f.options(a)
			if err != nil {
				return err
			}
			facts, err := probe.Gather(cmd.Context(), o)
			if err != nil {
				return err
			}
			return tell(a.Out, check.Judge(facts), f.format)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.operator, "operator-namespace", operatorNamespace, "Namespace of the operator.")
	flags.StringVarP(&f.file, "filename", "f", "", "File with WorkflowRuns, Workflows, Schedules, LockPolicies and Semaphores to judge with the cluster; - is standard input.")
	flags.BoolVar(&f.pre, "pre", false, "Before installing: only what must be there before.")
	flags.StringVarP(&f.format, "output", "o", formatTable, "Format: table, json or prometheus.")
	a.nats.bind(cmd)
	f.redis.bind(cmd, redisByEnv)
	return cmd
}

func (f *checkFlags) options(a *app) (probe.Options, error) {
	config, namespace, err := a.Config()
	if err != nil {
		return probe.Options{}, err
	}
	store, err := f.redis.config(a.Getenv)
	if err != nil {
		return probe.Options{}, err
	}
	o := probe.Options{
		Config: config, Namespace: namespace, Operator: f.operator, Pre: f.pre, NATS: a.nats.config(a.Getenv), Redis: store, Clock: a.Clock,
	}
	o.Manifests, err = manifestsOf(f.file)
	return o, err
}

// manifestsOf reads the objects of a file; none without a name.
func manifestsOf(name string) ([]client.Object, error) {
	switch name {
	case "":
		return nil, nil
	case "-":
		return probe.Manifests(os.Stdin)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	defer func() { _ = file.Close() }()
	return probe.Manifests(file)
}

// tell writes the findings, and returns an error unless all is well.
func tell(out io.Writer, findings []check.Finding, format string) error {
	findings = slices.Clone(findings)
	for i := range findings { // they quote servers, and names of objects
		findings[i].Message = oneLine(findings[i].Message)
	}
	write := map[string]func() error{
		formatTable:      func() error { return check.Table(out, findings) },
		formatJSON:       func() error { return check.JSON(out, findings) },
		formatPrometheus: func() error { return check.Prometheus(out, findings) },
	}
	if err := write[format](); err != nil {
		return fmt.Errorf("write findings: %w", err)
	}
	outcome := check.Outcome(findings)
	if outcome == check.OK {
		return nil
	}
	e := &CheckError{Outcome: outcome}
	for _, f := range findings {
		if f.Verdict == outcome {
			e.Count++
		}
	}
	return e
}
