// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/door"
)

// target is the server that a fault happens to. Two faults at a time have different ones.
type target string

const (
	toOperator target = "operator"
	toNATS     target = "nats"
	toRedis    target = "redis"
	toAPI      target = "api"
	toAll      target = "all" // no other fault beside it
)

// fault is one thing that goes wrong.
type fault struct {
	name  string
	to    target
	parts []string // none: all
	// strike begins it and returns what ends it. Both return at once, but for what cannot.
	strike func(ctx context.Context, g *rig, r *rand.Rand) (heal func())
	holds  time.Duration
	// shows are counters of operators of which one moves. Where it is a matter of moments, because
	// runs may just need nothing of who fails, one of several rounds must show it.
	shows []string
	lies  bool // somebody must be told a lie
	// late is how much further than the bound two effects may be apart after it.
	late   time.Duration
	clocks bool // it is about a clock that is wrong
}

// losesCounts says whether operators end with what they counted, or do not hear what was answered.
func (f fault) losesCounts() bool {
	return f.to == toOperator || (f.to == toAPI && !f.lies)
}

// beyondTTL is longer than a run lock and a membership last.
const beyondTTL = 8 * time.Second

func (f fault) in(part string) bool { return len(f.parts) == 0 || slices.Contains(f.parts, part) }

// table is that of the design, by number where it has one.
func table() []fault {
	return slices.Concat(operatorFaults(), natsFaults(), redisFaults(), setFaults(), apiFaults(), clockFaults(), machineFaults())
}

func operatorFaults() []fault {
	pick := func(g *rig, r *rand.Rand) *operator { return g.operators[r.IntN(replicas)] }
	signal := func(s syscall.Signal) func(context.Context, *rig, *rand.Rand) func() {
		return func(ctx context.Context, g *rig, r *rand.Rand) func() {
			o := pick(g, r)
			g.scrape(ctx, o)
			if err := o.now.Signal(s); err != nil {
				g.tb.Error(err)
			}
			return func() {
				<-o.now.Done()
				g.launch(ctx, o)
			}
		}
	}
	return []fault{
		{name: "1-4 operator killed", to: toOperator, strike: signal(syscall.SIGKILL)},
		{name: "operator stopped", to: toOperator, strike: signal(syscall.SIGTERM)},
		{name: "15 operator paused beyond its lock", to: toOperator, holds: beyondTTL, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			o := pick(g, r)
			_ = o.now.Signal(syscall.SIGSTOP)
			return func() { _ = o.now.Signal(syscall.SIGCONT) }
		}},
		{name: "all operators killed", to: toOperator, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			for _, o := range g.operators {
				g.scrape(ctx, o)
				_ = o.now.Kill()
			}
			return func() {
				for _, o := range g.operators {
					g.launch(ctx, o)
				}
			}
		}},
	}
}

func natsFaults() []fault {
	one, three := []string{partOne}, []string{partSentinel, partCluster}
	leader := func(ctx context.Context, g *rig, r *rand.Rand) int {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		i, err := g.nats.Leader(ctx, g.js, g.names.ResultsStream())
		if err != nil || g.part == partOne {
			return r.IntN(g.nats.Len())
		}
		return i
	}
	return []fault{
		{name: "21-22 nats-server killed", to: toNATS, holds: time.Second, strike: func(ctx context.Context, g *rig, r *rand.Rand) func() {
			i := leader(ctx, g, r)
			g.nats.Kill(i)
			return func() { g.nats.Start(i) }
		}},
		{name: "nats-server paused", to: toNATS, holds: beyondTTL, strike: func(ctx context.Context, g *rig, r *rand.Rand) func() {
			i := leader(ctx, g, r)
			g.nats.Pause(i)
			return func() { g.nats.Resume(i) }
		}},
		{name: "22 nats leaders stepped down", to: toNATS, parts: three, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			for _, s := range []string{g.names.ResultsStream(), g.names.JobsStream()} {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				_, _ = g.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+s, nil)
				cancel()
			}
			return func() {}
		}},
		{name: "nats-server lost its disk", to: toNATS, parts: three, holds: time.Second, strike: func(ctx context.Context, g *rig, r *rand.Rand) func() {
			i := leader(ctx, g, r)
			g.nats.Kill(i)
			g.nats.LoseDisk(i)
			return func() { g.nats.Start(i) }
		}},
		{name: "nats password rotated", to: toNATS, holds: 2 * time.Second, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			next := fmt.Sprintf("p%d", r.Int64())
			g.nats.SetPassword(operators, next)
			return func() { g.put(g.natsSecret, "password", next) }
		}},
		{name: "nats certificates expired", to: toNATS, parts: three, holds: 4 * time.Second, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			g.authority.Renew(g.servers, time.Second)
			g.nats.Reload()
			hold(ctx, 1500*time.Millisecond)
			for i := range g.nats.Len() { // what is connected stays so: all have to connect anew
				g.nats.Kill(i)
				g.nats.Start(i)
			}
			return func() {
				g.authority.Renew(g.servers, valid)
				g.nats.Reload()
			}
		}},
		{name: "way to nats shut", to: toNATS, parts: one, holds: 4 * time.Second, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			way := g.natsWays[r.IntN(replicas)]
			way.Shut()
			return way.Open
		}},
		{name: "nats answers go astray", to: toNATS, parts: one, holds: 6 * time.Second, strike: ways(natsWays, door.Down, silent)},
		{name: "nats hears nothing", to: toNATS, parts: one, holds: 6 * time.Second, strike: ways(natsWays, door.Up, silent)},
		{name: "nats is slow", to: toNATS, parts: one, holds: 5 * time.Second, strike: ways(natsWays, door.Down, slow(600, 300))},
	}
}

func natsWays(g *rig) []*door.Door  { return g.natsWays }
func redisWays(g *rig) []*door.Door { return g.redisWays }

// silent keeps connections, and lets nothing come through.
var silent = door.Fault{Silent: true}

func slow(millis, jitter time.Duration) door.Fault {
	return door.Fault{Wait: millis * time.Millisecond, Jitter: jitter * time.Millisecond}
}

// ways poisons the way of one operator.
func ways(of func(*rig) []*door.Door, way door.Direction, f door.Fault) func(context.Context, *rig, *rand.Rand) func() {
	return func(_ context.Context, g *rig, r *rand.Rand) func() {
		to := of(g)[r.IntN(replicas)]
		to.Poison(way, f)
		return func() {
			to.Heal()
			to.Shut() // who was slow connects anew, too
			to.Open()
		}
	}
}

func redisFaults() []fault {
	one := []string{partOne}
	sets := func(on, off []any) func(context.Context, *rig, *rand.Rand) func() {
		return func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.one.Do(on...)
			return func() { g.one.Do(off...) }
		}
	}
	return []fault{
		{name: "8 redis hangs", to: toRedis, shows: unavailable, parts: one, holds: 5 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.one.Nodes[0].Pause()
			return g.one.Nodes[0].Resume
		}},
		{name: "9 redis refuses, comes back empty", to: toRedis, shows: unavailable, parts: one, holds: 3 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.one.Nodes[0].Stop()
			return g.one.Nodes[0].Restart
		}},
		{name: "10 redis flushed", to: toRedis, shows: forgotten, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			switch {
			case g.one != nil:
				g.one.Do("FLUSHALL")
			case g.sentinel != nil:
				g.sentinel.Master().FlushAll()
			default:
				for _, m := range g.cluster.Masters() {
					m.FlushAll()
				}
			}
			return func() {}
		}},
		{name: "5-7 redis replies lost", to: toRedis, parts: one, holds: 4 * time.Second, strike: ways(redisWays, door.Down, silent)},
		{name: "18 one operator cut off from redis", to: toRedis, shows: unavailable, parts: one, holds: beyondTTL, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			way := g.redisWays[r.IntN(replicas)]
			way.Shut()
			return way.Open
		}},
		{name: "redis is slow", to: toRedis, parts: one, holds: 5 * time.Second, strike: ways(redisWays, door.Down, slow(300, 200))},
		// It may show nowhere: Redis lets a script write that has removed something first.
		{name: "redis out of memory", to: toRedis, parts: one, holds: 4 * time.Second, strike: sets([]any{"CONFIG", "SET", "maxmemory", "1"}, []any{"CONFIG", "SET", "maxmemory", "0"})},
		{name: "redis cannot save", to: toRedis, shows: unavailable, parts: one, holds: 4 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			return g.one.Nodes[0].BreakSaving()
		}},
		{name: "redis loads what it saved", to: toRedis, shows: unavailable, parts: one, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			return g.one.Nodes[0].RestartSlowly(4 * time.Second)
		}},
		{name: "redis is read-only", to: toRedis, shows: unavailable, parts: one, holds: 4 * time.Second, strike: sets([]any{"REPLICAOF", "127.0.0.1", "1"}, []any{"REPLICAOF", "NO", "ONE"})},
		{name: "redis wants a replica", to: toRedis, shows: unavailable, parts: one, holds: 4 * time.Second, strike: sets([]any{"CONFIG", "SET", "min-replicas-to-write", "1"}, []any{"CONFIG", "SET", "min-replicas-to-write", "0"})},
		{name: "redis password rotated", to: toRedis, holds: 2 * time.Second, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			next := fmt.Sprintf("p%d", r.Int64())
			s := g.redis()
			s.SetPassword(redisUser, next)
			s.KillClients(redisUser)
			return func() { g.put(g.redisSecret, "password", next) }
		}},
		{name: "operators' certificate expired", to: toRedis, holds: 3 * time.Second, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			g.authority.Renew(g.mine, time.Second)
			hold(ctx, 1500*time.Millisecond)
			g.redis().KillClients(redisUser)
			return func() { g.authority.Renew(g.mine, valid) }
		}},
	}
}

// setFaults are those of several Redis servers.
func setFaults() []fault {
	sentinel, cluster := []string{partSentinel}, []string{partCluster}
	return []fault{
		{name: "11 fail-over loses the last writes", to: toRedis, parts: sentinel, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			old := g.sentinel.LoseLastWrites(func() { hold(ctx, time.Second) })
			return old.Restart
		}},
		{name: "12 old master comes back", to: toRedis, parts: sentinel, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			old := g.sentinel.Master()
			old.Pause()
			g.sentinel.AwaitOtherMaster(old)
			return old.Resume
		}},
		{name: "sentinel killed", to: toRedis, parts: sentinel, holds: time.Second, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			s := g.sentinel.Sentinels[r.IntN(len(g.sentinel.Sentinels))]
			s.Stop()
			return s.Restart
		}},
		{name: "shard killed", to: toRedis, parts: cluster, holds: 3 * time.Second, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			masters := g.cluster.Masters()
			m := masters[r.IntN(len(masters))]
			m.Stop()
			return m.Restart
		}},
		{name: "slots moved", to: toRedis, parts: cluster, strike: func(_ context.Context, g *rig, r *rand.Rand) func() {
			for range 20 {
				g.cluster.MoveSlot(fmt.Sprintf("slot-%d", r.IntN(1000)))
			}
			return func() {}
		}},
	}
}

func apiFaults() []fault {
	tells := func(l lie) func(context.Context, *rig, *rand.Rand) func() {
		return func(_ context.Context, g *rig, r *rand.Rand) func() { return g.answers.begin(l, r) }
	}
	return []fault{
		// Leases may be all that is written meanwhile: what status writes were told is
		// compared by number.
		{name: "28 API server says 409", to: toAPI, lies: true, holds: 4 * time.Second, strike: tells(conflict)},
		{name: "28 API server says 429", to: toAPI, lies: true, shows: []string{"API server said 429"}, holds: 4 * time.Second, strike: tells(tooMany)},
		{name: "28 API server says 500", to: toAPI, lies: true, shows: []string{"API server said 500"}, holds: 4 * time.Second, strike: tells(internal)},
		{name: "28 API server says 500 after commit", to: toAPI, lies: true, shows: []string{"API server said 500"}, holds: 4 * time.Second, strike: tells(tookIt)},
		{name: "etcd is full", to: toAPI, holds: 4 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			return fillEtcd(g.tb)
		}},
		{name: "28 API server restarted", to: toAPI, holds: time.Second, strike: func(ctx context.Context, g *rig, _ *rand.Rand) func() {
			_ = site.api.Kill()
			return func() { g.startAPIServer(ctx) }
		}},
		{name: "28 way to the API server shut", to: toAPI, holds: 4 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.api.Shut()
			return g.api.Open
		}},
		{name: "28 API answers lost after commit", to: toAPI, holds: 3 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.api.Poison(door.Down, silent)
			return func() { // whoever waits is told that nothing will come
				g.api.Heal()
				g.api.Shut()
				g.api.Open()
			}
		}},
		{name: "29 API server is slow", to: toAPI, holds: 5 * time.Second, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.api.Poison(door.Down, slow(700, 500))
			return g.api.Heal
		}},
		{name: "watches cut", to: toAPI, strike: func(_ context.Context, g *rig, _ *rand.Rand) func() {
			g.api.Shut()
			g.api.Open()
			return func() {}
		}},
	}
}
