// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/test/contend"
)

// childEnv has the childConfig of a process that contends, as JSON.
const childEnv = "BENCH_CHILD"

// childConfig says what a process does.
type childConfig struct {
	Name, Redis, Strategy   string
	Contenders              int
	HoldMicros, LimitMillis int64
}

// turn is one contender's, since the begin that the parent said.
type turn struct{ From, At, End time.Duration }

// childReport is what a process says when it is over.
type childReport struct {
	Turns    []turn
	Attempts []time.Duration // commands to Redis
}

// crowd is processes that contend.
type crowd struct{ children []*child }

type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// add starts a process, and returns when it is ready.
func (c *crowd) add(ctx context.Context, config childConfig) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("start a contender: %w", err)
	}
	text, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("start a contender: %w", err)
	}
	p := &child{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start a contender: %w", err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start a contender: %w", err)
	}
	p.in, p.out = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start a contender: %w", err)
	}
	c.children = append(c.children, p)
	if _, err := p.out.ReadString('\n'); err != nil {
		return fmt.Errorf("contender is not ready: %w", err)
	}
	return nil
}

// contend lets all begin and waits for what they say.
func (c *crowd) contend() (*outcome, error) {
	begin := time.Now().Add(20 * time.Millisecond)
	reports := make([]childReport, len(c.children))
	errs := make([]error, len(c.children))
	var all sync.WaitGroup
	for i, p := range c.children {
		all.Go(func() {
			if _, err := fmt.Fprintln(p.in, begin.UnixNano()); err != nil {
				errs[i] = fmt.Errorf("contender: %w", err)
				return
			}
			errs[i] = json.NewDecoder(p.out).Decode(&reports[i])
		})
	}
	all.Wait()
	o := &outcome{}
	for _, r := range reports {
		o.perProcess = append(o.perProcess, r.Turns)
		o.attempts = append(o.attempts, r.Attempts...)
	}
	return o, errors.Join(errs...)
}

func (c *crowd) close() error {
	var errs []error
	for _, p := range c.children {
		_ = p.in.Close() // it may have ended
		errs = append(errs, p.cmd.Wait())
	}
	return errors.Join(errs...)
}

// childMain is the life of a process that contends.
func childMain(config string) int {
	logging.Disable()
	if err := contendFor(config); err != nil {
		fmt.Fprintln(os.Stderr, "contender:", err)
		return 1
	}
	return 0
}

func contendFor(text string) error {
	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	chosen := ours(config.Strategy)
	if len(chosen) == 0 {
		return fmt.Errorf("%w: strategy %q", errNoSuite, config.Strategy)
	}
	client, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{config.Redis}})
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(config.LimitMillis)*time.Millisecond)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("reach Redis: %w", err)
	}
	var mu sync.Mutex
	var attempts []time.Time
	command := func() {
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, time.Now())
	}
	client.AddHook(&contend.Commands{On: command})
	take, end, err := chosen[0].open(opening{client: client, address: config.Redis, command: command, process: config.Name})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var nanos int64
	if _, err := fmt.Scanln(&nanos); err != nil {
		return fmt.Errorf("when to begin: %w", err)
	}
	begin := time.Unix(0, nanos)
	time.Sleep(time.Until(begin))
	report := childReport{Turns: contendAll(ctx, take, config, begin)}
	mu.Lock()
	for _, at := range attempts {
		report.Attempts = append(report.Attempts, at.Sub(begin))
	}
	mu.Unlock()
	return errors.Join(json.NewEncoder(os.Stdout).Encode(report), end(context.WithoutCancel(ctx)), client.Close())
}

// contendAll has each contender take the lock once.
func contendAll(ctx context.Context, take acquire, config childConfig, begin time.Time) []turn {
	var mu sync.Mutex
	var turns []turn
	var all sync.WaitGroup
	for i := range config.Contenders {
		all.Go(func() {
			from := time.Since(begin)
			release, err := take(ctx, i)
			if err != nil {
				return // its time was over
			}
			t := turn{From: from, At: time.Since(begin)}
			time.Sleep(time.Duration(config.HoldMicros) * time.Microsecond) // the workload
			release(ctx)
			t.End = time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			turns = append(turns, t)
		})
	}
	all.Wait()
	return turns
}
