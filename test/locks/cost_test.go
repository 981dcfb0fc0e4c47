// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/test/contend"
)

const (
	heldLeases = 10000
	heldFor    = 30 * time.Second
	// takers is how many goroutines take the leases.
	takers = 50
	// pairs is how many times BenchmarkUncontended takes and drops, per round.
	pairs = 2000
)

// hold takes many leases and keeps them.
func (c *child) hold(ctx context.Context, leases int) (none, error) {
	errs := make(chan error, takers)
	for n := range takers {
		go func() {
			var err error
			for i := n; i < leases && err == nil; i += takers {
				_, err = c.take(ctx, takeArgs{Run: strconv.Itoa(i), Policy: policy.Defaults().RunLock, Wait: true})
			}
			errs <- err
		}()
	}
	var err error
	for range takers {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return none{}, err
}

// watched is what holding leases cost for a while.
type watched struct {
	CPU      time.Duration
	Took     time.Duration
	Commands int64
	Lost     int
}

// watch measures for a while.
func (c *child) watch(ctx context.Context, d time.Duration) (watched, error) {
	start, cpu, commands := instant(), cpuTime(), c.commands.N.Load()
	if err := contend.Wait(ctx, d, nil); err != nil {
		return watched{}, err
	}
	w := watched{CPU: cpuTime() - cpu, Took: instant() - start, Commands: c.commands.N.Load() - commands}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.leases {
		if l.Err() != nil {
			w.Lost++
		}
	}
	return w, nil
}

// cpuTime is what this process has used, in user and kernel mode.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRenewTenThousand measures what it costs one process, and Redis, to keep 10,000 leases
// under the default policy.
func BenchmarkRenewTenThousand(b *testing.B) {
	for range b.N {
		server := redistest.Start(b)
		stats := server.Client()
		p := startProcess(b, "holder", server.Addr(), nil)
		ask[none](b, p, "hold", heldLeases)
		before := serverCPU(b, stats)
		ctx, cancel := context.WithTimeout(b.Context(), heldFor+callLimit)
		var w watched
		err := p.peer.call(ctx, "watch", heldFor, &w)
		cancel()
		if err != nil {
			b.Fatal(err)
		}
		per10s := 10 / w.Took.Seconds()
		b.ReportMetric(w.CPU.Seconds()*per10s, "cpu-s/10s")
		b.ReportMetric((serverCPU(b, stats)-before).Seconds()*per10s, "redis-cpu-s/10s")
		b.ReportMetric(float64(w.Commands)*per10s, "commands/10s")
		b.ReportMetric(float64(w.Lost), "lost")
		p.kill() // there is no need to give 10,000 locks back
		server.Stop()
	}
}

// serverCPU is what a redis-server has used, in user and kernel mode.
func serverCPU(b *testing.B, c *redis.Client) time.Duration {
	b.Helper()
	info, err := c.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	var total time.Duration
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name != "used_cpu_sys" && name != "used_cpu_user" {
			continue
		}
		d, err := time.ParseDuration(value + "s")
		if err != nil {
			b.Fatalf("cpu: %q", line)
		}
		total += d
	}
	return total
}

// overhead takes and drops a lock again and again.
func (c *child) overhead(ctx context.Context, n int) (watched, error) {
	start, commands := instant(), c.commands.N.Load()
	for range n {
		l, err := c.manager.Acquire(ctx, lockmgr.Request{RunUID: "uncontended", Policy: policy.Defaults().RunLock})
		if err != nil {
			return watched{}, err
		}
		l.Drop(ctx)
	}
	return watched{Took: instant() - start, Commands: c.commands.N.Load() - commands}, nil
}

// BenchmarkUncontended measures what a take and a release cost when nobody else wants the lock.
func BenchmarkUncontended(b *testing.B) {
	server := redistest.Start(b)
	p := startProcess(b, "single", server.Addr(), nil)
	ask[none](b, p, "warm", policy.Defaults().RunLock)
	var w watched
	for range b.N {
		round := ask[watched](b, p, "overhead", pairs)
		w.Took += round.Took
		w.Commands += round.Commands
	}
	n := float64(b.N) * pairs
	b.ReportMetric(float64(w.Commands)/n, "commands/pair")
	b.ReportMetric(float64(w.Took.Microseconds())/n, "us/pair")
}
