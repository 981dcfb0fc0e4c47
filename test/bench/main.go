// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/syncopate-dev/syncopate/test/hostile"
)

// docsDir is where -update writes, below the root of the repository.
const docsDir = "docs/benchmarks"

var (
	errNoSuite  = errors.New("no such suite")
	errNoRoot   = errors.New("not inside the repository: no config/crd/bases above")
	errGoalsMet = errors.New("goals are missed")
	errBusy     = errors.New("others used the machine")
)

// options are what the command line says.
type options struct {
	short   bool   // small sizes: to see that it works; the figures mean nothing
	large   bool   // sizes that take many minutes
	update  bool   // write to docs/benchmarks
	strict  bool   // a missed goal is an error
	out     string // write to this directory
	record  string // keep what operators export in this directory
	profile string // write profiles of the operator to this directory
	kinds   string // of the suite hostile: these only
	modes   string // of checkpoints, of the suite peer-shape
	// repetitions are those of the suite peer-shape.
	repetitions int
	root        string // of the repository
}

func main() {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(childMain(config))
	}
	if os.Getenv(collectorEnv) != "" {
		os.Exit(collectorMain())
	}
	if os.Getenv(hostile.OrdersEnv) != "" {
		os.Exit(harmMain())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapcore.ErrorLevel)))
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// start reads the command line and runs the suites that it names.
func start(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.short, "short", false, "Small sizes: to see that everything works. The figures mean nothing.")
	f.BoolVar(&o.large, "large", false, "Also sizes that take many minutes: scale with 20,000 runs.")
	f.BoolVar(&o.update, "update", false, "Write JSON and plots to "+docsDir+".")
	f.BoolVar(&o.strict, "strict", false, "End with an error when a goal is missed.")
	f.StringVar(&o.out, "out", "", "Write JSON and plots to this directory.")
	f.StringVar(&o.profile, "profile", "", "Write profiles of the operator under load to this directory.")
	f.StringVar(&o.record, "record", "", "Keep what operators export, every two seconds, in this directory: for hack/tools/rules -scrapes.")
	f.StringVar(&o.kinds, "kinds", "", "Kinds of harm of the suites neighbours and hostile, separated by commas; together: only all at once. Each by itself, then they together; default: all.")
	f.StringVar(&o.modes, "modes", everyStep+","+coalesced, "Modes of checkpoints that the suite peer-shape measures, separated by commas.")
	f.IntVar(&o.repetitions, "repetitions", 3, "How often the suite peer-shape measures each load; medians are shown.")
	f.Usage = func() { usage(f) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if o.repetitions < 1 || o.repetitions > maxRepetitions {
		return fmt.Errorf("-repetitions %d: need 1 to %d", o.repetitions, maxRepetitions)
	}
	chosen, err := choose(suites(), f.Args())
	if err != nil {
		return err
	}
	if o.root, err = findRoot(); err != nil {
		return err
	}
	if o.update {
		o.out = filepath.Join(o.root, docsDir)
	}
	return runAll(ctx, o, chosen)
}

func usage(f *flag.FlagSet) {
	fmt.Fprintln(f.Output(), "bench [flags] [SUITE...]; without a name all of:")
	for _, s := range suites() {
		fmt.Fprintf(f.Output(), "  %-12s %s\n", s.name, s.about)
	}
	f.PrintDefaults()
}

// choose finds suites by name; no names are all of them.
func choose(all []suite, names []string) ([]suite, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []suite
	for _, name := range names {
		found := false
		for _, s := range all {
			if s.name == name {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return nil, fmt.Errorf("%w: %q; there are %s", errNoSuite, name, strings.Join(namesOf(all), ", "))
		}
	}
	return chosen, nil
}

func namesOf(all []suite) []string {
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.name
	}
	return names
}

// findRoot goes up from the working directory to the repository's root.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "config", "crd", "bases")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errNoRoot
		}
		dir = up
	}
}

// runAll runs suites one after the other, prints each report as it comes, and writes it if that
// is asked for.
func runAll(ctx context.Context, o options, chosen []suite) error {
	st := &stage{options: o}
	defer st.close(os.Stderr)
	m := lookAtMachine(ctx, o)
	m.print(os.Stderr)
	missed := 0
	var unpublished []string
	for _, s := range chosen {
		begin, watched := time.Now(), observe()
		fmt.Fprintf(os.Stderr, "\n%s: %s\n", s.name, s.about)
		r := &report{Suite: s.name, About: s.about, Short: o.short, Machine: m, LoadAtStart: loadAverage()}
		if err := s.run(ctx, st, r); err != nil {
			r.print(os.Stderr) // what was measured until then
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.Others = watched.others()
		r.Busy = m.BusyAtHead || m.isMuch(r.Others)
		r.Took = time.Since(begin).Round(100 * time.Millisecond).String()
		r.print(os.Stdout)
		missed += r.missed()
		if o.update && r.Busy {
			unpublished = append(unpublished, s.name)
			continue
		}
		if err := r.write(o.out); err != nil {
			return err
		}
	}
	if len(unpublished) > 0 {
		return fmt.Errorf("%w: %s is not written to %s", errBusy, strings.Join(unpublished, ", "), docsDir)
	}
	if o.strict && missed > 0 {
		return fmt.Errorf("%d %w", missed, errGoalsMet)
	}
	return nil
}
