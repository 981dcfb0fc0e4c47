// SPDX-License-Identifier: Apache-2.0

package lockpolicy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

const (
	hotTenants  = 6
	burst       = 6 // starts at once in each of them, over all replicas
	mostMinutes = 80
	limit       = 3 // of the policy
)

// replica is an operator that lets runs in: what it counts is written by its reconciler.
type replica struct {
	r     *Reconciler
	gates *quota.Controller
}

// gates are replicas on a real Redis, whose locks are really busy. Minutes pass by the clock of the
// world, waits by the real one.
type gates struct {
	*world

	replicas []*replica
	in       [hotTenants]atomic.Int64 // runs under way, by tenant
	starts   int
}

// newGates opens the slots of the hot tenants.
func newGates(t *testing.T) *gates {
	g := &gates{world: newWorld(t)}
	redisServer := redistest.Start(t)
	for i := range 3 {
		if i > 0 {
			g.restart() // another process
			g.r.Elected = func() bool { return false }
		}
		client := redis.NewClient(&redis.Options{Addr: redisServer.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true})
		t.Cleanup(func() { _ = client.Close() })
		g.replicas = append(g.replicas, &replica{r: g.r, gates: quota.New(quota.Options{
			Gate: store.New(client, store.Options{}), Client: g.client, Live: g.client, Clock: steps{of: g.world}, Ballots: g.r.Ballots,
		})})
	}
	g.r = g.replicas[0].r
	return g
}

// steps is the clock of the world, and the real one for who waits.
type steps struct {
	clock.RealClock

	of *world
}

func (s steps) Now() time.Time { return s.of.clock.Now() }

// open has the leader open what was never used, and leaves it at that: it would free the slots of
// runs that have no object.
func (g *gates) open() {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	var leader sync.WaitGroup
	leader.Go(func() { _ = g.replicas[0].gates.Start(ctx) })
	defer leader.Wait()
	defer cancel()
	for tenant := range hotTenants {
		err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			return g.start(ctx, g.replicas[0], policy.Resolve(polled, g.list()), tenant, "first") == nil, nil
		})
		if err != nil {
			g.t.Fatal(err)
		}
	}
}

// start asks for a slot, and gives it back.
func (g *gates) start(ctx context.Context, at *replica, p policy.Effective, tenant int, uid string) error {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: uid, UID: types.UID(uid)}}
	name := fmt.Sprint("tenant-", tenant)
	a, err := at.gates.Admit(ctx, run, name, p)
	if a.Admitted {
		if n := g.in[tenant].Add(1); n > limit || a.Used > limit {
			g.t.Errorf("%d runs of %s are under way, and %d slots taken; the limit is %d", n, name, a.Used, limit)
		}
		g.in[tenant].Add(-1)
	}
	return errors.Join(err, at.gates.Release(ctx, run.UID, name, polled))
}

// minute has a burst in each tenant, over all replicas; one of them has the policy of a minute ago.
func (g *gates) minute(stale policy.Effective) (now policy.Effective) {
	g.t.Helper()
	g.clock.SetTime(rollout.BeginOf(rollout.PeriodOf(g.clock.Now()) + 1).Add(time.Second))
	now = policy.Resolve(polled, g.list())
	var all sync.WaitGroup
	for tenant := range hotTenants {
		for i := range burst {
			g.starts++
			uid, p := fmt.Sprint("run-", g.starts), now
			if i%len(g.replicas) == 2 {
				p = stale
			}
			all.Go(func() {
				err := g.start(g.t.Context(), g.replicas[i%len(g.replicas)], p, tenant, uid)
				var busy *store.BusyError
				var away *store.UnavailableError // a call that took too long on a busy machine
				if err != nil && !errors.As(err, &busy) && !errors.As(err, &away) {
					g.t.Errorf("start: %v", err)
				}
			})
		}
	}
	all.Wait()
	return now
}

// plays minutes until the rollout is over, and says how many.
func (g *gates) plays() (minutes int) {
	g.t.Helper()
	p := policy.Resolve(polled, g.list())
	for minutes = range mostMinutes {
		p = g.minute(p)
		for _, at := range []int{1, 2, 0} {
			g.r = g.replicas[at].r
			g.pass()
		}
		if phase := g.rollout().Phase; phase != "Progressing" {
			break
		}
	}
	r := g.rollout()
	g.t.Logf("%s, %s after %d minutes of %d tenants: %s\ncanary  %+v\ncontrol %+v", r.Phase, r.Reason, minutes+1, hotTenants, r.Message, *r.Canary, *r.Control)
	return minutes + 1
}

// Three replicas let runs of hot tenants in, on a real Redis: their locks are really busy. A delay
// that is too long is taken back, Atomic and a bit more jitter are promoted, and no tenant ever has
// more runs under way than its limit, though both strategies are in use at once.
//
// mutation: a vote of each replica for the same minute, and a canary that has the lock of
// the baseline make this fail.
func TestEditsOfAdmissionOnARealRedis(t *testing.T) {
	for name, test := range map[string]struct {
		edit   func(*v1alpha1.LockPolicy)
		phase  rollout.Phase
		reason []string
	}{
		"a fixed delay that is too long is taken back": {func(p *v1alpha1.LockPolicy) {
			p.Spec.Admission.Lock.Retry = v1alpha1.AdmissionRetry{Mode: v1alpha1.JitterModeFixed, DelayMillis: 1500}
		}, rollout.RolledBack, []string{v1alpha1.ReasonWaitTailWorse, v1alpha1.ReasonBusyRunsWorse}},
		"a bit more jitter is promoted": {func(p *v1alpha1.LockPolicy) {
			p.Spec.Admission.Lock.Retry.JitterPercent = new(int64(33))
		}, rollout.Promoted, []string{v1alpha1.ReasonAllStepsPassed}},
		"Atomic is promoted": {atomically, rollout.Promoted, []string{v1alpha1.ReasonAllStepsPassed}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGates(t)
			g.canaried()
			g.edit(func(p *v1alpha1.LockPolicy) {
				p.Spec.Rollout.StepsPercent, p.Spec.Rollout.MinContendedRuns = []int32{50}, 25
				p.Spec.Rollout.MaxStepMinutes = 600
			})
			g.pass()
			g.open()
			g.edit(test.edit)
			g.pass()
			g.is(rollout.Progressing, 50, v1alpha1.ReasonCanaryRuns)
			minutes := g.plays()
			r := g.rollout()
			if r.Phase != v1alpha1.RolloutPhase(test.phase) || r.Reason != test.reason[0] && r.Reason != test.reason[len(test.reason)-1] {
				t.Errorf("%s, %s: %s", r.Phase, r.Reason, r.Message)
			}
			votes := r.Canary.Ended + r.Control.Ended + r.RestRuns
			if most := int64(minutes * hotTenants); votes > most || votes < most/2 {
				t.Errorf("%d votes in %d tenant-minutes", votes, most)
			}
		})
	}
}
