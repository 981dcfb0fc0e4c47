// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strconv"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// beginItems begins a step with forEach; its first jobs go out with this decision. An empty list is
// a success at once.
func beginItems(d *draft, i int, list []any) {
	s := &d.st.Steps[i]
	s.Phase, s.StartedAt, s.ForEach = v1alpha1.StepRunning, bounds.Micro(d.now), &v1alpha1.ForEachStatus{Total: int32(len(list))}
	if d.st.StartedAt == nil {
		d.st.StartedAt = bounds.Second(d.now)
	}
	d.items[i] = newItems(d, i)
	d.event(report.ItemsStarted(s.Name, len(list), d.plan.Steps[i].Job.Topic))
	if len(list) == 0 {
		finishItems(d, d.items[i])
	}
}

// itemLaunches are the jobs of items that go out now. Steps whose last items fail before they are
// dispatched end by that.
func itemLaunches(d *draft) []launch {
	var all []launch
	room := roomOfItems(d)
	for _, it := range d.items {
		if it == nil {
			continue
		}
		before := it.UnderWay()
		some := launchesOf(d, it, room.of(it))
		if len(some) == 0 {
			settleItems(d, it)
		} else {
			reportItems(d, it)
		}
		if d.failure != nil {
			return nil
		}
		if d.items[it.Step] == nil {
			d.placeFreed = true // what waits for the step may start
			continue
		}
		room.take(it, before, some)
		all = append(all, some...)
	}
	return all
}

// itemRoom is how many items of a run may begin: all, and of those those with locks. Places are
// kept for the items of steps that were asked about in an earlier decision of this pass.
type itemRoom struct {
	all, locked int
	kept        map[*fanout.Items][]int
}

func roomOfItems(d *draft) itemRoom {
	room := itemRoom{all: bounds.MaxUnderWay, locked: bounds.MaxLockedItems, kept: placesAsked(d)}
	for _, it := range d.items {
		if it != nil {
			room.less(it, it.UnderWay())
		}
	}
	return room
}

// placesAsked are the items that have an answer about their locks, and need a place for it. A grant
// without one is given back, which costs a start of a rate. Who is refused needs none.
func placesAsked(d *draft) map[*fanout.Items][]int {
	steps := map[string][]int{}
	for part, answer := range d.in.Locks {
		step, item, _ := strings.Cut(part, "/") // without an item it is a step
		if n, err := strconv.Atoi(item); err == nil && answer.State != facts.LocksUnasked && answer.State != facts.LocksRefused {
			steps[step] = append(steps[step], n)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	kept := map[*fanout.Items][]int{}
	for i, it := range d.items {
		if it != nil && it.Problem == nil && !it.Crowded(forEachSteps(d)) {
			kept[it] = steps[d.st.Steps[i].Name]
		}
	}
	return kept
}

// of is the room for items of a step. One with locks of which none is under way always has room for
// one: it may hold what those wait for that fill the room. Beside those others keep their places.
func (r *itemRoom) of(it *fanout.Items) int {
	others, beside := 0, 0
	for o := range r.kept {
		if o == it || !o.HasLocks() {
			continue
		}
		n := r.keeps(o)
		others += n
		if n+o.UnderWay() > 0 {
			beside++
		}
	}
	all, locked := max(0, r.all-others), r.locked-others
	if !it.HasLocks() {
		return all
	}
	least := min(r.keeps(it), locked+beside)
	if it.UnderWay() == 0 {
		least = max(least, 1)
	}
	return min(all, max(locked, least))
}

// keeps is how many places are kept for items of a step that did not begin yet.
func (r *itemRoom) keeps(it *fanout.Items) (n int) {
	for _, item := range r.kept[it] {
		if item >= int(it.St.Begun) {
			n++
		}
	}
	return n
}

func (r *itemRoom) less(it *fanout.Items, n int) {
	r.all -= n
	if it.HasLocks() {
		r.locked -= n
	}
}

// take counts what began: those that wait for locks are under way already, the others when they
// are committed.
func (r *itemRoom) take(it *fanout.Items, before int, launches []launch) {
	r.less(it, it.UnderWay()-before)
	for _, l := range launches {
		if l.item.Number == 1 && !it.HasLocks() {
			r.less(it, 1)
		}
	}
}

// launchesOf renders the jobs of the items of a step that go out now: those whose wait is over,
// then new ones, as far as there are places. Items that need locks have them first: what they read
// takes nothing of what this decision may read while they wait.
func launchesOf(d *draft, it *fanout.Items, room int) []launch {
	queue := it.Due(d.now, forEachSteps(d))
	free, awaiting := mayBegin(d, it, room)
	if len(queue)+free+awaiting == 0 {
		return nil
	}
	if it.HasLocks() {
		if free+awaiting > 0 {
			queue = append(queue, locked(d, it, free)...)
		}
		free = 0
	}
	if it.Problem != nil || len(queue)+free == 0 {
		return nil
	}
	r := rendererOf(d, it, d.view.ItemRenderer)
	if r == nil {
		return nil
	}
	var launches []launch
	for _, a := range queue {
		launches = launchItem(d, launches, it, r, a)
	}
	launches = launchNew(d, launches, it, r, free)
	if it.Problem != nil {
		return nil
	}
	return launches
}

// mayBegin is how many new items of a step may begin, and how many have a place already and need
// their locks. None may where the step is crowded: those that wait for locks leave their lines.
func mayBegin(d *draft, it *fanout.Items, room int) (free, awaiting int) {
	if it.Crowded(forEachSteps(d)) {
		it.LeaveLines()
		return 0, 0
	}
	return it.Free(room), len(it.Awaiting())
}

// launchNew adds new items to those that go out. One whose input cannot be evaluated fails, and
// leaves its place to the next one.
func launchNew(d *draft, launches []launch, it *fanout.Items, r *render.ItemRenderer, free int) []launch {
	full := len(launches) + free
	for item := int(it.St.Begun); item < int(it.St.Total) && len(launches) < full; item++ {
		if it.Problem != nil || d.left {
			break
		}
		launches = launchItem(d, launches, it, r, fanout.Attempt{Item: item, Number: 1})
	}
	return launches
}

// locked are items that have their locks now; as many new ones as are free ask for theirs. One that
// fails leaves its place to another.
func locked(d *draft, it *fanout.Items, free int) (all []fanout.Attempt) {
	var r *render.ItemLocks
	if free > 0 || lacksKeys(d, it) {
		if r = rendererOf(d, it, d.view.ItemLocks); r == nil {
			return nil
		}
	}
	it.Await(free)
	before := it.UnderWay()
	for _, item := range it.Awaiting() {
		if it.Problem != nil {
			break
		}
		if d.left && !answered(d, it, item) {
			continue
		}
		if lockItem(d, it, r, item) {
			all = append(all, fanout.Attempt{Item: item, Number: 1})
		}
	}
	d.placeFreed = d.placeFreed || it.UnderWay() < before
	return all
}

// answered says whether an item has an answer about its locks. Then its keys are known, and a grant
// that is not taken now is given back.
func answered(d *draft, it *fanout.Items, item int) bool {
	part := v1alpha1.ItemLocks{Item: int32(item)}.Part(d.st.Steps[it.Step].Name)
	return d.in.Locks[part].State != facts.LocksUnasked
}

// lacksKeys says whether an item awaits locks whose keys are not known.
func lacksKeys(d *draft, it *fanout.Items) bool {
	return slices.ContainsFunc(it.Awaiting(), func(item int) bool {
		has := it.LocksOf(item)
		_, known := knownWants(d, has.Part(d.st.Steps[it.Step].Name), d.plan.Steps[it.Step].ForEach.Locks, has.LockWait)
		return !known && len(has.Locks) == 0
	})
}

// launchItem adds an item to those that go out, unless its input cannot be evaluated, or this
// decision has rendered enough.
func launchItem(d *draft, launches []launch, it *fanout.Items, r *render.ItemRenderer, a fanout.Attempt) []launch {
	l := launch{step: it.Step, item: a}
	var problem *v1alpha1.StepError
	if a.Number < 0 {
		problem = report.AttemptsExceeded()
	} else {
		var err error
		if l.input, problem, err = r.Render(a.Item); leaveForNext(d, err) {
			return launches // it goes out with the next decision
		}
	}
	d.progressed++
	if problem != nil {
		it.Begin(a.Item)
		d.placeFreed = d.placeFreed || a.Number != 1 || it.HasLocks() // new ones without locks have no place yet
		itemFailed(d, it, a.Item, *problem)
		return launches
	}
	return append(launches, l)
}
