// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/rollout"
	"github.com/syncopate-dev/syncopate/internal/rollout/ballot"
)

const tried = "4f2a0011-2"

// trying is policy batch while another lock is tried on half of the tenant-minutes.
func (w *world) trying(lock, candidate *policy.AdmissionLock) policy.Effective {
	p := w.effective("batch")
	p.Admission.Lock = lock
	p.Admission.Trial = &policy.AdmissionTrial{Candidate: tried, Percent: 50, Since: epoch, Lock: candidate}
	return p
}

// during goes on to the next minute in which the tenant is in an arm.
func (w *world) during(arm rollout.Arm) (period int64) {
	for period = rollout.PeriodOf(w.clock.Now()) + 1; rollout.ArmOf(rollout.NameOf(tenant, period), tried, 50) != arm; period++ {
	}
	w.clock.SetTime(rollout.BeginOf(period).Add(time.Second))
	return period
}

func quick() *policy.AdmissionLock {
	return &policy.AdmissionLock{TTL: time.Minute, MaxWait: 10 * time.Millisecond, Retry: policy.BusyRetry{Fixed: true, Delay: 5 * time.Millisecond}}
}

// voting is an instance that counts votes.
func (w *world) voting() *instance {
	k := w.instance()
	k.trials.ballots = ballot.NewBox(nil, nil)
	return k
}

// counted is what an instance counted of the minutes before this one.
func (k *instance) counted() rollout.Tally {
	k.trials.ballots.Close(k.w.clock.Now().Add(rollout.Period))
	return k.trials.ballots.Of(ballot.Entry{Policy: "batch", Candidate: tried})
}

func aRun(uid types.UID) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: string(uid), UID: uid, CreationTimestamp: metav1.NewTime(epoch)}}
}

// takesLock takes the lock of the tenant for good.
func (w *world) takesLock() {
	w.t.Helper()
	must(w.t, w.redis.Set(w.ctx(), "{adm:batch:"+tenant+"}:lock", "another", 0).Err())
}

// Three processes are asked in the same minute, by the run controller and by the webhook.
//
// mutation: a vote of each process, and a claim that forgets the period, make this fail.
func TestATenantMinuteHasOneVoteOverAllProcesses(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	for _, arm := range []rollout.Arm{rollout.Canary, rollout.Control, rollout.Canary} {
		processes := []*instance{w.voting(), w.voting(), w.voting()}
		w.during(arm)
		p := w.trying(nil, quick())
		for _, k := range processes {
			_, err := k.Admit(w.ctx(), aRun("a"), tenant, p)
			must(t, err)
			_, err = k.Reserve(w.ctx(), aRun("b"), tenant, p, time.Minute)
			must(t, err)
		}
		var got rollout.Tally
		for _, k := range processes {
			got = got.Plus(k.counted())
		}
		vote := rollout.Counts{Runs: 1, Ended: 1}
		vote.Waits[0] = 1
		want := rollout.Tally{Canary: vote}
		if arm == rollout.Control {
			want = rollout.Tally{Control: vote}
		}
		if diff := gocmp.Diff(want, got, gocmp.Transformer("waits", sumOf)); diff != "" {
			t.Errorf("counted (-want +got):\n%s", diff)
		}
	}
}

// A dry run starts nothing, so it has no vote, and takes none from the start that comes after it.
//
// mutation: a question that only asks, and enters the minute, makes this fail.
func TestADryRunHasNoVote(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	asked, starts := w.voting(), w.voting()
	w.during(rollout.Canary)
	p := w.trying(nil, quick())
	_, err := asked.Reserve(w.ctx(), aRun("a"), tenant, p, 0)
	must(t, err)
	_, err = starts.Admit(w.ctx(), aRun("b"), tenant, p)
	must(t, err)
	if dry, start := asked.counted().Canary.Ended, starts.counted().Canary.Ended; dry != 0 || start != 1 {
		t.Errorf("%d votes of the dry run, and %d of the start; want 0 and 1", dry, start)
	}
}

func sumOf(h rollout.Histogram) (n int64) {
	for _, c := range h {
		n += c
	}
	return n
}

// mutation: a start that gave up and counts as one that had the lock, and a lock of the baseline
// that is asked for in the canary make this fail.
func TestAStartThatIsPutOffVotesSo(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	once := quick()
	once.MaxWait = 0
	for name, test := range map[string]struct {
		arm             rollout.Arm
		lock, candidate *policy.AdmissionLock
		busy            bool
	}{
		"of the canary":                         {rollout.Canary, nil, quick(), true},
		"after one try":                         {rollout.Canary, nil, once, true},
		"of the control":                        {rollout.Control, quick(), nil, true},
		"not under Atomic":                      {rollout.Canary, quick(), nil, false},
		"not of the control, if that is Atomic": {rollout.Control, nil, quick(), false},
	} {
		t.Run(name, func(t *testing.T) {
			k := w.voting()
			w.during(test.arm)
			w.takesLock()
			_, err := k.Admit(w.ctx(), aRun("a"), tenant, w.trying(test.lock, test.candidate))
			if _, busy := errors.AsType[*store.BusyError](err); busy != test.busy || err != nil && !busy {
				t.Fatalf("admit: %v; want busy %v", err, test.busy)
			}
			c := k.counted().Canary.Plus(k.counted().Control)
			if c.Ended != 1 || (c.Contended == 1) != test.busy || (c.Busy == 1) != test.busy || (c.Waits[len(c.Waits)-1] == 1) != test.busy {
				t.Errorf("counted %+v", c)
			}
		})
	}
}

// While Redis is away nobody votes, and no call waits for a second answer.
//
// mutation: a claim after an answer that did not come makes this fail.
func TestWithoutRedisNobodyVotes(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	k := w.voting()
	w.during(rollout.Canary)
	calls := 0
	k.beforeR = func() { calls++ }
	k.refuse = errors.New("away")
	run := aRun("a")
	if _, err := k.Admit(w.ctx(), run, tenant, w.trying(nil, nil)); err == nil {
		t.Fatal("admitted without Redis")
	}
	if calls > 1 {
		t.Errorf("%d calls", calls)
	}
	k.refuse = nil
	_, err := k.Admit(w.ctx(), run, tenant, w.trying(nil, nil))
	must(t, err)
	if got := k.counted(); got != (rollout.Tally{}) {
		t.Errorf("counted %+v", got)
	}
}

// mutation: a claim in the context of the caller makes this fail: those who wait long give up, and
// their minutes would have no vote.
func TestACallerThatGivesUpVotes(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	k := w.voting()
	w.during(rollout.Canary)
	w.takesLock()
	lock := quick()
	lock.MaxWait = time.Hour
	ctx, cancel := context.WithCancel(w.ctx())
	tries := 0
	k.beforeR = func() {
		if tries++; tries == 3 {
			cancel()
		}
	}
	if _, err := k.Admit(ctx, aRun("a"), tenant, w.trying(nil, lock)); !strings.Contains(err.Error(), context.Canceled.Error()) {
		t.Fatalf("admit: %v", err)
	}
	if got := k.counted().Canary; got.Ended != 1 || got.Busy != 1 {
		t.Errorf("counted %+v", got)
	}
}

// A trial costs one call a minute in each process.
func TestAClaimIsMadeOnce(t *testing.T) {
	w := newWorld(t)
	w.policy("batch", 100)
	w.boss.looks()
	k := w.voting()
	w.during(rollout.Canary)
	p := w.trying(nil, nil)
	run := aRun("a")
	_, err := k.Admit(w.ctx(), run, tenant, p)
	must(t, err)
	calls := 0
	k.beforeR = func() { calls++ }
	for range 5 {
		_, err := k.Admit(w.ctx(), run, tenant, p)
		must(t, err)
	}
	if calls != 5 {
		t.Errorf("%d calls for 5 starts", calls)
	}
}
