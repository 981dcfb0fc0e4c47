// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// depth is how many renewals are explored; those after them are refused, so that every lease ends.
const depth = 3

// shipped are the policies of the samples.
func shipped(t *testing.T) map[string]v1alpha1.RunLockPolicy {
	t.Helper()
	files, err := filepath.Glob("../../config/samples/lockpolicy*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sample of a policy: %v", err)
	}
	found := map[string]v1alpha1.RunLockPolicy{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var p v1alpha1.LockPolicy
		if err := yaml.UnmarshalStrict(raw, &p); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[filepath.Base(file)] = p.Spec.RunLock
	}
	return found
}

// TestNoOverlapWhateverRenewalsDo explores every sequence of outcomes of a take and its first
// renewals, for the default policy, those of the samples and other legal ones, on the shipped code:
// one lease per sequence, all in one manager. Redis's clock runs as fast as the policy allows.
// Without loss of data a holder must stop believing that it has the lock before the key is free, by
// the safety margin at least; with Continue it goes on, and knows that it does so without the lock.
//
// mutation: validity without the margin, sentAt taken after the reply (of a take or of a renewal),
// and a deadline that counts from renewals whose reply was lost each make this fail.
func TestNoOverlapWhateverRenewalsDo(t *testing.T) {
	// 2 x interval + margin < TTL in all of them, as the CRD wants it.
	tests := map[string]v1alpha1.RunLockPolicy{
		"the defaults":                      {},
		"deadline only":                     {Renewal: v1alpha1.RenewalPolicy{MaxConsecutiveFailures: 100}},
		"the first failure ends it":         {Renewal: v1alpha1.RenewalPolicy{MaxConsecutiveFailures: 1}},
		"the shortest TTL, as tight as can": {TTLSeconds: 5, Renewal: v1alpha1.RenewalPolicy{SafetyMarginMillis: new(int64(1600)), MaxConsecutiveFailures: 100}},
		"a long TTL with the usual timeout": {TTLSeconds: 60, Renewal: v1alpha1.RenewalPolicy{TimeoutMillis: 1000, MaxConsecutiveFailures: 10}},
		"a large drift, a tiny margin": {Renewal: v1alpha1.RenewalPolicy{
			ClockDriftPercent: new(int64(20)), SafetyMarginMillis: new(int64(1)), MaxConsecutiveFailures: 100,
		}},
		"going on without the lock": {Renewal: v1alpha1.RenewalPolicy{OnFailure: v1alpha1.RenewalFailureContinue}},
	}
	maps.Copy(tests, shipped(t))
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { explore(t, p) })
		})
	}
}

func explore(t *testing.T, p v1alpha1.RunLockPolicy) {
	effective := policy.Of(&v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{RunLock: p}}).RunLock
	drift, margin := int64(1), 3*time.Second
	if p.Renewal.ClockDriftPercent != nil {
		drift = *p.Renewal.ClockDriftPercent
	}
	if p.Renewal.SafetyMarginMillis != nil {
		margin = time.Duration(*p.Renewal.SafetyMarginMillis) * time.Millisecond
	}
	s := newModelStore(time.Now)
	s.driftPercent = drift
	s.script(fateOfSequence)
	m := newManager(s, Options{Rand: func() float64 { return 0.5 }})
	m.slots = make(chan struct{}, 1<<16)

	var all sync.WaitGroup
	for seq := range sequences() {
		all.Go(func() { outlive(t, m, s, Request{RunUID: strconv.Itoa(seq), Policy: effective}, margin) })
	}
	all.Wait()
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// outlive holds a lease until it is lost, or goes on without the lock, and checks that this
// was in time.
func outlive(t *testing.T, m *Manager, s *modelStore, r Request, margin time.Duration) {
	changed := make(chan struct{}, 1)
	r.Wake = func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	l, err := m.Acquire(t.Context(), r)
	if err != nil {
		t.Errorf("%s: acquire: %v", describe(r.RunUID), err)
		return
	}
	for l.Context().Err() == nil && !l.Status().Unlocked {
		select {
		case <-l.Context().Done():
		case <-changed:
		}
	}
	unlocked := l.Status().Unlocked
	now := time.Now()
	overlap := now.Sub(s.freeAt(r.RunUID))
	lost := lossOf(l)
	l.Release(context.WithoutCancel(t.Context()))
	switch {
	case unlocked != r.Policy.Renewal.Continue:
		t.Errorf("%s: goes on without the lock: %v, lost for %v", describe(r.RunUID), unlocked, lost)
	case !unlocked && (lost == nil || lost.Reason == OwnershipLost):
		t.Errorf("%s: lost for %v, though the key was there all the time", describe(r.RunUID), lost)
	case overlap > -margin:
		t.Errorf("%s: believed valid up to %s before the key was free; want %s or more", describe(r.RunUID), -overlap, margin)
	}
}

// A sequence is a number: its digits to the base outcomesCount are the outcomes of the renewals;
// the last one says whether the take replied late.
func sequences() int {
	n := 2
	for range depth {
		n *= int(outcomesCount)
	}
	return n
}

func fateOfSequence(verb, runUID string, n int) outcome {
	seq, _ := strconv.Atoi(runUID)
	late := seq%2 == 1
	seq /= 2
	switch {
	case verb == "acquire" && late:
		return repliesLate
	case verb != "renew":
		return works
	case n >= depth:
		return refused
	}
	for range n {
		seq /= int(outcomesCount)
	}
	return outcome(seq % int(outcomesCount))
}

func describe(runUID string) string {
	text := fmt.Sprintf("take %d, renewals", fateOfSequence("acquire", runUID, 0))
	for n := range depth {
		text += fmt.Sprintf(" %d", fateOfSequence("renew", runUID, n))
	}
	return text
}
