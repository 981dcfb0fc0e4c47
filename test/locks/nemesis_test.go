// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/testenv/door"
)

const (
	// seedEnv repeats the plan of a seed.
	seedEnv = "LOCKS_SEED"
	// nemesisChildren is how many processes contend.
	nemesisChildren = 3
	// violationsShown bounds the output of a test that fails: where one rule is broken, many are.
	violationsShown = 20
)

// nemesis is a test under faults.
type nemesis struct {
	t        *testing.T
	seed     uint64
	redis    *redistest.Server
	proxies  []*door.Door // by child
	children []*process
	register *register
	history  *history
	births   int
}

// Which faults meet whom is luck. Each of these makes this fail in every run:
//
// mutation: acquire.lua without the floor breaks the floor, and leads to refusal loops.
// mutation: a hold that is reused whatever the request's floor is breaks the floor.
// mutation: a Lease.Err that is always nil breaks exclusion.
// mutation: losses by the deadline that are not counted break I6.
// mutation: dead heads that are not dropped from the line break I5.
//
// And each of these in about two of three runs:
//
// mutation: a validity of TTL + 1 s breaks exclusion.
// mutation: renew.lua that renews for whoever asks breaks exclusion.
func TestNemesis(t *testing.T) {
	if testing.Short() {
		t.Skip("takes most of a minute")
	}
	seed := rand.Uint64()
	if s := os.Getenv(seedEnv); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	tests := map[string]struct {
		lossless bool
		plan     []fault
	}{
		"while Redis keeps its data": {true, newPlan(seed, runs(), networkFaults(), processFaults())},
		"while Redis loses its data": {false, newPlan(seed+1, runs(), slices.Concat(networkFaults(), dataLosses()), processFaults())},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Logf("%s=%d\n%s", seedEnv, seed, planString(test.plan))
			n := newNemesis(t, seed)
			n.live(test.plan)
			n.prove()
			n.judge(test.lossless)
		})
	}
}

func newNemesis(t *testing.T, seed uint64) *nemesis {
	t.Helper()
	n := &nemesis{
		t: t, seed: seed, redis: redistest.Start(t), register: newRegister(),
		history: &history{reports: map[string]report{}},
	}
	for i := range nemesisChildren {
		n.proxies = append(n.proxies, door.New(t, n.redis.Addr()))
		n.children = append(n.children, n.bear(i))
	}
	return n
}

// bear starts a child in the place of another, with a name of its own.
func (n *nemesis) bear(place int) *process {
	n.t.Helper()
	n.births++
	offers := n.register.methods()
	maps.Copy(offers, n.history.methods())
	p := startProcess(n.t, strconv.Itoa(place)+"-"+strconv.Itoa(n.births), n.proxies[place].Addr(), offers)
	ask[none](n.t, p, "work", workArgs{Jobs: jobs(), Seed: n.seed + uint64(1000*n.births)})
	return p
}

// jobs are the runs: of a strict class, of one that goes on while Redis is away, and of one that
// polls. Their times are small, and such that the API server takes them.
func jobs() []job {
	of := func(onFailure v1alpha1.RenewalFailureMode, failures int32, wait v1alpha1.WaitMode, safetyMargin, linger int64) policy.RunLock {
		return policy.Of(&v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{RunLock: v1alpha1.RunLockPolicy{
			TTLSeconds:   5,
			Wait:         v1alpha1.LockWait{Mode: wait},
			LingerMillis: &linger,
			BusyRetry:    v1alpha1.BusyRetry{DelayMillis: 100},
			Renewal: v1alpha1.RenewalPolicy{
				IntervalMillis: new(int64(1000)), TimeoutMillis: 900, SafetyMarginMillis: &safetyMargin,
				OnFailure: onFailure, MaxConsecutiveFailures: failures,
			},
		}}}).RunLock
	}
	const (
		rest  = 20 * time.Millisecond
		pause = 2 * time.Second
	)
	return []job{
		{"strict", of(v1alpha1.RenewalFailureFence, 3, v1alpha1.WaitModeHandOff, 1600, 250), 2, rest, 25},
		// The deadline ends its leases, not the failures.
		{"strict-tight", of(v1alpha1.RenewalFailureFence, 100, v1alpha1.WaitModeHandOff, 500, 0), 2, rest, 25},
		{"poll", of(v1alpha1.RenewalFailureFence, 100, v1alpha1.WaitModePoll, 500, 100), 2, rest, 25},
		{"continue", of(v1alpha1.RenewalFailureContinue, 3, v1alpha1.WaitModeHandOff, 1000, 250), 2, rest, 25},
		// A lock that nobody has some of the time, so that a holder without it can take it again.
		{"continue-alone", of(v1alpha1.RenewalFailureContinue, 3, v1alpha1.WaitModeHandOff, 500, 0), 1, pause, 4},
	}
}

// runs are the runs of the jobs.
func runs() []string {
	var names []string
	for _, j := range jobs() {
		names = append(names, j.Run)
	}
	return names
}

// event is the beginning or the end of a fault.
type event struct {
	at time.Duration
	do func()
}

// live lets the workers work under a plan.
func (n *nemesis) live(plan []fault) {
	var events []event
	for _, f := range plan {
		end := func() {}
		events = append(events, event{f.At, func() { end = n.begin(f) }}, event{f.At + f.Lasts, func() { end() }})
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	start := instant()
	for _, e := range events {
		time.Sleep(e.at - (instant() - start)) // the plan of the workload, not a wait for something
		e.do()
	}
}

// begin makes a fault, and returns how to unmake it.
func (n *nemesis) begin(f fault) (end func()) {
	victim := n.holder(f.Run)
	n.t.Logf("%s (child %s)", f.Kind, n.children[victim].name)
	p := n.proxies[victim]
	poison := func(f door.Fault) func() {
		p.Poison(door.Down, f)
		return p.Heal
	}
	switch f.Kind {
	case pauseRedis:
		n.redis.Pause()
		return n.redis.Resume
	case flushRedis:
		n.redis.FlushAll()
		return func() {}
	case restartRedis:
		n.redis.Stop()
		return n.redis.Restart
	case dropReplies:
		return poison(door.Fault{Silent: true})
	case cutReplies:
		return poison(door.Fault{Bytes: 50})
	case resetConnections:
		return poison(door.Fault{Reset: true})
	case slowReplies:
		return poison(door.Fault{Wait: 300 * time.Millisecond})
	case refuseConnections:
		p.Shut()
		return p.Open
	case partition:
		p.Poison(door.Up, door.Fault{Silent: true})
		return poison(door.Fault{Silent: true})
	case pauseChild:
		n.children[victim].pause()
		return n.children[victim].resume
	case killChild:
		n.children[victim].kill()
		return func() { n.children[victim] = n.bear(victim) }
	default:
		n.t.Fatalf("unknown fault %q", f.Kind)
		return nil
	}
}

// holder is the place of the child that said last that it has the lock of a run.
func (n *nemesis) holder(run string) int {
	n.history.mu.Lock()
	defer n.history.mu.Unlock()
	for _, c := range slices.Backward(n.history.claims) {
		if c.Run != run {
			continue
		}
		for place, p := range n.children {
			if p.name == c.Child {
				return place
			}
		}
	}
	return 0
}

// prove checks I5: after the faults every child gets every lock and can write, though all others
// contend as before.
func (n *nemesis) prove() {
	var provers sync.WaitGroup
	for _, p := range n.children {
		provers.Go(func() {
			took, err := try[map[string]time.Duration](n.t.Context(), p, "prove", workArgs{Jobs: jobs(), Seed: n.seed})
			if err != nil {
				n.t.Errorf("I5: child %s cannot write after the faults: %v", p.name, err)
				return
			}
			n.t.Logf("child %s wrote after %v", p.name, took)
		})
	}
	provers.Wait()
}

// judge ends the workers and looks at the history.
func (n *nemesis) judge(lossless bool) {
	for _, p := range n.children {
		r := ask[report](n.t, p, "report", none{})
		n.history.reports[p.name] = r
		n.t.Logf("child %s lost %v", p.name, r.Seen)
	}
	n.history.attempts = n.register.attempts()
	verdicts := map[verdict]int{}
	for _, a := range n.history.attempts {
		verdicts[a.Verdict]++
	}
	n.t.Logf("%d takes, %d claims, writes: %v", len(n.history.takes), len(n.history.claims), verdicts)
	if found := n.history.violations(lossless); len(found) > 0 {
		n.t.Errorf("%d violations, the first are:\n%s", len(found), strings.Join(found[:min(len(found), violationsShown)], "\n"))
	}
	if verdicts[accepted] == 0 || len(n.history.takes) == 0 || len(n.history.claims) == 0 {
		n.t.Error("nothing happened")
	}
}
