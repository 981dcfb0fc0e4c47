// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/test/contend"
)

const (
	// contendedHold is how long each contender has the lock.
	contendedHold = 5 * time.Millisecond
	// fixedEnv also measures what takes minutes.
	fixedEnv = "LOCKS_BENCH_FIXED"
	// contentionLimit bounds one measurement.
	contentionLimit = 15 * time.Minute
)

// contendArgs are what the contenders of one child do.
type contendArgs struct {
	Run        string
	Contenders int
	Policy     policy.RunLock
}

// acquisition is a contender's turn. Times are instants.
type acquisition struct {
	LeaseID string
	Fence   int64
	Waited  time.Duration
	At, End time.Duration
}

// contended is what the contenders of one child did.
type contended struct {
	Acquisitions []acquisition
	Commands     int64
}

// warm makes a child ready: connected, and its scripts loaded.
func (c *child) warm(ctx context.Context, p policy.RunLock) (none, error) {
	l, err := contend.Acquire(ctx, c.manager, func(context.Context) (lockmgr.Request, error) {
		return lockmgr.Request{RunUID: "warm-" + c.config.Name, Policy: p}, nil
	})
	if err == nil {
		l.Drop(ctx)
	}
	return none{}, err
}

func (c *child) contend(ctx context.Context, in contendArgs) (contended, error) {
	c.commands.N.Store(0)
	out := contended{Acquisitions: make([]acquisition, in.Contenders)}
	var contenders sync.WaitGroup
	for i := range in.Contenders {
		contenders.Go(func() { out.Acquisitions[i] = c.useOnce(ctx, in, "contender-"+strconv.Itoa(i)) })
	}
	contenders.Wait()
	out.Commands = c.commands.N.Load()
	return out, context.Cause(ctx)
}

// useOnce takes the lock once and holds it for a while.
func (c *child) useOnce(ctx context.Context, in contendArgs, waiter string) acquisition {
	start := instant()
	lease, err := contend.Acquire(ctx, c.manager, func(context.Context) (lockmgr.Request, error) {
		return lockmgr.Request{RunUID: in.Run, Waiter: waiter, Policy: in.Policy}, nil
	})
	if err != nil {
		return acquisition{}
	}
	a := acquisition{LeaseID: lease.ID(), Fence: lease.Fence(), At: instant()}
	a.Waited = a.At - start
	time.Sleep(contendedHold) // the workload
	lease.Release(ctx)
	a.End = instant()
	return a
}

// contention is a way to share a lock.
type contention struct {
	contenders, processes int
	strategy              string
	policy                policy.RunLock
	goal                  float64 // times the ideal; 0: none
	// rounds are how many times it is measured; the median counts.
	rounds int
}

// measured is what came of it.
type measured struct {
	contention
	ideal, drain        time.Duration
	perTake, perTakeSrv float64 // commands, counted in the children and by the server
	worst, p95          time.Duration
	fences              string
}

// BenchmarkContention measures how long contenders of one run take to have its lock once each, as a
// ratio to the same holds one after the other.
func BenchmarkContention(b *testing.B) {
	var rows []measured
	for _, contenders := range []int{100, 1000} {
		for _, processes := range []int{3, 5} {
			for _, c := range strategies(contenders, processes) {
				b.Run(fmt.Sprintf("contenders=%d/processes=%d/%s", contenders, processes, c.strategy), func(b *testing.B) {
					for range b.N {
						m := c.measure(b)
						rows = append(rows, m)
						b.ReportMetric(m.ratio(), "xideal")
						b.ReportMetric(m.perTake, "commands/take")
						b.ReportMetric(m.perTakeSrv, "server-commands/take")
						b.ReportMetric(float64(m.p95.Milliseconds()), "p95-wait-ms")
						b.ReportMetric(float64(m.worst.Milliseconds()), "max-wait-ms")
					}
				})
			}
		}
	}
	printTable(rows)
}

func strategies(contenders, processes int) []contention {
	handOff := policy.Defaults().RunLock
	poll := handOff
	poll.Wait.Poll = true
	noLinger := poll
	noLinger.Linger = 0
	fixed := poll
	fixed.BusyRetry = policy.BusyRetry{Fixed: true, Delay: poll.BusyRetry.Delay}
	all := []contention{
		{contenders, processes, "HandOff", handOff, 1.05, max(1, 500/contenders)},
		{contenders, processes, "Poll-500ms-30%", poll, 5, 1},
		{contenders, processes, "Poll-500ms-30%-no-linger", noLinger, 5, 1},
	}
	if contenders <= 100 || os.Getenv(fixedEnv) != "" {
		all = append(all, contention{contenders, processes, "Poll-500ms-fixed", fixed, 0, 1})
	}
	return all
}

func (c contention) measure(b *testing.B) measured {
	b.Helper()
	server := redistest.Start(b)
	var children []*process
	for i := range c.processes {
		p := startProcess(b, strconv.Itoa(i), server.Addr(), nil)
		ask[none](b, p, "warm", c.policy)
		children = append(children, p)
	}
	stats := server.Client()
	var rounds []measured
	for i := range c.rounds {
		rounds = append(rounds, c.round(b, children, stats, "run-"+strconv.Itoa(i)))
	}
	for _, p := range children {
		p.stop()
	}
	server.Stop()
	slices.SortFunc(rounds, func(a, b measured) int { return cmp.Compare(a.ratio(), b.ratio()) })
	return rounds[len(rounds)/2]
}

// round measures once.
func (c contention) round(b *testing.B, children []*process, stats *redis.Client, run string) measured {
	b.Helper()
	m := measured{contention: c, ideal: ideal(c.contenders)}
	results := make([]contended, len(children))
	errs := make([]error, len(children))
	ctx, cancel := context.WithTimeout(b.Context(), contentionLimit)
	defer cancel()
	before := serverCommands(b, stats)
	var running sync.WaitGroup
	start := instant()
	for i, p := range children {
		share := c.contenders / c.processes
		if i < c.contenders%c.processes {
			share++
		}
		running.Go(func() { errs[i] = p.peer.call(ctx, "contend", contendArgs{run, share, c.policy}, &results[i]) })
	}
	running.Wait()
	for _, err := range errs {
		if err != nil {
			b.Fatal(err)
		}
	}
	m.perTakeSrv = float64(serverCommands(b, stats)-before) / float64(c.contenders)
	m.fill(start, results)
	return m
}

// ideal is how long the holds take one after the other, without any lock.
func ideal(contenders int) time.Duration {
	start := instant()
	for range contenders {
		time.Sleep(contendedHold) // the workload
	}
	return instant() - start
}

func (m *measured) fill(start time.Duration, results []contended) {
	var all []acquisition
	var commands int64
	for _, r := range results {
		all = append(all, r.Acquisitions...)
		commands += r.Commands
	}
	waits := make([]time.Duration, len(all))
	for i, a := range all {
		waits[i] = a.Waited
		m.drain = max(m.drain, a.End-start)
	}
	slices.Sort(waits)
	m.p95, m.worst = waits[len(waits)*95/100], waits[len(waits)-1]
	m.perTake = float64(commands) / float64(len(all))
	m.fences = judgeFences(all)
}

// judgeFences says "ok" when every lease has a fence of its own, the fences rise with time,
// and every contender had a turn. A lease that was passed on within a process has one fence
// for several turns.
func judgeFences(all []acquisition) string {
	all = slices.SortedFunc(slices.Values(all), func(a, b acquisition) int { return int(a.At - b.At) })
	owner := map[int64]string{}
	var last acquisition
	for _, a := range all {
		switch o, known := owner[a.Fence]; {
		case a.LeaseID == "":
			return "a contender got nothing"
		case known && o != a.LeaseID:
			return fmt.Sprintf("%d twice", a.Fence)
		case a.Fence < last.Fence:
			return fmt.Sprintf("%d after %d", a.Fence, last.Fence)
		case a.At < last.At+contendedHold && last.LeaseID != "":
			return fmt.Sprintf("%d overlaps %d", a.Fence, last.Fence)
		}
		owner[a.Fence], last = a.LeaseID, a
	}
	return fmt.Sprintf("ok, %d leases", len(owner))
}

// serverCommands is how many commands clients sent to a server. The commands within scripts, which
// the server counts too, are those on keys; so whoever sends such a command without a script is
// only counted by the client.
func serverCommands(b *testing.B, c *redis.Client) int64 {
	b.Helper()
	info, err := c.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	byClients := []string{
		"eval", "evalsha", "script|load", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "psubscribe", "punsubscribe",
		"hello", "auth", "ping", "select", "client|setinfo", "client|setname", "blpop", "brpop", "blmove", "xread", "wait", "multi", "exec",
	}
	var n int64
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if slices.Contains(byClients, name) {
			calls, _, _ := strings.Cut(rest, ",")
			count, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				b.Fatalf("commandstats: %q", line)
			}
			n += count
		}
	}
	return n
}

func (m measured) ratio() float64 { return m.drain.Seconds() / m.ideal.Seconds() }

func printTable(rows []measured) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\ncontenders\tprocesses\tstrategy\tideal\tdrain\tratio\tgoal\tcommands/take\tof server\tp95 wait\tmax wait\tfences\t\n")
	for _, m := range rows {
		goal := "-"
		if m.goal > 0 {
			goal = fmt.Sprintf("%.2f", m.goal)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%.2f s\t%.2f s\t%.3f\t%s\t%.2f\t%.2f\t%d ms\t%d ms\t%s\t\n",
			m.contenders, m.processes, m.strategy, m.ideal.Seconds(), m.drain.Seconds(), m.ratio(), goal,
			m.perTake, m.perTakeSrv, m.p95.Milliseconds(), m.worst.Milliseconds(), m.fences)
	}
	fmt.Fprintln(w)
	_ = w.Flush() // stdout
}
