// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// calls notes how partitions came.
type calls map[string][]int

func (c calls) Gain(_ context.Context, partitions []int) {
	c["gain"] = append(c["gain"], partitions...)
}

func (c calls) TakeOver(_ context.Context, partitions []int) {
	c["take over"] = append(c["take over"], partitions...)
}

func (calls) Lose(context.Context, []int, func([]int)) {}

// mutation: gain that calls Gain for all, or forgets no sign, makes this fail: results of a dead
// replica would wait for AckWait.
func TestKeeper_TakesOverWhatWasNotHandedOver(t *testing.T) {
	got := calls{}
	k := New(Options{Member: "pod.self", Handler: got, Clock: clocktesting.NewFakeClock(time.Unix(100, 0))})
	k.gaps.signs[7] = sign{"gone", 0}
	k.gain(t.Context(), []int{3, 7})
	k.gain(t.Context(), []int{7}) // given back in good order since
	if diff := cmp.Diff(calls{"gain": {3, 7}, "take over": {7}}, got); diff != "" {
		t.Error(diff)
	}
}

// mutation: signs that are noted only when a write has an answer make this fail.
func TestATakeOverIsOneAlsoIfTheAnswerToItsWriteIsLost(t *testing.T) {
	got, clock, lost := calls{}, clocktesting.NewFakeClock(time.Unix(1e9, 0)), false
	api := interceptor.NewClient(graves(t, 1, "gone0"), interceptor.Funcs{
		Update: func(ctx context.Context, under client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := under.Update(ctx, o, opts...); err != nil || lost {
				return err
			}
			lost = true
			return errCut
		},
	})
	k := New(Options{
		Client: api, Namespace: "ns", Member: "a", Handler: got, Clock: clock, Spread: func() float64 { return 0.5 }, Log: logr.Discard(),
	})
	for range 20 {
		k.apply(func(m *rules.Member, now rules.Time) { m.Renewed(now, now) })
		clock.Step(time.Second)
		_ = k.round(t.Context()) // of one the answer is lost
	}
	for o, ok := k.hands.next(); ok; o, ok = k.hands.next() {
		k.gain(t.Context(), o.partitions)
	}
	if !lost || len(got["take over"]) != Partitions || len(got["gain"]) > 0 {
		t.Errorf("%d are taken over, %d come in good order; the answer was lost: %v", len(got["take over"]), len(got["gain"]), lost)
	}
}

// What this member did not get from the owner that was gone comes to it in good order later.
// mutation: apply without forget makes this fail.
func TestATakeOverThatWasNoneIsForgotten(t *testing.T) {
	d := newDesk(t)
	d.apply(func(m *rules.Member, now rules.Time) {
		m.Listed(rules.List{Sent: now, Received: now, Leases: []rules.Lease{{Name: "b", Version: "1"}, {Name: "c", Version: "1"}}})
	})
	for p := range 3 {
		d.gaps.signs[p] = sign{"b", 0}
	}
	is := rules.Effective{Origin: "o"}
	for p := range Partitions {
		is.Claims = append(is.Claims, Claim{Owner: "a", Term: 3})
		if p < 2 { // the first was taken by another, and of the second the owner is back
			is.Claims[p].Owner = []string{"c", "b"}[p]
		}
	}
	d.apply(func(m *rules.Member, now rules.Time) {
		m.Looked(rules.Look{Sent: now, Received: now, Version: "3", Effective: &is})
	})
	if left := slices.Sorted(maps.Keys(d.gaps.signs)); !slices.Equal(left, []int{2}) {
		t.Errorf("of %v it knows that they were taken over, want 2", left)
	}
}
