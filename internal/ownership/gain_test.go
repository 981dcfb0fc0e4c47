// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

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
	k.gaps.signs[7] = rules.Time(0)
	k.gain(t.Context(), []int{3, 7})
	k.gain(t.Context(), []int{7}) // given back in good order since
	if diff := cmp.Diff(calls{"gain": {3, 7}, "take over": {7}}, got); diff != "" {
		t.Error(diff)
	}
}
