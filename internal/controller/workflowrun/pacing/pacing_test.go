// SPDX-License-Identifier: Apache-2.0

package pacing

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// mutation: Next without max makes "a slow API server sets the pace" fail; without Applied
// "many results" fails.
func TestLastWrite_Next(t *testing.T) {
	for name, c := range map[string]struct {
		last       LastWrite
		waiting    int
		lastOfMany bool
		want       time.Time
	}{
		"no write yet: at once":             {LastWrite{}, 0, false, time.Time{}},
		"a quick write: the least pause":    {LastWrite{epoch, time.Millisecond, 1}, 0, false, epoch.Add(MinPause)},
		"a slow API server sets the pace":   {LastWrite{epoch, time.Second, 0}, 0, false, epoch.Add(time.Second)},
		"many results: time for others":     {LastWrite{epoch, 20 * time.Millisecond, 50}, flushThreshold - 1, false, epoch.Add(120 * time.Millisecond)},
		"many wait: no longer than that":    {LastWrite{epoch, 20 * time.Millisecond, 50}, flushThreshold, false, epoch.Add(20 * time.Millisecond)},
		"the last few: no longer than that": {LastWrite{epoch, 20 * time.Millisecond, 50}, 3, true, epoch.Add(20 * time.Millisecond)},
		"however many, it is soon its turn": {LastWrite{epoch, 100 * time.Millisecond, 1000}, 0, false, epoch.Add(MaxPause)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.last.Next(c.waiting, c.lastOfMany); !got.Equal(c.want) {
				t.Errorf("next write at %s, want %s", got, c.want)
			}
		})
	}
}

// mutation: results that are counted and not told apart by their jobs make "one of two, and one
// that came again" and the case after it fail. With Started counted as an answer, without inFlight
// or without its share, another of the cases fails.
func TestLastOfMany(t *testing.T) {
	inFlight := func(n int) *v1alpha1.WorkflowRun {
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: &v1alpha1.WorkflowRunStatus{}}
		for i := range n {
			run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprint("s", i), Phase: v1alpha1.StepRunning, Attempt: 1})
		}
		return run
	}
	of := func(step string) Waiting {
		return Waiting{Job: protocol.JobID{RunUID: "uid", Step: step, Item: protocol.NoItem, Attempt: 1}}
	}
	first, second, answered := of("s0"), of("s1"), of("before")
	started, earlier := second, second
	started.Started, earlier.Job.Attempt = true, 0
	for name, c := range map[string]struct {
		waiting []Waiting
		applied int
		run     *v1alpha1.WorkflowRun
		want    bool
	}{
		"nothing came":                             {nil, 100, inFlight(2), false},
		"the last two of a hundred":                {[]Waiting{first, second}, 98, inFlight(2), true},
		"with one that came again":                 {[]Waiting{answered, first, second}, 98, inFlight(2), true},
		"one of two, the other will come":          {[]Waiting{first}, 98, inFlight(2), false},
		"one of two, the other just began":         {[]Waiting{first, started}, 98, inFlight(2), false},
		"one of two, and one that came again":      {[]Waiting{first, answered}, 98, inFlight(2), false},
		"one of two, twice":                        {[]Waiting{first, first}, 98, inFlight(2), false},
		"one of two, the other's earlier attempt":  {[]Waiting{first, earlier}, 98, inFlight(2), false},
		"all of a wave as large as the last":       {[]Waiting{first, second}, 2, inFlight(2), false},
		"two after not so many":                    {[]Waiting{first, second}, 2*itemShare - 1, inFlight(2), false},
		"nothing in flight, and one of many again": {[]Waiting{answered}, itemShare, inFlight(0), true},
		"nothing in flight, little before":         {[]Waiting{answered}, itemShare - 1, inFlight(0), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LastOfMany(c.waiting, c.applied, c.run); got != c.want {
				t.Errorf("last of many: %t, want %t", got, c.want)
			}
		})
	}
}

// mutation: BatchReadyAt that looks at the youngest makes "the oldest counts" fail.
func TestBatchReadyAt(t *testing.T) {
	began := func(age time.Duration) Waiting { return Waiting{Since: epoch.Add(-age), Started: true} }
	done := Waiting{Since: epoch}
	many := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{
		Name: "all", Phase: v1alpha1.StepRunning,
		ForEach: &v1alpha1.ForEachStatus{Total: 24, Begun: 24, Groups: []v1alpha1.ItemGroup{{Items: "0-23", Phase: v1alpha1.StepDispatched, Attempt: 1}}},
	}}}}
	ofItem := func(w Waiting) Waiting {
		w.Item = true
		return w
	}
	for name, c := range map[string]struct {
		waiting []Waiting
		want    time.Time
	}{
		"nothing waits":                            {nil, time.Time{}},
		"a result is ready at once":                {[]Waiting{done}, epoch},
		"news of a start wait for company":         {[]Waiting{began(0)}, epoch.Add(StartedPatience)},
		"with company both are ready":              {[]Waiting{began(0), done}, epoch},
		"the oldest counts":                        {[]Waiting{began(0), began(60 * time.Millisecond)}, epoch.Add(40 * time.Millisecond)},
		"after their patience they are alone":      {[]Waiting{began(StartedPatience)}, epoch},
		"a few of many items wait for others":      {[]Waiting{ofItem(done), ofItem(began(10 * time.Millisecond))}, epoch.Add(ItemPatience - 10*time.Millisecond)},
		"enough of many items are ready":           {[]Waiting{ofItem(done), ofItem(done), ofItem(done)}, epoch},
		"an item and a step are ready":             {[]Waiting{ofItem(done), done}, epoch},
		"items that were begun have more patience": {[]Waiting{ofItem(began(0))}, epoch.Add(ItemStartedPatience)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := BatchReadyAt(c.waiting, many); !got.Equal(c.want) {
				t.Errorf("ready at %s, want %s", got, c.want)
			}
		})
	}
}

// mutation: a wait that does not double, or has no limit, makes this fail.
func TestWaitsAfterRefusalsDoubleUpToALimit(t *testing.T) {
	for n, want := range map[int]time.Duration{0: time.Second, 3: 8 * time.Second, 9: 5 * time.Minute, 1000: 5 * time.Minute} {
		if got := Refused(n, 5*time.Minute); got != want {
			t.Errorf("a result refused %d times before waits %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]time.Duration{0: 5 * time.Second, 3: 40 * time.Second, 1000: 5 * time.Minute} {
		if got := NoRoom(n, 5*time.Minute); got != want {
			t.Errorf("a run without room, tried %d times before, waits %s, want %s", n, got, want)
		}
	}
}

func TestEarliest(t *testing.T) {
	never := time.Time{}
	for name, c := range map[string]struct{ a, b, want time.Time }{
		"never and never":     {never, never, never},
		"a time and never":    {epoch, never, epoch},
		"never and a time":    {never, epoch, epoch},
		"the first is sooner": {epoch, epoch.Add(1), epoch},
		"the other is sooner": {epoch.Add(1), epoch, epoch},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Earliest(c.a, c.b); !got.Equal(c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
