// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutations: EndsAhead without its tolerance, or of a run without a time to live; decideFinished
// that does not look at EndStored, one that believes it where it is later than the end, or that
// counts such an end as now, which never comes.
func TestAnEndByAClockThatWasAhead(t *testing.T) {
	const ttl = time.Hour
	for name, c := range map[string]struct {
		end, stored time.Duration // from now
		ahead       bool
		want        time.Duration // when the run is deleted; 0: now
	}{
		"an end that is past":                       {end: -time.Minute, want: 59 * time.Minute},
		"an end of a moment ago, as stored later":   {end: -time.Minute, stored: -time.Second, want: 59 * time.Minute},
		"as far ahead as clocks may be apart":       {end: time.Minute, want: 61 * time.Minute},
		"ahead, and nobody knows when it was":       {end: 365 * 24 * time.Hour, ahead: true, want: 365*24*time.Hour + ttl},
		"ahead, and stored ten minutes ago":         {end: 365 * 24 * time.Hour, stored: -10 * time.Minute, ahead: true, want: 50 * time.Minute},
		"ahead, and stored an hour ago":             {end: 365 * 24 * time.Hour, stored: -ttl, ahead: true},
		"ahead of a clock that is behind: no later": {end: 24 * time.Hour, stored: 25 * time.Hour, ahead: true, want: 25 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			run := dispatched(t)
			run.Spec.TTLSecondsAfterFinished = new(int32(ttl.Seconds()))
			advance(t, run, epoch, succeeded("a", 1, "7"))
			now := run.Status.CompletedAt.Add(-c.end)
			in := letIn(Input{Run: run, Now: now, Lock: held(2)})
			if c.stored != 0 {
				in.EndStored = now.Add(c.stored)
			}
			if got := EndsAhead(run, now); got != c.ahead {
				t.Errorf("ahead: %t", got)
			}
			out := Decide(in)
			if out.Delete != (c.want == 0) || c.want > 0 && !out.Wake.Equal(now.Add(c.want)) || out.Changed {
				t.Errorf("deleted %t, looked at %s, changed %t", out.Delete, out.Wake.Sub(now), out.Changed)
			}
		})
	}
	noted := dispatched(t)
	noted.Spec.TTLSecondsAfterFinished = new(int32(ttl.Seconds()))
	advance(t, noted, epoch, succeeded("a", 1, "7"))
	end := noted.Status.CompletedAt.Time
	for stored, want := range map[time.Duration]time.Time{-24 * time.Hour: end.Add(ttl - 24*time.Hour), time.Hour: end.Add(ttl)} {
		noted.Status.EndStoredAt = &metav1.Time{Time: end.Add(stored)}
		now := end.Add(-48 * time.Hour)
		if out := Decide(letIn(Input{Run: noted, Now: now, Lock: held(2)})); EndsAhead(noted, now) || out.Delete || !out.Wake.Equal(want) {
			t.Errorf("stored %s after its end: looked at %s, want %s", stored, out.Wake, want)
		}
	}
	run := dispatched(t)
	for _, ended := range []bool{false, true} {
		if ended {
			advance(t, run, epoch, succeeded("a", 1, "7"))
		}
		if EndsAhead(run, epoch.AddDate(-1, 0, 0)) {
			t.Errorf("ended %t: it is to be deleted at no time", ended)
		}
	}
	if EndsAhead(&v1alpha1.WorkflowRun{}, epoch) {
		t.Error("a run without a status")
	}
}
