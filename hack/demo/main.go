// SPDX-License-Identifier: Apache-2.0

// Command demo shows Syncopate at work on one machine: it starts everything that is needed, applies
// the samples, shows their progress as a table and ends with 0 when each reached the phase that it
// is meant to reach. With KEEP=1 it keeps running.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	readyTimeout = time.Minute
	runTimeout   = time.Minute
	stopTimeout  = 15 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr), zap.Level(zapcore.ErrorLevel)))
	if err := demo(ctx, os.Getenv("KEEP") != ""); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// demo runs everything in a directory of its own, which is kept when something went wrong.
func demo(ctx context.Context, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "syncopate-demo-")
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nlogs are in %s", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	if err := buildAll(ctx, dir, keep); err != nil {
		return err
	}
	env, err := devenv.Start(ctx, devenv.Options{Root: ".", Dir: dir, Log: os.Stdout})
	defer func() { err = errors.Join(err, env.Stop()) }()
	if err != nil {
		return err
	}
	stopAll, err := startPrograms(ctx, env, dir)
	defer stopAll()
	if err != nil {
		return err
	}
	stopConsole, err := startConsole(ctx, env)
	defer stopConsole()
	if err != nil {
		return err
	}
	err = showSamples(ctx, env)
	if keep && ctx.Err() == nil {
		if err != nil { // who reads only what stands last is to see it now, not after Ctrl-C
			fmt.Fprintln(os.Stderr, "\nNot all samples did what they are to do:", err)
		}
		stay(ctx, env)
	}
	return err
}

// buildAll builds what the demo runs, and, where it stays, the plugin that its user calls.
func buildAll(ctx context.Context, dir string, keep bool) error {
	begin := time.Now()
	if keep {
		if err := build(ctx, "bin", "./cmd/kubectl-syncopate"); err != nil {
			return err
		}
	}
	for _, program := range []string{"./cmd/manager", "./examples/worker-go"} {
		if err := build(ctx, dir, program); err != nil {
			return err
		}
	}
	fmt.Printf("Built operator and sample worker in %s\n\n", time.Since(begin).Round(time.Second))
	return nil
}

func showSamples(ctx context.Context, env *devenv.Env) error {
	c, err := devenv.Client(env.Config)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := show(ctx, c, os.Stdout); err != nil {
		return err
	}
	fmt.Printf("\nAll runs reached their expected phase in %s.\n", time.Since(begin).Round(100*time.Millisecond))
	return nil
}

func build(ctx context.Context, dir, program string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(dir, filepath.Base(program)), program) //nolint:gosec // constants
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return nil
}

// startPrograms starts operator and worker; the function it returns stops what was started, also
// after an error.
func startPrograms(ctx context.Context, env *devenv.Env, dir string) (stop func(), err error) {
	var started []*devenv.Process
	stop = func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		for _, p := range started {
			_ = p.Terminate(ending) // the demo is over either way
		}
	}
	manager, err := env.StartManager(ctx, filepath.Join(dir, "manager"), "operator")
	if err != nil {
		return stop, err
	}
	started = append(started, manager.Process)
	fmt.Printf("operator         process of its own                log %s\n", manager.Log)
	worker, err := env.StartProcess(filepath.Join(dir, "worker-go"), "worker", "NATS_URL="+env.NATS.URL())
	if err != nil {
		return stop, err
	}
	started = append(started, worker)
	fmt.Printf("worker           topics demo.echo, .flaky, .slow   log %s\n\n", worker.Log)
	ready, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	return stop, manager.Ready(ready)
}

// stay keeps everything running until the user interrupts.
func stay(ctx context.Context, env *devenv.Env) {
	_, port, _ := strings.Cut(env.Redis.Addr, ":")
	fmt.Printf(`
Everything keeps running; end it with Ctrl-C. In another terminal, in this directory:

  export KUBECONFIG=%s
  export NATS_URL=%s REDIS_ADDRS=%s REDIS_PORT=%s
  export PATH=$PWD/bin:$PWD/bin/k8s:$PATH
  kubectl get wfr -o wide
  kubectl describe wfr diamond
  kubectl get wfr --field-selector status.phase=Succeeded
  kubectl delete -f config/samples/ --ignore-not-found && kubectl apply -f config/samples/
  kubectl wait --for=condition=Finished wfr/linear
  kubectl syncopate approve sign-off review
  kubectl get events --field-selector involvedObject.kind=WorkflowRun

docs/tutorial.md goes on from here.
`, env.Kubeconfig, env.NATS.URL(), env.Redis.Addr, port)
	<-ctx.Done()
}
