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

// inFlight is a run with so many jobs in the hands of workers: s0, s1 and so on.
func inFlight(n int) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{UID: "uid"}, Status: &v1alpha1.WorkflowRunStatus{}}
	for i := range n {
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: fmt.Sprint("s", i), Phase: v1alpha1.StepRunning, Attempt: 1})
	}
	return run
}

// of is the answer of a step's job.
func of(step string) Waiting {
	return Waiting{Job: protocol.JobID{RunUID: "uid", Step: step, Item: protocol.NoItem, Attempt: 1}}
}

// mutation: Next without max makes "a slow API server sets the pace" fail; without Applied "many
// results" fails; pause without its first case makes "a chain" fail, without Patient "a chain whose
// write has time", without inFlight "only one that came again", and without the bound on Applied
// "the last few" and "all of a wave as large as the last".
func TestLastWrite_Next(t *testing.T) {
	const quick = 20 * time.Millisecond
	first, second, others := of("s0"), of("s1"), make([]Waiting, flushThreshold)
	for name, c := range map[string]struct {
		last    LastWrite
		waiting []Waiting
		run     *v1alpha1.WorkflowRun
		patient bool
		want    time.Duration // after the last one
	}{
		"a quick write: the least pause":     {LastWrite{epoch, time.Millisecond, 1}, nil, inFlight(1), false, MinPause},
		"a slow API server sets the pace":    {LastWrite{epoch, 500 * time.Millisecond, 0}, nil, inFlight(1), false, 500 * time.Millisecond},
		"many results: time for others":      {LastWrite{epoch, quick, 50}, others[1:], inFlight(200), false, 6 * quick},
		"many wait: no longer than that":     {LastWrite{epoch, quick, 50}, others, inFlight(200), false, quick},
		"the last few: no longer than that":  {LastWrite{epoch, quick, 50}, []Waiting{first, second}, inFlight(2), false, quick},
		"all of a wave as large as the last": {LastWrite{epoch, quick, 15}, []Waiting{first, second}, inFlight(2), false, quick + 15*quick/ResultsPerPause},
		"a chain: nothing to wait for":       {LastWrite{epoch, 500 * time.Millisecond, 1}, []Waiting{first}, inFlight(1), false, MinPause},
		"a chain of two at a time":           {LastWrite{epoch, 500 * time.Millisecond, itemShare - 1}, []Waiting{first, second}, inFlight(2), false, MinPause},
		"a chain whose write has time":       {LastWrite{epoch, 500 * time.Millisecond, 0}, []Waiting{first}, inFlight(1), true, 500 * time.Millisecond},
		"only one that came again: no chain": {LastWrite{epoch, 500 * time.Millisecond, 0}, []Waiting{of("before")}, inFlight(0), false, 500 * time.Millisecond},
		"one of two: the other will come":    {LastWrite{epoch, 100 * time.Millisecond, 0}, []Waiting{first}, inFlight(2), false, 100 * time.Millisecond},
		"however many, it is soon its turn":  {LastWrite{epoch, 100 * time.Millisecond, 1000}, nil, inFlight(1), false, MaxPause},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := c.last.Next(News{Results: c.waiting, Patient: c.patient}, c.run), epoch.Add(c.want); !got.Equal(want) {
				t.Errorf("next write at %s, want %s", got, want)
			}
		})
	}
	if got := (LastWrite{}).Next(News{}, inFlight(0)); !got.IsZero() {
		t.Errorf("the first write waits until %s", got)
	}
}

// mutation: results that are counted and not told apart by their jobs make "one of two, and one
// that came again" and the case after it fail. With Started counted as an answer another of the
// cases fails.
func TestNoneToCome(t *testing.T) {
	first, second, answered := of("s0"), of("s1"), of("before")
	started, earlier := second, second
	started.Started, earlier.Job.Attempt = true, 0
	for name, c := range map[string]struct {
		waiting []Waiting
		run     *v1alpha1.WorkflowRun
		want    bool
	}{
		"nothing came":                             {nil, inFlight(2), false},
		"both of two":                              {[]Waiting{first, second}, inFlight(2), true},
		"with one that came again":                 {[]Waiting{answered, first, second}, inFlight(2), true},
		"one of two, the other will come":          {[]Waiting{first}, inFlight(2), false},
		"one of two, the other just began":         {[]Waiting{first, started}, inFlight(2), false},
		"one of two, and one that came again":      {[]Waiting{first, answered}, inFlight(2), false},
		"one of two, twice":                        {[]Waiting{first, first}, inFlight(2), false},
		"one of two, the other's earlier attempt":  {[]Waiting{first, earlier}, inFlight(2), false},
		"nothing in flight, and one of many again": {[]Waiting{answered}, inFlight(0), true},
	} {
		t.Run(name, func(t *testing.T) {
			if n, got := noneToCome(c.waiting, c.run); got != c.want || (len(c.waiting) > 0 && n != len(c.run.Status.Steps)) {
				t.Errorf("none to come: %t of %d, want %t", got, n, c.want)
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

// mutation: patience, or noneToCome, that makes a list of what is in flight makes this fail: they
// are asked with each result.
func TestAResultOfManyItemsIsPacedAtLittleCost(t *testing.T) {
	run := inFlight(1)
	run.Status.Steps[0].ForEach = &v1alpha1.ForEachStatus{Groups: []v1alpha1.ItemGroup{{Items: "0-9999", Phase: v1alpha1.StepRunning, Attempt: 1}}}
	one := []Waiting{{Job: protocol.JobID{RunUID: "uid", Step: "s0", Item: "7", Attempt: 1}, Item: true, Since: epoch}}
	last := LastWrite{epoch, time.Millisecond, 1}
	n := testing.AllocsPerRun(10, func() {
		if at := BatchReadyAt(one, run); !at.Equal(epoch.Add(ItemPatience)) {
			t.Errorf("ready at %s", at)
		}
		last.Next(News{Results: one}, run)
	})
	if n > 100 {
		t.Errorf("it takes %.0f allocations", n)
	}
}
