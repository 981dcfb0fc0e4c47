// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// collectorEnv says that this process is a collector of traces.
const collectorEnv = "BENCH_COLLECTOR"

// collector takes spans, reads them and forgets them. It is a process of its own, so that what it
// costs is not taken for the operator's.
type collector struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

func startCollector(ctx context.Context) (*collector, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start a collector: %w", err)
	}
	c := &collector{cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env, c.cmd.Stderr = append(os.Environ(), collectorEnv+"=1"), os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a collector: %w", err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a collector: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a collector: %w", err)
	}
	c.in = in
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the collector is not ready: %w", err), c.stop())
	}
	c.url = "http://" + strings.TrimSpace(address)
	return c, nil
}

func (c *collector) cpu() time.Duration { return cpuTime(c.cmd.Process.Pid) }

func (c *collector) stop() error { return errors.Join(c.in.Close(), c.cmd.Wait()) }

// collectorMain is the life of a collector: until its standard input ends.
func collectorMain() int {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "collector:", err)
		return 1
	}
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		})) // it ends with the process
	}()
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
