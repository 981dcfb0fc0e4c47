// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// redisWrong and wallWrong are by how much clocks are wrong: the first is far longer than any
	// lock lives, the second than any wait of a run lasts.
	redisWrong = time.Minute
	wallWrong  = time.Hour
)

// clockFaults are those of wall clocks. Monotonic clocks stay right.
func clockFaults() []fault {
	redis := func(d time.Duration) func(context.Context, *rig, *rand.Rand) func() {
		return func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.redisTime.Set(d)
			return func() {
				g.redisTime.Set(0)
				if g.sentinel != nil {
					g.sentinel.RestartSentinels()
				}
			}
		}
	}
	operator := func(d time.Duration) func(context.Context, *rig, *rand.Rand) func() {
		return func(_ context.Context, g *rig, r *rand.Rand) func() {
			o := g.operators[r.IntN(replicas)]
			o.time.Set(d)
			return func() { o.time.Set(0) }
		}
	}
	return []fault{
		// All that has a time to live is gone at once. What is written meanwhile lives a minute
		// longer when the clock is right again: the lock of an operator that is killed, too.
		{name: "13 redis is a minute ahead", to: toRedis, clocks: true, shows: forgotten, holds: 4 * time.Second, late: redisWrong, strike: redis(redisWrong)},
		// The same when the clock is right again.
		{name: "13 redis is a minute behind", to: toRedis, clocks: true, holds: 4 * time.Second, strike: redis(-redisWrong)},
		{name: "14 an operator is an hour ahead", to: toOperator, clocks: true, holds: beyondTTL, strike: operator(wallWrong)},
		{name: "14 an operator is an hour behind", to: toOperator, clocks: true, holds: beyondTTL, strike: operator(-wallWrong)},
	}
}

// machineFaults are those of everything at once.
func machineFaults() []fault {
	return []fault{
		{name: "16 all machines sleep", to: toAll, holds: beyondTTL, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			all := children(g)
			signal(g, all, syscall.SIGSTOP)
			return func() { signal(g, all, syscall.SIGCONT) }
		}},
	}
}

// children are the processes that this one has started and that live: operators, NATS, Redis, the
// API server and etcd.
func children(g *rig) (all []int) {
	g.tb.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		g.tb.Fatalf("no processes: %v", err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended since
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		// "pid (name) state parent ...", and a name may have blanks.
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(rest) > 1 && rest[0] != "Z" && rest[1] == fmt.Sprint(os.Getpid()) {
			all = append(all, pid)
		}
	}
	return all
}

func signal(g *rig, pids []int, s syscall.Signal) {
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			g.tb.Errorf("signal %d: %v", pid, err)
		}
	}
}
