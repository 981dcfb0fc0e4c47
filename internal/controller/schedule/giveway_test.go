// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// hoursOf are the slots that have a run, as hours of the test.
func (w *world) hoursOf() (hours []int) {
	for name := range w.runs() {
		if slot, ok := schedule.SlotOf("report", name); ok {
			hours = append(hours, int(slot.Sub(w.hour)/time.Hour))
		}
	}
	slices.Sort(hours)
	return hours
}

// No run is under way where none can be created: a slot that is lost says why, in a warning, and
// the latest slots are those that get a run once it can.
//
// mutations: offer that lets no slot make room; one that lets them all, where the new slot may
// wait; report that counts what has no run; giveWay without the cause.
func TestASlotIsNotLostForARunThatCannotBeCreated(t *testing.T) {
	for overlap, c := range map[v1alpha1.OverlapPolicy]struct {
		lost   int
		begins []int
	}{
		v1alpha1.OverlapSkip:      {4, []int{5}},
		v1alpha1.OverlapBufferOne: {3, []int{4}},
		v1alpha1.OverlapBufferAll: {0, []int{1}},
		v1alpha1.OverlapAllow:     {0, []int{1, 2, 3, 4, 5}},
	} {
		t.Run(string(overlap), func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) {
				s.Spec.Overlap, s.Spec.CatchUp.WindowSeconds = overlap, 86_400
			})
			away := w.webhookAway()
			r := w.operator()
			w.settle(r, s)
			*away = true
			for hour := 1; hour <= 5; hour++ {
				w.at(hour, 0)
				w.settle(r, s)
				if st := w.settle(r, s); st.Active != 0 {
					t.Errorf("hour %d: active is %d, and no run is there", hour, st.Active)
				}
			}
			var want []string
			if c.lost > 0 {
				want = []string{fmt.Sprintf("StartFailed x %d", c.lost)}
			}
			if st := w.stored(s).Status; fmt.Sprint(reasons(st)) != fmt.Sprint(want) || int(st.NotStarted) != c.lost {
				t.Errorf("%v, want %v: %+v", reasons(st), want, st)
			}
			if len(w.events.Events) != c.lost {
				t.Errorf("%d events", len(w.events.Events))
			}
			for len(w.events.Events) > 0 {
				if text := <-w.events.Events; !strings.HasPrefix(text, "Warning SlotStartFailed") || !strings.Contains(text, "the webhook does not answer") {
					t.Error(text)
				}
			}
			*away = false
			w.clock.SetTime(w.clock.Now().Add(createPause))
			if st := w.settle(r, s); fmt.Sprint(w.hoursOf()) != fmt.Sprint(c.begins) || int(st.Active) != len(c.begins) {
				t.Errorf("once it answers the slots %v have a run, want %v: %+v", w.hoursOf(), c.begins, st)
			}
			if tries := r.memory(client.ObjectKeyFromObject(s), s.UID).tries; len(tries) != 0 {
				t.Errorf("it remembers tries of slots that are settled: %v", tries)
			}
		})
	}
}

// The answer to a creation may be lost, and the cache may be behind: what is there is under way.
//
// mutation: complete that does not ask the API server before a slot may take the place.
func TestASlotWhoseRunIsThereMakesNoRoom(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 86_400 })
	dry := func(opts []client.CreateOption) bool {
		return len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
	}
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if err := c.Create(ctx, o, opts...); err != nil || dry(opts) {
			return err
		}
		return apierrors.NewTimeoutError("the answer is late", 0)
	}
	r := w.operator()
	r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
	w.settle(r, s)
	w.at(1, 0)
	w.pass(r, s)
	w.at(2, 0)
	st := w.settle(r, s)
	if fmt.Sprint(reasons(st)) != "[Overlap x 1]" || st.Active != 1 || st.Started != 1 || fmt.Sprint(w.hoursOf()) != "[1]" {
		t.Errorf("%v, runs of %v: %+v", reasons(st), w.hoursOf(), st)
	}
}

// Who takes over does not know whether the creation of the one before is on its way: a slot makes
// room only after its run could not be created by this one, either.
//
// mutation: tries that are read from status.
func TestWhoTakesOverTriesASlotBeforeItMakesRoom(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 86_400 })
	away := w.webhookAway()
	r := w.operator()
	w.settle(r, s)
	*away = true
	w.at(1, 0)
	w.settle(r, s)
	next := w.operator()
	w.at(1, 30)
	w.settle(next, s)
	w.at(2, 0)
	if st := w.settle(next, s); fmt.Sprint(reasons(st)) != "[StartFailed x 1]" || len(st.Starting) != 1 || !st.Starting[0].Time.Equal(w.slot(2)) {
		t.Errorf("tried before the next slot: %v %+v", reasons(st), st)
	}
	last := w.operator()
	w.at(3, 0)
	if st := w.settle(last, s); fmt.Sprint(reasons(st)) != "[StartFailed x 1 Overlap x 1]" || !st.Starting[0].Time.Equal(w.slot(2)) {
		t.Errorf("not tried before the next slot: %v %+v", reasons(st), st)
	}
}

// Slots that are caught up fill a schedule in the decision that lets others make room. The runs of
// these are looked up before it, be those that are under way in the cache or not.
//
// mutation: complete that counts no run which the cache does not have.
func TestASlotThatIsCaughtUpTakesNoPlaceOfARunThatIsThere(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Overlap = v1alpha1.OverlapAllow
		s.Spec.CatchUp = v1alpha1.CatchUp{Policy: v1alpha1.CatchUpAll, Max: 10, WindowSeconds: 86_400}
	})
	lost := 0
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
		if err := c.Create(ctx, o, opts...); err != nil || dry || lost > 0 {
			return err
		}
		lost++
		return apierrors.NewTimeoutError("the answer is late", 0)
	}
	r := w.operator()
	w.settle(r, s)
	w.at(1, 0)
	r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
	w.pass(r, s)
	mem := r.memory(client.ObjectKeyFromObject(s), s.UID)
	for i := range 94 { // of the hours before
		slot := w.slot(-1 - i)
		run := v1alpha1.WorkflowRun{}
		run.Name = schedule.RunName(s.Name, slot)
		mem.created[schedule.Minute(slot)] = unseen{run: run, at: w.slot(9)}
	}
	if len(mem.tries) != 1 || lost != 1 {
		t.Fatalf("%d tries, %d answers are lost", len(mem.tries), lost)
	}
	w.at(9, 0)
	in, err := r.observe(t.Context(), w.stored(s), mem)
	if err != nil {
		t.Fatal(err)
	}
	d := schedule.Decide(in)
	for _, one := range d.Skipped {
		if one.Reason == v1alpha1.SlotStartFailed {
			t.Errorf("its run is there: %+v", one)
		}
	}
	if len(in.Tried) != 0 {
		t.Errorf("the run of none is looked up: %v", in.Tried)
	}
}
