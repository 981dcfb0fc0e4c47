// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// A quota may be full, or a webhook deny, weeks after the template was accepted.
//
// mutations: notCreated that learns nothing of what is forbidden; one that keeps the run's name.
func TestWhatIsForbiddenAfterItWasAcceptedIsTold(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	full := false
	w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	r := w.operator()
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Fatalf("%+v", st.Conditions)
	}
	full = true
	w.at(1, 0)
	w.pass(r, s)
	w.clock.SetTime(w.clock.Now().Add(createPause))
	w.pass(r, s)
	st := w.stored(s).Status
	ready, stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
	if ready.Reason != v1alpha1.ReasonTemplateRefused || !strings.Contains(ready.Message, "exceeded quota") || stalled.Status != metav1.ConditionFalse {
		t.Errorf("while it is forbidden: %+v", st.Conditions)
	}
	full = false
	w.clock.SetTime(w.clock.Now().Add(createPause))
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("once there is room: %+v", st)
	}
}

// mutations: observe that does not tell what stands in the way of a slot, or tells it at the first
// try, or after the slot has its run.
func TestARunThatCannotBeCreatedForAMinuteIsTold(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	away := w.webhookAway()
	r := w.operator()
	w.settle(r, s)
	said := func() string {
		t.Helper()
		w.pass(r, s)
		ready := meta.FindStatusCondition(w.stored(s).Status.Conditions, v1alpha1.ConditionReady)
		if ready.Status != metav1.ConditionTrue {
			t.Errorf("%+v", ready)
		}
		return ready.Message
	}
	usual := said()
	*away = true
	w.at(1, 0)
	said()
	w.clock.SetTime(w.clock.Now().Add(createPause))
	if text := said(); text != usual {
		t.Errorf("at once: %q", text)
	}
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	if text := said(); !strings.Contains(text, "the webhook does not answer") || strings.Contains(text, schedule.RunName("report", w.slot(1))) {
		t.Errorf("after a minute: %q", text)
	}
	*away = false
	w.clock.SetTime(w.clock.Now().Add(createPause))
	w.settle(r, s)
	if text := said(); text != usual || len(w.runs()) != 1 {
		t.Errorf("after it has its run: %q", text)
	}
}

// A slot that could not get its run is older than one that waits: its run would be cancelled at
// once.
//
// mutations: settle that creates the run all the same; one that gives up a slot which was not
// tried yet.
func TestASlotWhoseRunCouldNotBeCreatedMakesRoomForALaterOne(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Overlap, s.Spec.CatchUp.WindowSeconds = v1alpha1.OverlapCancelOther, 7200
	})
	full := false
	w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	r := w.operator()
	w.settle(r, s)
	full = true
	w.at(1, 0)
	w.pass(r, s)
	full = false
	w.at(2, 0)
	st := w.settle(r, s)
	runs := w.runs()
	if fmt.Sprint(reasons(st)) != "[StartFailed x 1]" || st.Started != 1 || len(runs) != 1 || runs[schedule.RunName("report", w.slot(2))] == nil {
		t.Errorf("%v %d runs, %+v", reasons(st), len(runs), st)
	}
}

// webhookAway has operators that are made from now on create nothing, once the returned
// switch is on.
func (w *world) webhookAway() *bool {
	away := new(bool)
	w.answers(func(bool) error {
		if *away {
			return apierrors.NewInternalError(errors.New("the webhook does not answer"))
		}
		return nil
	})
	return away
}

// With overlap CancelOther each slot makes room for the next before its window is over.
//
// mutations: settle that gives such a slot a reason which users ask for, or no cause.
func TestACreationThatNeverSucceedsIsToldThoughEachSlotMakesRoom(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapCancelOther })
	away := w.webhookAway()
	r := w.operator()
	w.settle(r, s)
	*away = true
	for hour := 1; hour <= 4; hour++ {
		w.at(hour, 0)
		w.settle(r, s)
	}
	if st := w.stored(s).Status; fmt.Sprint(reasons(st)) != "[StartFailed x 3]" {
		t.Errorf("%v %+v", reasons(st), st)
	}
	if len(w.events.Events) != 3 {
		t.Errorf("%d events", len(w.events.Events))
	}
	for len(w.events.Events) > 0 {
		if text := <-w.events.Events; !strings.HasPrefix(text, "Warning SlotStartFailed") || !strings.Contains(text, "the webhook does not answer") {
			t.Error(text)
		}
	}
}

// A slot each minute fails for less than that.
//
// mutations: stands that asks for how long each slot has failed; create that does not say that one
// succeeded.
func TestCreationsThatFailForAMinuteAreToldThoughNoSlotOfThemDoes(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Cron, s.Spec.Overlap = []string{"* * * * *"}, v1alpha1.OverlapCancelOther
	})
	away := w.webhookAway()
	r := w.operator()
	w.settle(r, s)
	told := func() bool {
		t.Helper()
		st := w.settle(r, s)
		return strings.Contains(meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady).Message, "the webhook does not answer")
	}
	*away = true
	w.at(1, 0)
	begun := w.clock.Now()
	for w.clock.Since(begun) < 5*time.Minute {
		if since := w.clock.Since(begun); told() != (since > toldAfter) {
			t.Errorf("after %v: told is %v", since, since <= toldAfter)
		}
		w.clock.SetTime(w.clock.Now().Add(createPause))
	}
	*away = false
	for range 2 { // the run of the slot that is tried, and that of the last one
		if told(); told() {
			t.Error("it is told after a run was created")
		}
		w.clock.SetTime(w.clock.Now().Add(time.Minute))
	}
	*away = true
	for name := range w.runs() {
		w.end(name, v1alpha1.RunSucceeded)
	}
	if told(); told() {
		t.Error("it is told at the first try that fails anew")
	}
}

// mutation: began that forgets why creations fail while one still does.
func TestWhatIsToldOfASlotHasACauseThoughALaterSlotHasItsRun(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Overlap, s.Spec.CatchUp.WindowSeconds = v1alpha1.OverlapAllow, 7200
	})
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if obj.GetName() == schedule.RunName("report", w.slot(1)) {
			return apierrors.NewInternalError(errors.New("the webhook does not answer"))
		}
		return c.Create(ctx, obj, opts...)
	}
	r := w.operator()
	w.settle(r, s)
	w.at(1, 0)
	w.pass(r, s)
	w.at(2, 0)
	w.settle(r, s)
	w.pass(r, s)
	ready := meta.FindStatusCondition(w.stored(s).Status.Conditions, v1alpha1.ConditionReady)
	if !strings.Contains(ready.Message, "the webhook does not answer") || w.runs()[schedule.RunName("report", w.slot(2))] == nil {
		t.Errorf("%q, %d runs", ready.Message, len(w.runs()))
	}
}

// A creation whose answer was lost has succeeded, and a held schedule tries none.
//
// mutations: complete, or giveUp, that keeps the tries of a run which it finds; pass that keeps
// since when creations fail while a schedule is held.
func TestTriesOfBeforeAreNotToldOfALaterSlot(t *testing.T) {
	for name, c := range map[string]struct {
		lost    bool
		overlap v1alpha1.OverlapPolicy
		between func(w *world, r *Reconciler, s *v1alpha1.Schedule)
	}{
		"the cache has the run": {true, v1alpha1.OverlapSkip, func(w *world, r *Reconciler, s *v1alpha1.Schedule) {
			w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
			w.settle(r, s)
		}},
		"the API server has it": {true, v1alpha1.OverlapCancelOther, func(w *world, r *Reconciler, s *v1alpha1.Schedule) {
			cached := r.Runs
			r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
			w.at(2, 0)
			w.settle(r, s)
			r.Runs = cached
			w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunCancelled)
		}},
		"the schedule was held": {false, v1alpha1.OverlapSkip, func(w *world, r *Reconciler, s *v1alpha1.Schedule) {
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true })
			w.settle(r, s)
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = false })
			w.settle(r, s)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = c.overlap })
			w.funcs.Create = func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
				first := obj.GetName() == schedule.RunName("report", w.slot(1))
				if c.lost && first || len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
					if err := to.Create(ctx, obj, opts...); err != nil || !first {
						return err
					}
				}
				return apierrors.NewTimeoutError("the answer is late", 0)
			}
			r := w.operator()
			said := func() string {
				return meta.FindStatusCondition(w.settle(r, s).Conditions, v1alpha1.ConditionReady).Message
			}
			usual := said()
			w.at(1, 0)
			w.pass(r, s)
			tries := r.memory(client.ObjectKeyFromObject(s), s.UID).tries
			if len(tries) != 1 {
				t.Fatalf("%+v", tries)
			}
			c.between(w, r, s)
			w.at(2, 0)
			said()
			text := said()
			_, tried := tries[schedule.Minute(w.slot(2))]
			if text != usual || !tried || len(tries) != 1 {
				t.Errorf("%q, %+v", text, tries)
			}
		})
	}
}

// Some answers have other words each time, such as a port or a time of day. Status that has
// them wakes its own schedule.
//
// mutations: settle that does not wait for the next try; notCreated that takes the words of each.
func TestWordsThatChangeWithEachTryMakeNoPasses(t *testing.T) {
	for name, answer := range map[string]func(n int) error{
		"forbidden": func(n int) error {
			return apierrors.NewForbidden(runsResource, "", fmt.Errorf("request %d: exceeded quota", n))
		},
		"fails": func(n int) error { return apierrors.NewInternalError(fmt.Errorf("dial from port %d", n)) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", nil)
			n, fails := 0, false
			w.answers(func(dry bool) error {
				if !fails || dry {
					return nil
				}
				n++
				return answer(n)
			})
			r := w.operator()
			w.settle(r, s)
			fails = true
			w.at(1, 0)
			w.pass(r, s)
			for w.clock.Since(w.slot(1)) < 2*time.Minute { // until it is told, and has other words
				w.clock.SetTime(w.clock.Now().Add(createPause))
				w.pass(r, s)
			}
			w.pass(r, s)
			tries, before := n, w.stored(s).ResourceVersion
			for range 10 {
				if result := w.pass(r, s); result.RequeueAfter <= 0 || result.RequeueAfter > createPause {
					t.Fatalf("the next pass is after %v", result.RequeueAfter)
				}
			}
			if n != tries || w.stored(s).ResourceVersion != before {
				t.Errorf("%d more tries without a wait; status is another: %v", n-tries, w.stored(s).ResourceVersion != before)
			}
			for range 11 {
				w.clock.SetTime(w.clock.Now().Add(createPause))
				w.pass(r, s)
			}
			if n != tries+11 {
				t.Errorf("%d tries, want %d", n, tries+11)
			}
			if w.stored(s).ResourceVersion != before {
				t.Error("status has other words within a minute")
			}
		})
	}
}

// mutations: tell that says nothing of one of these, or says it in each pass, or of a suspension,
// which a user knows of.
func TestAScheduleThatStartsNoMoreRunsIsAnEvent(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.PauseAfterFailures = new(int32(1)) })
	r := w.operator()
	w.settle(r, s)
	w.at(1, 0)
	w.settle(r, s)
	for _, c := range []struct{ do, want string }{{"fail", "Warning Paused 1 runs failed"}, {"edit", "Warning InvalidSpec spec.cron[0]"}, {"suspend", ""}} {
		switch c.do {
		case "fail":
			w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunFailed)
		case "edit":
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 0 31 2 *x"} })
		case "suspend":
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Cron, s.Spec.Suspend = []string{"0 * * * *"}, true })
		}
		for range 2 {
			w.settle(r, s)
		}
		var events []string
		for len(w.events.Events) > 0 {
			events = append(events, <-w.events.Events)
		}
		if c.want == "" && len(events) > 0 || c.want != "" && (len(events) != 1 || !strings.HasPrefix(events[0], c.want)) {
			t.Errorf("%s: %q, want %q", c.do, events, c.want)
		}
	}
}

// A schedule of once a year would tell of it when the slot is lost.
//
// mutations: report that does not say when it begins, or says it in each pass, or of each process,
// or of what may end without an edit.
func TestATemplateThatIsRefusedForGoodIsAnEventBeforeTheFirstSlot(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 0 29 2 *"} })
	full := false
	w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	allow := func(topics string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationAllowedTopics, topics)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
		if err := w.client.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	r := w.operator()
	for _, c := range []struct {
		what string
		do   func()
		told bool
	}{
		{"accepted", func() {}, false},
		{"narrowed", func() { allow(`"mail.*"`) }, true},
		{"taken over", func() { r = w.operator() }, false},
		{"edited, and refused still", func() {
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.SlotInput = "slot" })
		}, false},
		{"allowed", func() { allow("null") }, false},
		{"forbidden for now", func() {
			full = true
			w.clock.SetTime(w.clock.Now().Add(longestWait))
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.SlotInput = "" })
		}, false},
		{"narrowed again", func() { allow(`"mail.*"`) }, true},
	} {
		c.do()
		for range 2 {
			w.settle(r, s)
		}
		var events []string
		for len(w.events.Events) > 0 {
			events = append(events, <-w.events.Events)
		}
		if c.told != (len(events) == 1) || !c.told && len(events) > 0 {
			t.Errorf("%s: %q", c.what, events)
		}
		if c.told && !strings.HasPrefix(strings.Join(events, ""), "Warning TemplateRefused spec.runTemplate.spec.steps[0].job.topic: ") {
			t.Errorf("%s: %q", c.what, events)
		}
	}
}
