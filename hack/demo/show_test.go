// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The demo starts one run of the sample's schedule at each time of the day, also between half past
// two and half past three, when the last 25 hours have two slots, and on the days when clocks are
// set.
// mutation: the first slot of the last 25 hours, or one after now, makes this fail.
func TestTheLastSlotIsOneWheneverTheDemoStarts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "samples", "schedule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var sample v1alpha1.Schedule
	if err := yaml.UnmarshalStrict(text, &sample); err != nil {
		t.Fatal(err)
	}
	for now, want := range map[string]string{
		"2026-11-28T02:13:00Z": "2026-11-28T02:30:00+01:00",
		"2026-11-28T01:30:00Z": "2026-11-28T02:30:00+01:00",
		"2026-11-28T01:29:59Z": "2026-11-27T02:30:00+01:00",
		"2026-11-28T23:59:00Z": "2026-11-28T02:30:00+01:00",
		"2026-03-29T00:59:59Z": "2026-03-28T02:30:00+01:00", // before the clocks are set
		"2026-03-29T02:00:00Z": "2026-03-29T03:00:00+02:00", // half past two is left out
		"2026-10-25T01:45:00Z": "2026-10-25T02:30:00+02:00", // half past two comes again
		"2026-10-26T01:00:00Z": "2026-10-25T02:30:00+02:00",
	} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := lastSlot(&sample.Spec.ScheduleTiming, at)
		if err != nil || slot.Format(time.RFC3339) != want {
			t.Errorf("at %s: %s, %v; want %s", now, slot.Format(time.RFC3339), err, want)
		}
	}
}

// mutation: a demo that waits for the run of a slot which does not exist makes this fail.
func TestAScheduleWithoutALastSlotIsAnError(t *testing.T) {
	for _, text := range []string{"0 0 1 1 *", "no cron"} {
		timing := &v1alpha1.ScheduleTiming{Cron: []string{text}}
		if slot, err := lastSlot(timing, time.Date(2026, 11, 28, 2, 0, 0, 0, time.UTC)); err == nil {
			t.Errorf("%s: slot %s, want an error", text, slot)
		}
	}
}
