// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/cron"
)

func TestRunsAreNamedAfterTheirSlot(t *testing.T) {
	slot := time.Date(2026, 3, 28, 1, 30, 0, 0, time.UTC)
	name := RunName("nightly", slot)
	if got, ok := SlotOf("nightly", name); !ok || !got.Equal(slot) {
		t.Errorf("%s is of %v", name, got)
	}
	for _, other := range []string{"nightly", "nightly-", "nightly-x", "nightly-029577690", "nightly-+1", "nightly-2-29577690", "night-29577690", "nightly-99999999999999999999"} {
		if got, ok := SlotOf("nightly", other); ok {
			t.Errorf("%s is of %v", other, got)
		}
	}
}

// Mutation: a jitter that is not capped.
func TestJitterEndsBeforeTheNextSlotAndIsTheSameEverywhere(t *testing.T) {
	table, err := cron.New([]string{"* * * * *"}, "", cron.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Duration]bool{}
	for i := range 1000 {
		slot := time.Date(2026, 3, 28, 1, i, 0, 0, time.UTC)
		due := Due(table, "nightly", slot, time.Hour)
		if wait := due.Sub(slot); wait < 0 || wait >= time.Minute || !due.Equal(Due(table, "nightly", slot, time.Hour)) {
			t.Fatalf("the run of %v is due at %v", slot, due)
		}
		seen[due.Sub(slot)] = true
	}
	if len(seen) < 55 {
		t.Errorf("only %d waits of 60 occur", len(seen))
	}
	if slot := time.Date(2026, 3, 28, 1, 0, 0, 0, time.UTC); !Due(table, "nightly", slot, 0).Equal(slot) {
		t.Error("without a jitter it is late")
	}
}
