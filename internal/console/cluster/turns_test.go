// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// mutations: enter without the turn of each user, one that keeps it when ctx ends, and leave
// without part make this fail.
func TestWhoAsksOftenWaitsForThemselves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		got := make(chan func(), 10)
		ask := func(ctx context.Context, who string) {
			go func() {
				leave, err := turns.enter(ctx, who)
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Error(err)
				}
				got <- leave
			}()
			synctest.Wait()
		}
		given := func(want int) {
			t.Helper()
			synctest.Wait()
			if len(got) != want {
				t.Fatalf("%d have a turn, want %d", len(got), want)
			}
		}
		for range 3 {
			ask(t.Context(), "jane")
		}
		given(1)
		ask(t.Context(), "joe")
		given(2)
		gone, cancel := context.WithCancel(t.Context())
		ask(gone, "jim") // there is no room
		ask(gone, "jane")
		cancel()
		given(2)
		ask(t.Context(), "jim")
		given(2)
		for range 5 {
			(<-got)()
			synctest.Wait()
		}
		if len(got) != 0 || len(turns.of) != 0 || len(turns.all) != 0 {
			t.Errorf("%d, %d, %d are left", len(got), len(turns.of), len(turns.all))
		}
	})
}
