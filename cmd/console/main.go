// SPDX-License-Identifier: Apache-2.0

// Command console serves the console of a cluster to many users, each with their own rights. It
// runs as a Deployment of its own, which is off by default. See docs/console.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/buildinfo"
	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/memgoal"
)

// version and commit are stamped by the build.
var version, commit string

const (
	qps         = 100
	burst       = 200
	stopTimeout = 5 * time.Second
	// memoryPercent is the share of the container's limit that the garbage collector aims at.
	memoryPercent = 75
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrllog.SetLogger(logr.Discard()) // else it complains that nobody has, once the console is half a minute old
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// options are the flags.
type options struct {
	listen, health, hosts, operator, audiences, proxies string
	showVersion                                         bool
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("console", flag.ContinueOnError)
	config.RegisterFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8082", "Address to serve the console at.")
	flags.StringVar(&o.health, "health-listen", "127.0.0.1:8083", "Address to serve /livez and /readyz at.")
	flags.StringVar(&o.hosts, "hosts", "127.0.0.1:8082,localhost:8082", "Names, with ports where they have one, under which browsers ask for the console, separated by commas. Others are refused.")
	flags.StringVar(&o.operator, "operator-namespace", "syncopate-system", "Namespace of the operator.")
	flags.StringVar(&o.audiences, "token-audiences", "", "Audiences of the tokens that are taken, separated by commas; none: those of the API server.")
	flags.StringVar(&o.proxies, "trusted-proxies", "", "Users, separated by commas, who may name another user in "+access.HeaderUser+" and "+access.HeaderGroup+" beside their own token.")
	flags.BoolVar(&o.showVersion, "version", false, "Print the version, and end.")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("%q is no flag", flags.Arg(0))
	}
	return o, nil
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if o.showVersion {
		fmt.Println("console", buildinfo.Of(version, commit))
		return nil
	}
	goal, err := memgoal.Of(memoryPercent, os.Getenv)
	if err != nil {
		return err
	}
	if goal > 0 {
		debug.SetMemoryLimit(goal)
	}
	return serve(ctx, o)
}

// serve serves until ctx ends.
func serve(ctx context.Context, o *options) error {
	c, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	c.QPS, c.Burst = qps, burst
	who, err := access.NewInCluster(c, access.Options{Audiences: split(o.audiences), Proxies: split(o.proxies), Clock: clock.RealClock{}})
	if err != nil {
		return err
	}
	s, err := server.New(ctx, who, server.Options{
		Hosts: split(o.hosts), Operator: o.operator, Clock: clock.RealClock{},
		Log: func(format string, values ...any) { fmt.Fprintf(os.Stderr, format+"\n", values...) },
	})
	if err != nil {
		return err
	}
	defer s.Close()
	pages, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	probes, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.health)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), pages.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.Serve(ctx, pages) })
	group.Go(func() error { return healthy(ctx, probes) })
	return group.Wait()
}

// healthy answers probes. The console keeps nothing that has to be there first.
func healthy(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /readyz", ok)
	h := &http.Server{Handler: mux, ReadHeaderTimeout: stopTimeout}
	stop := context.AfterFunc(ctx, func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		_ = h.Shutdown(ending) // the process ends either way
	})
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("probes: %w", err)
	}
	return nil
}

func split(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}
