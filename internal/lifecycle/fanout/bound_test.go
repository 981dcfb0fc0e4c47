// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	ofTimeout = time.Minute
	ofWait    = 10 * time.Minute // the backoff
)

// fan is a step of which an item begins every other second: every 50th hangs, every seventh fails,
// and the others take up to a minute.
type fan struct {
	*Items
	began, ends, due  map[int]time.Time // due: when its next attempt was to be
	lateEnd, lateNext time.Duration     // the latest ones so far
	timedOut, again   int               // how many of each
}

func newFan(maxFailures int32) *fan {
	millis, jitter := ofWait.Milliseconds(), int32(0)
	spec := &v1alpha1.Step{
		Name: "s", TimeoutSeconds: int32(ofTimeout.Seconds()), ForEach: &v1alpha1.ForEach{MaxParallel: 1000, OnItemFailure: v1alpha1.Collect},
		Retry: v1alpha1.Retry{MaxFailures: maxFailures, Backoff: v1alpha1.Backoff{InitialMillis: &millis, MaxMillis: &millis, JitterPercent: &jitter}},
	}
	job := protocol.JobID{RunUID: "u", Step: "s", Item: "-", Attempt: 1}
	return &fan{
		Items: Read(0, spec, job, &v1alpha1.ForEachStatus{Total: 10_000}),
		began: map[int]time.Time{}, ends: map[int]time.Time{}, due: map[int]time.Time{},
	}
}

// second plays one second, and writes status.
func (f *fan) second(active int, now time.Time) {
	for item, at := range f.ends {
		if now.Before(at) {
			continue
		}
		delete(f.ends, item)
		if item%7 == 0 {
			f.fail(item, now)
		} else {
			f.Succeeds(item, 0, nil)
		}
	}
	f.Succeed()
	for _, g := range f.TimedOut(func(at time.Time) bool { return !at.IsZero() && !now.Before(at) }) {
		for item := range g.Set.All() {
			f.timedOut++
			f.lateEnd = max(f.lateEnd, now.Sub(f.began[item])-ofTimeout)
			delete(f.ends, item)
			f.FailForGood(item)
		}
	}
	for _, a := range f.Due(now, active) {
		f.again++
		f.lateNext = max(f.lateNext, now.Sub(f.due[a.Item]))
		f.begin(a, now)
	}
	if now.Unix()%2 == 0 {
		f.begin(Attempt{Item: int(f.St.Begun), Number: 1}, now)
	}
	f.Store(active, now)
}

func (f *fan) fail(item int, now time.Time) {
	clear(f.waits) // each decision has its own
	if !f.Fail(item, "Busy", false, now) {
		f.due[item] = now.Add(ofWait)
	}
}

func (f *fan) begin(a Attempt, now time.Time) {
	f.Launch(a, now)
	f.Start(a.Item, now, now)
	f.began[a.Item] = now
	if a.Item%50 != 3 {
		f.ends[a.Item] = now.Add(time.Duration(1+a.Item*17%59) * time.Second)
	}
}

// However many steps share the groups, and however many items begin after one, it times out after
// twice its time at most; and one that backs off waits no longer than twice the longest wait more.
// In truth both are much less.
//
// mutation: fewWaiting without stretches makes this fail.
func TestNothingIsPutOffForEver(t *testing.T) {
	for _, c := range []struct {
		active      int
		maxFailures int32
		end, next   time.Duration // the most
	}{
		{1, 3, 0, 0},
		{5, 3, 2 * time.Second, ofWait / 4},
		{10, 3, 8 * time.Second, ofWait / 2},
		{20, 3, 15 * time.Second, ofWait},
		{20, 10, 15 * time.Second, 2 * ofWait},
	} {
		t.Run(fmt.Sprint(c.active, " steps, ", c.maxFailures, " failures"), func(t *testing.T) {
			f, now := newFan(c.maxFailures), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
			for end := now.Add(time.Hour + time.Duration(c.maxFailures-3)*ofWait); now.Before(end); now = now.Add(time.Second) {
				f.second(c.active, now)
				flying := 0
				for k := range f.groups { // what still runs is late, too
					if status.InFlight(f.groups[k].Phase) {
						flying++
					}
					for item := range f.groups[k].Set.All() {
						if status.InFlight(f.groups[k].Phase) {
							f.lateEnd = max(f.lateEnd, now.Sub(f.began[item])-ofTimeout)
						} else {
							f.lateNext = max(f.lateNext, now.Sub(f.due[item]))
						}
					}
				}
				if most := max(bounds.MinInFlight, perHistory*Share(bounds.MaxGroups, c.active)); flying > most {
					t.Fatalf("%d groups are in flight, want %d", flying, most)
				}
			}
			if f.timedOut < 30 || f.again < 150 || f.lateEnd > c.end || f.lateNext > c.next {
				t.Errorf("%d items timed out up to %s late, want %s; %d went out again up to %s late, want %s", f.timedOut, f.lateEnd, c.end, f.again, f.lateNext, c.next)
			}
			t.Logf("%d items timed out up to %s late; %d went out again up to %s late", f.timedOut, f.lateEnd, f.again, f.lateNext)
		})
	}
}

// Whatever the times of their items: each history has some four groups in flight, and those that
// wait are few enough.
func TestTimesMakeNoMoreGroupsThanStatusHasRoomFor(t *testing.T) {
	f, now := newFan(3), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	f.spec.StartTimeoutSeconds = 600
	for k := range 600 { // each of another second
		at := bounds.Micro(now.Add(-time.Duration(k) * time.Second))
		for h := range int32(3) {
			f.put(10*k+int(h), Group{Phase: v1alpha1.StepDispatched, Attempt: h + 1, Failures: h, DispatchedAt: at})
			f.put(10*k+3+int(h), Group{Phase: v1alpha1.StepBackingOff, Attempt: h + 1, Failures: h, NextAttemptAt: bounds.Micro(now.Add(time.Duration(k-100) * time.Second))})
			if k < 60 {
				f.put(10*k+6+int(h), Group{Phase: v1alpha1.StepRunning, Attempt: h + 1, Failures: h, DispatchedAt: at, StartedAt: at})
			}
		}
	}
	before := f.UnderWay()
	f.Store(20, now)
	in := map[v1alpha1.StepPhase]int{}
	for k := range f.groups {
		in[f.groups[k].Phase]++
	}
	if in[v1alpha1.StepRunning]+in[v1alpha1.StepDispatched] > bounds.MinInFlight || in[v1alpha1.StepBackingOff] > bounds.MinWaiting || f.UnderWay() != before {
		t.Errorf("groups by phase: %v, %d items, want %d", in, f.UnderWay(), before)
	}
}

// Items in flight that are too far apart would be groups that nothing makes fewer. Those that
// waited for longest go out, and those that make no such group. New ones keep their room.
//
// mutations: Due without its look at what is in flight, or in the order of attempts; aloft that
// keeps no room for new items, or keeps it where there are none; Crowded that looks at no room, or
// not at the items that began.
func TestDueItemsOfTooManyHistoriesWaitOn(t *testing.T) {
	f, now := newFan(3), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for k := range 4 {
		f.put(100+k, Group{Phase: v1alpha1.StepRunning, Attempt: 2, Failures: 1, DispatchedAt: bounds.Micro(now), StartedAt: bounds.Micro(now)})
	}
	for k := range 15 {
		f.put(k+1, Group{Phase: v1alpha1.StepBackingOff, Attempt: int32(k + 1), Failures: int32(k + 1), NextAttemptAt: bounds.Micro(now.Add(-time.Duration(k) * time.Second))})
	}
	f.St.Begun = 200
	out := func() string {
		var items []int
		for _, a := range f.Due(now, 20) {
			items = append(items, a.Item)
			f.Launch(a, now)
		}
		f.Store(20, now)
		return fmt.Sprint(items)
	}
	moments := func() (n int) {
		f.Moments(true, 20, func(at time.Time) {
			if !at.IsZero() && !at.After(now) {
				n++
			}
		})
		return n
	}
	if n := moments(); n != 15 { // there is room for any of them
		t.Errorf("%d moments", n)
	}
	if got := out(); got != "[15 14 13 12 11 10 9 8 1]" { // four like item 1 are in flight
		t.Errorf("items %s went out", got)
	}
	if got := out(); got != "[]" || moments() > 0 || f.Crowded(20) {
		t.Errorf("then items %s went out; %d moments, crowded %t", got, moments(), f.Crowded(20))
	}
	f.put(104, Group{Phase: v1alpha1.StepRunning, Attempt: 90, Failures: 1, DispatchedAt: bounds.Micro(now), StartedAt: bounds.Micro(now)})
	if !f.Crowded(20) || f.Crowded(19) {
		t.Error("new items have no room of their own now")
	}
	for item := 200; item < 204; item++ {
		f.Launch(Attempt{Item: item, Number: 1}, now)
	}
	if f.Crowded(20) {
		t.Error("new items make no other groups")
	}
	for item := 200; item < 204; item++ {
		f.Succeeds(item, 0, nil)
	}
	f.Succeed()
	f.St.Begun = f.St.Total
	if got := out(); got != "[7 6 5]" { // what was for new ones, but one
		t.Errorf("where none is to begin items %s went out", got)
	}
}

// mutation: join that has the later time always makes this fail.
func TestWhoHasWaitedForLongestStaysFirst(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var groups []Group
	for k := range 9 {
		groups = append(groups, Group{Set: set(k), Phase: v1alpha1.StepBackingOff, Attempt: 1, Failures: 1, NextAttemptAt: bounds.Micro(now.Add(time.Duration(k-8) * time.Minute))})
	}
	got := fewWaiting(groups, 1, now)
	if len(got) != 1 || got[0].Set.Len() != 9 || !got[0].NextAttemptAt.Time.Equal(now.Add(-8*time.Minute)) {
		t.Errorf("%+v", got)
	}
}

// Items of other histories leave no room, and an item begins each second.
//
// mutation: fewInFlight without stretches makes this fail.
func TestAnItemTimesOutAfterTwiceItsTimeAtMost(t *testing.T) {
	f, now := newFan(3), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for k := range bounds.MinInFlight {
		f.put(9000+k, Group{Phase: v1alpha1.StepDispatched, Attempt: int32(k + 2), DispatchedAt: bounds.Micro(now)})
	}
	over := func(at time.Time) bool { return !now.Before(at) }
	for first := now; len(f.TimedOut(over)) == 0; now = now.Add(time.Second) {
		if now.Sub(first) > 2*ofTimeout {
			t.Fatalf("after %s the first item is in flight: %+v", now.Sub(first), f.groups)
		}
		f.Launch(Attempt{Item: int(f.St.Begun), Number: 1}, now)
		f.Start(int(f.St.Begun)-1, now, now)
		f.Store(20, now)
	}
}

// mutation: a finest part that is 1 makes this fail.
func TestNeighboursInTimeAreMadeOneFirst(t *testing.T) {
	f, now := newFan(3), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	var groups []Group
	for k, ms := range []time.Duration{0, 10_000, 10_400, 40_000} {
		at := bounds.Micro(now.Add(ms * time.Millisecond))
		groups = append(groups, Group{Set: set(k), Phase: v1alpha1.StepRunning, Attempt: 1, DispatchedAt: at, StartedAt: at})
	}
	var items []string
	for _, g := range f.fewInFlight(groups, 3, now) {
		items = append(items, g.Set.String())
	}
	if got := fmt.Sprint(items); got != "[0 1-2 3]" {
		t.Errorf("groups %s", got)
	}
}
