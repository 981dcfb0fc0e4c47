// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/plugin"
)

// startConsole serves the console while the demo lasts, as kubectl syncopate console does, and
// prints its address. The function it returns ends it, also after an error.
func startConsole(ctx context.Context, env *devenv.Env) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	cmd := plugin.NewCommand(plugin.Env{Out: w, Err: io.Discard, Clock: clock.RealClock{}, Getenv: os.Getenv}) //nolint:contextcheck // it gets ctx when it runs
	cmd.SetArgs([]string{"console", "--no-browser", "--kubeconfig", env.Kubeconfig, "--nats-url", env.NATS.URL()})
	var running sync.WaitGroup
	running.Go(func() {
		err := cmd.ExecuteContext(ctx)
		_ = w.CloseWithError(errors.Join(err, io.EOF)) // is never one
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	lines := bufio.NewReader(r)
	address, err := lines.ReadString('\n')
	if err != nil {
		return stop, fmt.Errorf("console: %w", err)
	}
	running.Go(func() { _, _ = io.Copy(io.Discard, lines) }) // what else it says
	fmt.Printf("console          %s\n\n", strings.TrimSpace(address))
	return stop, nil
}
