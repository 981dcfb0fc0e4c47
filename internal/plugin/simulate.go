// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check/probe"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/simulate"
)

// simulatedRaces are played of each policy; medians are shown.
const simulatedRaces = 31

func (a *app) simulateCommand() *cobra.Command {
	var file, from string
	load := simulate.Load{}
	cmd := &cobra.Command{
		Use: "simulate -f FILE --from lockpol/NAME", Short: "Say beforehand what a LockPolicy would do to contenders of a run lock", Args: args(cobra.NoArgs),
		Long: `Say beforehand what the LockPolicy of a file would do, beside the one that is in force.

It plays contenders that all want the lock of one run at the same moment, and need it once. Who contends, and for how long each holds the
lock, is said by flags; the metric syncopate_run_lock_hold_seconds has holds. What was measured of the policy in force is beside what is
predicted for it, so that you see what to believe. The cluster is only read.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			candidate, err := policyFile(file)
			if err != nil {
				return err
			}
			if load.Contenders < 1 || load.Processes < 1 || load.Hold <= 0 || load.RoundTrip < 0 {
				return usagef("--contenders, --replicas and --hold must be above 0")
			}
			name, ok := strings.CutPrefix(from, "lockpol/")
			if !ok {
				return usagef("--from %q: need lockpol/NAME", from)
			}
			c, _, err := a.Cluster()
			if err != nil {
				return err
			}
			current := &v1alpha1.LockPolicy{}
			if err := c.Get(cmd.Context(), client.ObjectKey{Name: name}, current); err != nil {
				return fmt.Errorf("read lock policy: %w", err)
			}
			return a.compare(current, candidate, load)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&file, "filename", "f", "", "File with the LockPolicy to try.")
	flags.StringVar(&from, "from", "", "The LockPolicy in force, as lockpol/NAME.")
	flags.IntVar(&load.Contenders, "contenders", 100, "How many want the lock at the same moment.")
	flags.IntVar(&load.Processes, "replicas", 3, "How many operators they are in.")
	flags.DurationVar(&load.Hold, "hold", 5*time.Millisecond, "How long each has it.")
	flags.DurationVar(&load.RoundTrip, "round-trip", 300*time.Microsecond, "How long a command to Redis takes.")
	return cmd
}

// errNoPolicy is returned for a file with something else. No retry helps.
var errNoPolicy = errors.New("no LockPolicy in it, of " + v1alpha1.GroupVersion.String())

func policyFile(name string) (*v1alpha1.LockPolicy, error) {
	if name == "" {
		return nil, usagef("need -f FILE")
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	p := &v1alpha1.LockPolicy{}
	if err := probe.Decode(raw, p); err != nil {
		return nil, fmt.Errorf("read policy %s: %w", name, err)
	}
	if p.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("LockPolicy") {
		return nil, fmt.Errorf("read policy %s: %w", name, errNoPolicy)
	}
	return p, nil
}

// compare shows what both policies would do, and how far off the prediction for the one
// in force is.
func (a *app) compare(current, candidate *v1alpha1.LockPolicy, load simulate.Load) error {
	w := tabwriter.NewWriter(a.Out, 0, 0, 3, ' ', 0)
	fmt.Fprint(w, "POLICY\tDRAIN\tP50 WAIT\tP95 WAIT\tP99 WAIT\tCOMMANDS EACH\n")
	row := func(name string, e policy.Effective) simulate.Summary {
		s := simulate.Races(simulatedRaces, load, e.RunLock, func(i int) func() float64 { return rand.New(rand.NewPCG(1, uint64(i))).Float64 })
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1f\n", name, shortly(s.Drain), shortly(s.P50), shortly(s.P95), shortly(s.P99), s.Commands)
		return s
	}
	inForce := row("in force", policy.InForce(current))
	row("candidate", policy.Of(candidate))
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	if current.Status == nil || current.Status.Contention == nil {
		a.note("What lock waits of %s were in the last 30 s is not known, so how wrong the prediction is cannot be said.", current.Name)
		return nil
	}
	if current.Status.Contention.P95LockWaitMillis == 0 {
		a.note("No lock wait of %s was measured in the last 30 s, so how wrong the prediction is cannot be said.", current.Name)
		return nil
	}
	measured := time.Duration(current.Status.Contention.P95LockWaitMillis) * time.Millisecond
	fmt.Fprintf(a.Out, "\nP95 wait of %s, measured in the last 30 s: %s; predicted: %s. Where these differ much, the flags are not your load.\n",
		current.Name, shortly(measured), shortly(inForce.P95))
	return nil
}

// shortly rounds to three digits or so.
func shortly(d time.Duration) time.Duration {
	unit := time.Microsecond
	for limit := 10 * time.Millisecond; d >= limit; limit *= 10 {
		unit *= 10
	}
	return d.Round(unit)
}
