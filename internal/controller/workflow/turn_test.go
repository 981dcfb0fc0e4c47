// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// slow is an API server that is asked for Workflows, and takes long to say no.
type slow struct {
	client.Reader
	clock *clocktesting.FakeClock
	asked []string
}

func (s *slow) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	s.asked = append(s.asked, key.Name)
	s.clock.Step(longestTurn * 2 / 5)
	return errors.New("not now")
}

// One namespace has thousands of Workflows, and each of them takes long. Others are not kept
// waiting for all of them, and all of them have their turn.
//
// mutations: sweepNamespace that goes on to the end, or that begins with the same ones in each
// round, makes this fail.
func TestSweeper_ANamespaceHasSoMuchOfARound(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(1000, 0))
	live := &slow{clock: clk}
	s := &Sweeper{Live: live, Clock: clk}
	all := map[string][]revision{"a": {{}}, "b": {{}}, "c": {{}}, "d": {{}}, "e": {{}}}
	for round, want := range [][]string{{"a", "b", "c"}, {"d", "e", "a"}, {"c", "d", "e"}} {
		if round == 2 {
			delete(all, "b") // at which it stopped
		}
		live.asked = nil
		if err := s.sweepNamespace(t.Context(), "team", all); err == nil {
			t.Error("nothing is said of what failed")
		}
		if !slices.Equal(live.asked, want) {
			t.Errorf("round %d looks at %v, want %v", round, live.asked, want)
		}
	}
	if err := s.sweepNamespace(t.Context(), "other", map[string][]revision{"a": {{}}}); err == nil || s.next["other"] != "" {
		t.Errorf("another namespace: %v, left at %q", err, s.next["other"])
	}
}
