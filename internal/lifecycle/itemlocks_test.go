// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// lockKeeper has mutexes for the steps and items of one run: by name the part that holds it.
type lockKeeper struct {
	holder map[string]string
	fence  int64
}

// answer adds what becomes of questions. Now and then the store is away.
func (k *lockKeeper) answer(c *chance, known map[string]LocksAnswer, asks []facts.LocksAsk) map[string]LocksAnswer {
	if known == nil {
		known = map[string]LocksAnswer{}
	}
	if k.holder == nil {
		k.holder = map[string]string{}
	}
	AskInTurn(asks, func(ask facts.LocksAsk) LocksState {
		lock := ask.Wants[0].Name
		switch by := k.holder[lock]; {
		case c.odds(10):
			known[ask.Part] = LocksAnswer{State: LocksUnavailable, Cause: "away"}
		case by != "" && by != ask.Part:
			known[ask.Part] = LocksAnswer{State: LocksWaiting, Lock: lock}
		default:
			k.holder[lock] = ask.Part
			k.fence++
			known[ask.Part] = heldWith(k.fence)
		}
		return known[ask.Part].State
	})
	return known
}

// used checks that steps and items have what they were granted, also if others had to be
// refused for it.
func (k *lockKeeper) used(c *chance, known map[string]LocksAnswer, out *Decision) {
	for i := range out.Status.Steps {
		s := &out.Status.Steps[i]
		if known[s.Name].State == LocksHeld && len(s.Locks) == 0 && !status.Ended(s.Phase) {
			c.fail("step %s was granted its locks, and found no place", s.Name)
		}
		if s.ForEach == nil || status.Ended(s.Phase) {
			continue
		}
		awaits := fanout.Read(i, c.spec(s.Name), protocol.JobID{}, s.ForEach).Awaiting()
		for item := range int(s.ForEach.Total) {
			l := v1alpha1.ItemLocks{Item: int32(item)}
			has := slices.ContainsFunc(s.ForEach.Locks, func(h v1alpha1.ItemLocks) bool { return h.Item == l.Item && len(h.Locks) > 0 })
			waits := item >= int(s.ForEach.Begun) || slices.Contains(awaits, item)
			if known[l.Part(s.Name)].State == LocksHeld && waits && !has {
				c.fail("item %d of step %s was granted its locks, and has none", item, s.Name)
			}
		}
	}
}

// check compares what status says of locks with what there is, and takes back what it does not say.
func (k *lockKeeper) check(c *chance) {
	held, entries, steps := map[string]string{}, 0, 0
	for i := range c.run.Status.Steps {
		s := &c.run.Status.Steps[i]
		k.held(c, held, s.Name, s.Locks)
		if status.InFlight(s.Phase) && len(c.spec(s.Name).Locks) != len(s.Locks) {
			c.fail("step %s is under way with %v", s.Name, s.Locks)
		}
		if s.ForEach == nil {
			continue
		}
		entries += len(s.ForEach.Locks)
		steps++
		for _, g := range fanout.Groups(s.ForEach) {
			for item := range g.Set.All() {
				k.item(c, s, item, g.Phase == v1alpha1.StepPending)
			}
		}
		for j, l := range s.ForEach.Locks {
			if status.Ended(s.Phase) || j > 0 && s.ForEach.Locks[j-1].Item >= l.Item || (l.LockWait == nil) == (len(l.Locks) == 0) {
				c.fail("step %s: odd locks %+v", s.Name, s.ForEach.Locks)
			}
			k.held(c, held, l.Part(s.Name), l.Locks)
		}
	}
	if most := bounds.MaxLockedItems + max(0, steps-1); entries > most {
		c.fail("%d items have locks or wait for them", entries)
	}
	k.holder = held
}

// held notes what a part has by status, which nobody else has.
func (k *lockKeeper) held(c *chance, held map[string]string, part string, locks []v1alpha1.LockHold) {
	for _, h := range locks {
		if by := held[h.Name]; by != "" || k.holder[h.Name] != part {
			c.fail("%s is held by %s, %q and %q", h.Name, part, by, k.holder[h.Name])
		}
		held[h.Name] = part
	}
}

func (k *lockKeeper) awaited(c *chance) bool {
	return slices.ContainsFunc(c.run.Status.Steps, func(s v1alpha1.StepStatus) bool {
		return s.LockWait != nil || s.ForEach != nil && slices.ContainsFunc(s.ForEach.Groups, func(g v1alpha1.ItemGroup) bool { return g.Phase == v1alpha1.StepPending })
	})
}

// item checks one that is under way: it has its locks from its first job on.
func (k *lockKeeper) item(c *chance, s *v1alpha1.StepStatus, item int, awaits bool) {
	if c.spec(s.Name).ForEach.Locks == nil || awaits {
		return
	}
	key := strings.NewReplacer("${item % 4}", fmt.Sprint(item%4), "${item}", fmt.Sprint(item)).Replace(c.spec(s.Name).ForEach.Locks[0].Mutex)
	want := fmt.Sprintf("mutex:%s/%s", c.run.Namespace, key)
	for _, l := range s.ForEach.Locks {
		if int(l.Item) == item && len(l.Locks) == 1 && l.Locks[0].Name == want {
			return
		}
	}
	c.fail("item %d of step %s is under way without %s: %+v", item, s.Name, want, s.ForEach.Locks)
}

// lockedItems is a run of n items, each with the mutex of its remainder by three.
func lockedItems(n int, parallel int32, onFailure v1alpha1.ItemFailureAction) *v1alpha1.WorkflowRun {
	run := fanOut(n, parallel, onFailure)
	run.Spec.Steps[0].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m${item % 3}")}
	return run
}

func part(item int) string { return v1alpha1.ItemLocks{Item: int32(item)}.Part("all") }

func jobLocks(jobs []Job) (all []string) {
	for _, j := range jobs {
		all = append(all, j.ID.Item+" "+strings.Join(j.Locks, " "))
	}
	return all
}

// An item goes out with its locks, which are in the same write, and keeps them over its attempts;
// others wait meanwhile, in places of maxParallel.
//
// mutations: launchesOf that begins items with locks as others, commitItem or Outline without those
// of the item, settleLocks that keeps what is over, and write without the version, make this fail.
func TestItemsHaveLocksOfTheirOwn(t *testing.T) {
	run := lockedItems(5, 4, v1alpha1.Collect)
	name := func(n int) string { return fmt.Sprintf("mutex:%s/m%d", run.Namespace, n) }
	out := decideLocked(t, run, epoch, nil)
	var asked []string
	for _, ask := range out.Needs.Locks {
		asked = append(asked, ask.Part+" "+ask.Wants[0].Name)
	}
	if want := []string{"all/0 " + name(0), "all/1 " + name(1), "all/2 " + name(2), "all/3 " + name(0)}; !slices.Equal(asked, want) || len(out.Dispatch) > 0 {
		t.Fatalf("asks %v, dispatches %v", asked, out.Dispatch)
	}
	waits := LocksAnswer{State: LocksWaiting, Lock: name(0), TTL: time.Minute}
	first := map[string]LocksAnswer{part(0): heldWith(7), part(1): heldWith(8), part(2): {State: LocksUnavailable}, part(3): waits}
	out = decideLocked(t, run, epoch, first)
	if got, want := jobLocks(out.Dispatch), []string{"0 " + name(0) + "=7", "1 " + name(1) + "=8"}; !slices.Equal(got, want) {
		t.Errorf("dispatches %v, want %v", got, want)
	}
	at := bounds.Second(epoch)
	want := []v1alpha1.ItemLocks{
		{Item: 0, Locks: []v1alpha1.LockHold{hold(name(0), 7)}},
		{Item: 1, Locks: []v1alpha1.LockHold{hold(name(1), 8)}},
		{Item: 3, LockWait: &v1alpha1.LocksWait{Lock: name(0), StartedAt: *at}},
	}
	if diff := cmp.Diff(want, out.Status.Steps[0].ForEach.Locks); diff != "" || out.Status.MinWriterVersion != v1alpha1.ItemLocksVersion {
		t.Errorf("status (-want +got):\n%s; version %d", diff, out.Status.MinWriterVersion)
	}
	if !out.Wake.Equal(epoch.Add(time.Minute)) || outcomeOf(&out.Status) != "Running/Running" {
		t.Errorf("wakes at %s, %s", out.Wake, outcomeOf(&out.Status))
	}
	if j, err := JobOf(run, itemJob("all", 1, 1), nil); err != nil || !slices.Equal(j.Locks, []string{name(1) + "=8"}) {
		t.Errorf("rendered again it has %v, %v", j.Locks, err)
	}
	still := map[string]LocksAnswer{part(2): waits, part(3): waits}
	out = decideLocked(t, run, epoch, still, ofItem(0, failed("all", 1, "E", "")), ofItem(1, succeeded("all", 1, "1")))
	if l := out.Status.Steps[0].ForEach.Locks; len(l) != 3 || l[0].Locks[0].Fence != 7 || l[1].Item != 2 || l[1].LockWait == nil {
		t.Errorf("item 0 is tried again, item 1 is over: %+v", l)
	}
	out = decideLocked(t, run, epoch.Add(59*time.Second), still)
	if got := jobLocks(out.Dispatch); !slices.Equal(got, []string{"0 " + name(0) + "=7"}) {
		t.Errorf("the next attempt is %v", got)
	}
}

// A step with forEach may have locks of its own, beside those of its items: they are held until the
// last item is over, and each job carries both.
//
// mutation: FencesOf without those of the step makes this fail.
func TestLocksOfAStepWithItems(t *testing.T) {
	run := lockedItems(2, 2, v1alpha1.Collect)
	run.Spec.Steps[0].Locks = []v1alpha1.LockRequest{mutexOf("whole")}
	out := decideLocked(t, run, epoch, map[string]LocksAnswer{"all": waitsFor})
	if s := &out.Status.Steps[0]; s.ForEach != nil || s.LockWait == nil || len(out.Needs.Locks) > 0 {
		t.Fatalf("%+v, asks %v", s, out.Needs.Locks)
	}
	own := map[string]LocksAnswer{part(0): heldWith(8), part(1): heldWith(9), "all": heldWith(7)}
	out = decideLocked(t, run, epoch, own)
	whole, m := "mutex:"+run.Namespace+"/whole=7", "mutex:"+run.Namespace+"/m"
	if got, want := jobLocks(out.Dispatch), []string{"0 " + whole + " " + m + "0=8", "1 " + whole + " " + m + "1=9"}; !slices.Equal(got, want) {
		t.Errorf("dispatches %v, want %v", got, want)
	}
	out = decideLocked(t, run, epoch, nil, ofItem(0, succeeded("all", 1, "1")))
	if len(out.Status.Steps[0].Locks) != 1 {
		t.Error("the step has lost its lock")
	}
	out = decideLocked(t, run, epoch, nil, ofItem(1, succeeded("all", 1, "1")))
	if s := &out.Status.Steps[0]; s.Phase != v1alpha1.StepSucceeded || len(s.Locks)+len(s.ForEach.Locks) > 0 {
		t.Errorf("%+v", s)
	}
}

// mutations: holdersText without items, lockItem that does not end a refused item, or a wait whose
// time is over, itemWaiting that sees none, leaveLockQueues without items, and locked that frees no
// place, make this fail.
func TestItemsThatDoNotGetTheirLocks(t *testing.T) {
	run := lockedItems(2, 2, v1alpha1.Collect)
	waits := LocksAnswer{State: LocksWaiting, Lock: "gpus/eu", Holders: []string{"x/y"}, TTL: time.Minute}
	both := map[string]LocksAnswer{part(0): waits, part(1): waits}
	out := decideLocked(t, run, epoch, both)
	c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
	if c.Reason != v1alpha1.ReasonWaitingForLock || !strings.Contains(c.Message, "item 0 waits for lock gpus/eu since ") {
		t.Errorf("%s: %s", c.Reason, c.Message)
	}
	if !strings.HasSuffix(c.Message, ", held then by x/y") {
		t.Errorf("it does not say who had the lock: %s", c.Message)
	}
	both[part(0)] = LocksAnswer{State: LocksWaiting, Lock: "gpus/eu", Holders: []string{"n/m"}, TTL: time.Minute}
	if out = decideLocked(t, run, epoch.Add(time.Second), both); out.Changed {
		t.Errorf("another holder is written: %s", status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message)
	}
	run.Spec.Suspend = true
	if out = decideLocked(t, run, epoch, nil); len(out.Status.Steps[0].ForEach.Locks) > 0 {
		t.Errorf("suspended it waits: %+v", out.Status.Steps[0].ForEach.Locks)
	}
	run.Spec.Suspend = false
	busy := LocksAnswer{State: LocksRefused, Reason: v1alpha1.ReasonLocksBusy, Lock: "gpus/eu"}
	narrow := lockedItems(2, 1, v1alpha1.Collect)
	if out = decideLocked(t, narrow, epoch, map[string]LocksAnswer{part(0): busy}); len(out.Needs.Locks) != 1 || out.Needs.Locks[0].Part != part(1) {
		t.Errorf("the place of one that is refused is free for %v", out.Needs.Locks)
	}
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{part(0): busy, part(1): waits})
	f := out.Status.Steps[0].ForEach
	if e := out.Status.Steps[0].Error; f.Failed != 1 || f.FailedItems != "0" || e == nil || e.Code != v1alpha1.ReasonLocksBusy || len(f.Locks) != 1 {
		t.Errorf("%+v, %+v", f, e)
	}
	out = decideLocked(t, run, epoch.Add(time.Minute), both)
	if e := out.Status.Steps[0].Error; e == nil || e.Code != v1alpha1.ReasonLockQueueTimeout || outcomeOf(&out.Status) != "Succeeded/Succeeded" {
		t.Errorf("%+v, %s", e, outcomeOf(&out.Status))
	}

	run = lockedItems(3, 3, v1alpha1.FailStep)
	out = decideLocked(t, run, epoch, map[string]LocksAnswer{part(0): heldWith(7), part(1): busy})
	if outcomeOf(&out.Status) != "Failed/StepFailed" || out.Status.Steps[0].ForEach.Locks != nil || len(out.Dispatch) > 0 {
		t.Errorf("%s, %+v", outcomeOf(&out.Status), out.Status.Steps[0].ForEach)
	}
}

// Each lock of an item can be had, or says why not.
//
// mutations: validate.go without the locks of items, or without item in them, ItemRenderer.Locks
// without its bound, make this fail.
func TestKeysOfItems(t *testing.T) {
	dear := "k-${" + strings.Repeat("size(inputs.list.filter(x, x != item)) + ", 8) + "0}"
	for text, want := range map[string]string{
		"h-${item}": "", "h-${run.name}-${item + 1}": "", "${steps.none.output}": "InvalidSpec", "h-${item.none}": "LockUnusable", "a b": "LockUnusable",
		dear: "LockUnusable", "${": "InvalidSpec",
	} {
		run := fanOut(300, 1, v1alpha1.FailStep)
		run.Spec.Steps[0].ForEach.Locks = []v1alpha1.LockRequest{mutexOf(text)}
		out := decideLocked(t, run, epoch, nil)
		code := status.ReasonOf(&out.Status, v1alpha1.ConditionSucceeded)
		if e := stepError(&out.Status); e != nil {
			code = e.Code
		}
		if len(out.Needs.Locks) > 0 {
			code = ""
		}
		if code != want {
			t.Errorf("%s: %q, want %q", text, code, want)
		}
	}
}

// Items that may not go out, since those in flight have too many histories, are in nobody's way.
//
// mutation: launchesOf without LeaveLines makes this fail.
func TestItemsThatMayNotGoOutLeaveTheLine(t *testing.T) {
	run := lockedItems(600, 600, v1alpha1.Collect)
	out := decideLocked(t, run, epoch, nil)
	waits := map[string]LocksAnswer{}
	for _, ask := range out.Needs.Locks {
		waits[ask.Part] = LocksAnswer{State: LocksWaiting, Lock: ask.Wants[0].Name}
	}
	decideLocked(t, run, epoch, waits)
	f := run.Status.Steps[0].ForEach
	if len(f.Locks) != bounds.MaxLockedItems {
		t.Fatalf("%d wait", len(f.Locks))
	}
	for i := range bounds.MaxGroups {
		f.Groups = append(f.Groups, v1alpha1.ItemGroup{
			Items: fmt.Sprintf("%d-%d", 100+4*i, 103+4*i), Phase: v1alpha1.StepDispatched, Attempt: int32(i + 2), DispatchedAt: bounds.Micro(epoch),
		})
	}
	f.Begun = 100 + 4*bounds.MaxGroups
	if out = decideLocked(t, run, epoch, nil); len(out.Status.Steps[0].ForEach.Locks) > 0 || len(out.Needs.Locks) > 0 {
		t.Errorf("%d wait still", len(out.Status.Steps[0].ForEach.Locks))
	}
}

// mutation: ItemRenderer.Locks without its look at the list makes this fail.
func TestAnItemThatIsNotInTheListAnyMore(t *testing.T) {
	run := lockedItems(2, 2, v1alpha1.Collect)
	none := map[string]LocksAnswer{part(0): {State: LocksUnavailable}, part(1): {State: LocksUnavailable}}
	decideLocked(t, run, epoch, none)
	run.Spec.Inputs = raw(`{"list":[7]}`)
	out := decideLocked(t, run, epoch, none)
	if e := stepError(&out.Status); e == nil || e.Code != v1alpha1.ReasonLockUnusable || !strings.Contains(e.Message, "there are 1 items only") {
		t.Errorf("%+v", e)
	}
}

func stepError(st *v1alpha1.WorkflowRunStatus) *v1alpha1.StepError {
	if len(st.Steps) == 0 {
		return nil
	}
	return st.Steps[0].Error
}

// A quick decision takes the locks, and leaves a large input for the next one, which asks for
// nothing.
//
// mutation: lockItem that asks for what status has makes this fail.
func TestAnItemThatHasItsLocksGoesOutWithTheNextDecision(t *testing.T) {
	run := lockedItems(1, 1, v1alpha1.Collect)
	decideLocked(t, run, epoch, map[string]LocksAnswer{part(0): {State: LocksUnavailable}})
	run.Spec.Steps[0].Job.Input = raw(`{"item":"${item}","pad":"` + strings.Repeat("x", 2*bounds.MaxQuickBytes) + `"}`)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Quick: true, Locks: map[string]LocksAnswer{part(0): heldWith(7)}})
	out := Decide(in)
	if l := out.Status.Steps[0].ForEach.Locks; len(out.Dispatch) > 0 || !out.Cut || len(l) != 1 || len(l[0].Locks) != 1 {
		t.Fatalf("dispatches %v, has %+v", out.Dispatch, l)
	}
	run.Status = persisted(t, &out.Status)
	if out = decideLocked(t, run, epoch, nil); len(out.Dispatch) != 1 || len(out.Needs.Locks) > 0 || out.Dispatch[0].Locks[0] != "mutex:"+run.Namespace+"/m0=7" {
		t.Errorf("dispatches %v, asks for %v", out.Dispatch, out.Needs.Locks)
	}
}

// An item that was granted its locks has them, also where this decision leaves its input, or those
// of other steps, for the next one: else the grant is given back, and a start of a rate is spent.
//
// mutation: locked that passes over all items as something is left makes this fail.
func TestItemsThatWereGrantedTheirLocksHaveThemThoughTheDecisionIsCut(t *testing.T) {
	run := lockedItems(5, 5, v1alpha1.Collect)
	run.Spec.Inputs = raw(`{"list":[0,1,2,3,4],"l":` + numbers(120) + `}`)
	input(`{"item":"${item}","x":"${` + costly + `}"}`)(&run.Spec.Steps[0])
	more := newStep("more", forEach("${inputs.list}", 5, v1alpha1.Collect))
	more.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("n${item}")}
	run.Spec.Steps = append(run.Spec.Steps, more)
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Locks: map[string]LocksAnswer{}})
	out := Decide(in)
	if got := partsAsked(&out); got != "all/0 all/1 all/2 all/3 all/4 more/0 more/1 more/2 more/3 more/4" {
		t.Fatalf("asks for %q", got)
	}
	for i, ask := range out.Needs.Locks {
		in.Locks[ask.Part] = heldWith(int64(1 + i))
	}
	in.Evaluated, in.Lists = out.Evaluated, out.Lists
	out = Decide(in)
	if !out.Cut || len(out.Dispatch) == 0 || len(out.Needs.Locks) > 0 {
		t.Fatalf("is cut: %v, dispatches %v, asks for %q", out.Cut, out.Dispatch, partsAsked(&out))
	}
	for _, s := range out.Status.Steps {
		for i := range 5 {
			if l := s.ForEach.Locks; len(l) != 5 || len(l[i].Locks) != 1 {
				t.Fatalf("step %s has %+v", s.Name, l)
			}
		}
	}
	run.Status = persisted(t, &out.Status)
	if out = decideLocked(t, run, epoch.Add(time.Second), nil); len(out.Needs.Locks) > 0 || len(out.Dispatch) == 0 {
		t.Errorf("dispatches %v, asks for %q", out.Dispatch, partsAsked(&out))
	}
}

// At most 50 items of a run with locks are under way, and one of each further step.
//
// mutation: itemRoom without locked makes this fail.
func TestItemsWithLocksAreBounded(t *testing.T) {
	run := lockedItems(200, 100, v1alpha1.Collect)
	run.Spec.Steps = append(run.Spec.Steps, *run.Spec.Steps[0].DeepCopy(), newStep("free", forEach("${inputs.list}", 100, v1alpha1.Collect)))
	run.Spec.Steps[1].Name = "more"
	out := decideLocked(t, run, epoch, nil)
	if n := len(out.Needs.Locks); n != bounds.MaxLockedItems+1 || len(out.Dispatch) != 100 {
		t.Errorf("asks for %d items, and dispatches %d of those without locks", n, len(out.Dispatch))
	}
	answers := map[string]LocksAnswer{}
	for i, ask := range out.Needs.Locks {
		answers[ask.Part] = heldWith(int64(i))
	}
	out = decideLocked(t, run, epoch, answers)
	if out = decideLocked(t, run, epoch, nil); len(out.Needs.Locks) > 0 || len(run.Status.Steps[0].ForEach.Locks) != bounds.MaxLockedItems {
		t.Errorf("asks for %d more, %d have locks", len(out.Needs.Locks), len(run.Status.Steps[0].ForEach.Locks))
	}
}

// Items that wait for the lock of a step leave room for one of its items: else they would wait for
// each other, and no resync sees such a ring.
//
// mutations: itemRoom without a least, and one that lets a step with items under way have it, make
// this fail.
func TestAStepThatHoldsLocksBeginsAnItemWhateverOthersWaitFor(t *testing.T) {
	run := lockedItems(60, 60, v1alpha1.Collect)
	run.Spec.Steps[0].ForEach.Locks = []v1alpha1.LockRequest{mutexOf("m")}
	own := newStep("own", forEach("${inputs.list}", 60, v1alpha1.Collect), withStepLocks(mutexOf("m")))
	own.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("r-${item}")}
	run.Spec.Steps = append(run.Spec.Steps, own)
	decideLocked(t, run, epoch, nil)
	answers := map[string]LocksAnswer{"own": heldWith(7)}
	for i := range bounds.MaxLockedItems {
		answers[part(i)] = LocksAnswer{State: LocksWaiting, Lock: "mutex:" + run.Namespace + "/m"}
	}
	out := decideLocked(t, run, epoch, answers)
	if got := partsAsked(&out); got != "own/0" {
		t.Fatalf("asks for %q", got)
	}
	answers["own/0"] = heldWith(8)
	if out = decideLocked(t, run, epoch, answers); len(out.Dispatch) != 1 || len(out.Needs.Locks) > 0 {
		t.Fatalf("dispatches %v, asks for %q", out.Dispatch, partsAsked(&out))
	}
	delete(answers, "own/0")
	if out = decideLocked(t, run, epoch.Add(time.Second), answers, ofItem(0, succeeded("own", 1, "1"))); partsAsked(&out) != "own/1" {
		t.Errorf("asks for %q after that", partsAsked(&out))
	}
}

// A job that was not published is rendered again with what Needs names, whatever else the keys of
// its locks have read.
//
// mutation: a Needs that leaves out what the keys read makes this fail where the list is forgotten;
// an ItemRenderer that wants it, where the list is remembered.
func TestAnItemWhoseLockKeyReadsAnOutputIsRenderedAgain(t *testing.T) {
	o := objects{}
	p := newStep("p", after("a", "b"), forEach("${['x', 'y']}", 2, v1alpha1.FailStep), input(`{"i":"${item}","b":"${size(steps.b.output)}"}`))
	p.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("${size(steps.a.output)}-${item}")}
	run := withOutputs(t, o, 5<<10, p)
	out, _ := decideKnowing(t, o, run, epoch, nil, heldWith(2))
	ids := InFlight(run)
	if len(ids) != 2 || run.Status.Steps[0].OutputRef == nil || run.Status.Steps[1].OutputRef == nil {
		t.Fatalf("%v are in flight", ids)
	}
	for name, lists := range map[string]map[string][]any{"remembered": out.Lists, "forgotten": nil} {
		for k, id := range ids {
			payloads := Payloads{}
			r := render.New(run, payloads, lists)
			for _, ref := range r.Needs(id) {
				payloads[ref.Name] = Payload{Data: o[ref.Name]}
			}
			job, err := r.Job(id)
			if want := fmt.Sprintf(`{"b":%d,"i":"%c"}`, 5<<10-len(`""`), "xy"[k]); err != nil || string(job.Input) != want {
				t.Errorf("with its list %s job %s is %s, %v; want %s", name, id, job.Input, err, want)
			}
		}
	}
}

// Items that have an answer about their locks keep the places by which they asked, also where a
// step with others begins between: else grants are given back, each a start of a rate.
//
// mutations: an itemRoom that takes from a step what is kept for it, or keeps it from others no
// more, and placesAsked without who waits, or whom the store did not answer, make this fail.
func TestItemsThatWereGrantedTheirLocksKeepTheirPlacesFromAStepThatBegins(t *testing.T) {
	const most = bounds.MaxLockedItems
	for name, tc := range map[string]struct {
		waits, away int // items that get no grant
	}{
		"all are granted theirs": {-1, -1}, "one waits": {most - 1, -1}, "of one it is not known": {-1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run := lockedItems(most+10, most+10, v1alpha1.Collect)
			own := newStep("own", forEach("${inputs.list}", most+10, v1alpha1.Collect), withStepLocks(mutexOf("whole")))
			own.ForEach.Locks = []v1alpha1.LockRequest{mutexOf("r-${item}")}
			run.Spec.Steps = []v1alpha1.Step{own, run.Spec.Steps[0], newStep("free", forEach("${inputs.list}", most+10, v1alpha1.Collect))}
			in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Locks: map[string]LocksAnswer{}})
			out := Decide(in)
			if n := len(out.Needs.Locks); n != 1+most || out.Needs.Locks[0].Part != "own" {
				t.Fatalf("asks for %q", partsAsked(&out))
			}
			for i, ask := range out.Needs.Locks {
				in.Locks[ask.Part] = heldWith(int64(1 + i))
			}
			if tc.waits >= 0 {
				in.Locks[part(tc.waits)] = LocksAnswer{State: LocksWaiting, Lock: "mutex:" + run.Namespace + "/m"}
			}
			if tc.away >= 0 {
				in.Locks[part(tc.away)] = LocksAnswer{State: LocksUnavailable}
			}
			in.Lists = out.Lists
			out = Decide(in)
			if got := partsAsked(&out); got != "own/0" {
				t.Fatalf("asks for %q after that", got)
			}
			in.Locks["own/0"] = heldWith(99)
			in.Lists = out.Lists
			out = Decide(in)
			if f := out.Status.Steps[1].ForEach; len(out.Needs.Locks) > 0 || f.Begun != most || out.Status.Steps[0].ForEach.Begun != 1 {
				t.Errorf("asks for %q, %d and %d began", partsAsked(&out), out.Status.Steps[0].ForEach.Begun, f.Begun)
			}
			want := most
			if tc.away >= 0 {
				want--
			}
			if n := len(out.Status.Steps[1].ForEach.Locks); n != want {
				t.Errorf("%d items have locks or wait, want %d", n, want)
			}
		})
	}
}

// A step with items that asks for its locks is not cut by the decision that has the answer: its
// list is not evaluated twice for it.
//
// mutation: storeItems that keeps no list of a step that asks makes this fail.
func TestAStepWithItemsThatWasGrantedItsLocksHasThemThoughExpressionsTookAllTheyMay(t *testing.T) {
	asked := 0
	for left := range 500 {
		run := lockedItems(3, 3, v1alpha1.Collect)
		run.Spec.Steps[0].Locks = []v1alpha1.LockRequest{mutexOf("whole")}
		run.Spec.Steps = []v1alpha1.Step{newStep("first"), run.Spec.Steps[0]}
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Evaluated: &facts.Evaluated{Cost: bounds.MaxDecisionCost - left}})
		out := Decide(in)
		if partsAsked(&out) != "all" {
			continue // it is left for the next decision, and asks for nothing
		}
		asked++
		in.Evaluated, in.Lists, in.Locks = out.Evaluated, out.Lists, map[string]LocksAnswer{"all": heldWith(7)}
		if out = Decide(in); len(out.Status.Steps[1].Locks) != 1 {
			t.Fatalf("with %d left it has no lock", left)
		}
	}
	if asked == 0 || asked == 500 {
		t.Errorf("it asks in %d of 500 cases", asked)
	}
}
