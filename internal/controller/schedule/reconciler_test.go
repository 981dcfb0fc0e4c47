// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

func TestASlotGetsARunThatSaysWhoseItIs(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "jane"}
		s.Spec.TimeZone = "Asia/Kolkata"
		s.Spec.Cron = []string{"30 * * * *"}
		s.Spec.RunTemplate.Metadata.Labels = map[string]string{"team": "a"}
		s.Spec.RunTemplate.SlotInput = "slot"
	})
	r := w.operator()
	if st := w.settle(r, s); len(st.Next) != 3 || st.Started != 0 || !strings.HasSuffix(st.Next[0], ":30:00+05:30") {
		t.Fatalf("at first: %+v", st)
	}
	w.at(1, 1)
	st := w.settle(r, s)
	name := schedule.RunName("report", w.slot(1))
	run := w.runs()[name]
	if run == nil || !metav1.IsControlledBy(run, s) || run.Labels["team"] != "a" || run.Labels[v1alpha1.LabelSchedule] != "report" ||
		run.Annotations[v1alpha1.AnnotationCreatedBy] != "jane" || !strings.HasPrefix(string(run.Spec.Inputs.Raw), `{"slot":"`) {
		t.Fatalf("run %s: %+v", name, run)
	}
	if st.Started != 1 || st.Active != 1 || len(st.Starting) != 0 || len(st.Last) != 1 || st.Last[0].Run != name {
		t.Errorf("status: %+v", st)
	}
	if ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue || st.ObservedGeneration != 1 {
		t.Errorf("conditions: %+v", st.Conditions)
	}
}

func TestSlotsWhileARunIsUnderWay(t *testing.T) {
	for overlap, want := range map[v1alpha1.OverlapPolicy]struct {
		while, after string // runs of hours, and reasons
	}{
		v1alpha1.OverlapSkip:        {"1 [Overlap x 2]", "1 [Overlap x 2]"},
		v1alpha1.OverlapBufferOne:   {"1 [BufferFull x 1]", "1 2 [BufferFull x 1]"},
		v1alpha1.OverlapBufferAll:   {"1 []", "1 2 []"},
		v1alpha1.OverlapCancelOther: {"1 [Superseded x 1]", "1 3 [Superseded x 1]"},
		v1alpha1.OverlapAllow:       {"1 2 3 []", "1 2 3 []"},
	} {
		t.Run(string(overlap), func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = overlap })
			r := w.operator()
			w.settle(r, s)
			for hour := 1; hour <= 3; hour++ {
				w.at(hour, 1)
				w.settle(r, s)
			}
			if got := w.hours("report", w.stored(s).Status); got != want.while {
				t.Errorf("while it is under way: %s, want %s", got, want.while)
			}
			first := schedule.RunName("report", w.slot(1))
			if cancelled := w.runs()[first].Spec.Shutdown != ""; cancelled != (overlap == v1alpha1.OverlapCancelOther) {
				t.Errorf("cancelled: %v", cancelled)
			}
			w.end(first, v1alpha1.RunCancelled)
			if got := w.hours("report", w.settle(r, s)); got != want.after {
				t.Errorf("after its end: %s, want %s", got, want.after)
			}
		})
	}
}

// hours are those of slots that have a run, and the reasons of the others.
func (w *world) hours(name string, st *v1alpha1.ScheduleStatus) string {
	var all []string
	runs := w.runs()
	for hour := range 200 {
		if runs[schedule.RunName(name, w.slot(hour))] != nil {
			all = append(all, fmt.Sprint(hour))
		}
	}
	return strings.TrimSpace(strings.Join(all, " ") + " " + fmt.Sprint(reasons(st)))
}

func TestTwoOperatorsAtTheSlotMakeOneRunOrOneReason(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.settle(w.operator(), s)
	operators := []*Reconciler{w.operator(), w.operator(), w.operator()}
	for hour := 1; hour <= 8; hour++ {
		w.at(hour, 1)
		var wg sync.WaitGroup
		for _, r := range operators {
			wg.Go(func() {
				for range 6 {
					if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil && !apierrors.IsConflict(errors.Unwrap(err)) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		st := w.settle(operators[hour%3], s)
		if st.Started+st.NotStarted != int64(hour) || len(st.Starting) != 0 {
			t.Fatalf("hour %d: %+v", hour, st)
		}
		if name := schedule.RunName("report", w.slot(hour)); hour%3 == 0 {
			for run := range w.runs() {
				if w.runs()[run].Status.CompletedAt == nil {
					w.end(run, v1alpha1.RunSucceeded)
				}
			}
		} else if hour%3 == 2 && w.runs()[name] != nil {
			t.Errorf("hour %d has a run beside one that is under way", hour)
		}
	}
}

// An owner that dies at the slot, at each request that it makes, is followed by another.
func TestAnOwnerThatDiesAtTheSlotLeavesOneRun(t *testing.T) {
	for death := 1; death <= 6; death++ {
		t.Run(fmt.Sprintf("at request %d", death), func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", nil)
			w.settle(w.operator(), s)
			w.at(1, 1)
			n, dead := 0, errors.New("the process is gone")
			dies := func(before bool) error {
				if before {
					n++
				}
				if n == (death+1)/2 && before == (death%2 == 1) || n > (death+1)/2 {
					return dead
				}
				return nil
			}
			w.funcs = interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if options := (&client.CreateOptions{}).ApplyOptions(opts); len(options.DryRun) > 0 {
						return nil
					}
					return errors.Join(first(dies(true), func() error { return c.Create(ctx, o, opts...) }), dies(false))
				},
				SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
					return errors.Join(first(dies(true), func() error { return c.SubResource(sub).Update(ctx, o, opts...) }), dies(false))
				},
			}
			r := w.operator()
			for range 4 {
				_, _ = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
			}
			w.funcs = interceptor.Funcs{}
			st := w.settle(w.operator(), s)
			if got := w.hours("report", st); got != "1 []" || st.Started != 1 || len(st.Starting) != 0 {
				t.Errorf("%s: %+v", got, st)
			}
		})
	}
}

func first(err error, f func() error) error {
	if err != nil {
		return err
	}
	return f()
}

func TestSlotsThatWereMissed(t *testing.T) {
	for name, c := range map[string]struct {
		catchUp v1alpha1.CatchUp
		overlap v1alpha1.OverlapPolicy
		hours   int
		want    string
	}{
		"the latest in the window runs, and the others have a reason": {v1alpha1.CatchUp{WindowSeconds: 3 * 3600}, "Skip", 10, "10 [Missed x 7 NotLatest x 2]"},
		"none is in a window that is shorter than the period":         {v1alpha1.CatchUp{WindowSeconds: 30}, "Skip", 3, "[Missed x 3]"},
		"all in the window run, as far as overlap lets them":          {v1alpha1.CatchUp{WindowSeconds: 3 * 3600, Policy: "All"}, "Allow", 10, "8 9 10 [Missed x 7]"},
		"the latest of all do if they are too many":                   {v1alpha1.CatchUp{WindowSeconds: 9 * 3600, Policy: "All", Max: 2}, "Allow", 10, "9 10 [Missed x 1 NotLatest x 7]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp, s.Spec.Overlap = c.catchUp, c.overlap })
			r := w.operator()
			w.settle(r, s)
			w.at(c.hours, 1)
			if got := w.hours("report", w.settle(r, s)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if text := <-w.events.Events; !strings.Contains(text, "SlotMissed") {
				t.Errorf("event: %s", text)
			}
		})
	}
}

// A clock that jumps by a year makes work in parts, and one that comes back makes no slot again.
func TestAClockThatJumps(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Cron = []string{"* * * * *"}
		s.Spec.Overlap = v1alpha1.OverlapAllow
	})
	r := w.operator()
	w.settle(r, s)
	before := w.clock.Now()
	w.clock.SetTime(before.AddDate(1, 0, 0))
	st := w.settle(r, s)
	if st.Started != 1 || st.NotStarted < 525_000 || len(st.Skipped) > 3 {
		t.Fatalf("after a year: %d started, %d not, %v", st.Started, st.NotStarted, reasons(st))
	}
	w.clock.SetTime(before.AddDate(1, 0, 0).Add(-10 * time.Minute))
	if st := w.settle(r, s); st.Started != 1 || !strings.Contains(st.Conditions[0].Message, "set back") {
		t.Errorf("ten minutes back: %+v", st)
	}
	w.clock.SetTime(before.Add(30 * time.Second))
	w.settle(r, s)
	w.clock.SetTime(before.Add(90 * time.Second))
	if st := w.settle(r, s); st.Started < 2 || st.Started > 3 {
		t.Errorf("a year back: %d started, next %v", st.Started, st.Next)
	}
	w.clock.SetTime(before.AddDate(1, 0, 0).Add(30 * time.Second)) // forth again: the run of before is still there
	if st, runs := w.settle(r, s), w.runs(); int(st.Started) != len(runs) {
		t.Errorf("%d started, %d runs", st.Started, len(runs))
	}
}

func TestAnEditCountsFromWhenItIsSeen(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 */2 * * *", "30 * * * *"} })
	r := w.operator()
	w.settle(r, s)
	w.at(5, 45)
	w.edit(s, func(s *v1alpha1.Schedule) {
		s.Spec.Cron = []string{"40 * * * *"} // 40 minutes past has come already, and is not a slot yet
		s.Spec.CatchUp.WindowSeconds = 600
	})
	st := w.settle(r, s)
	if st.Started != 0 || !strings.Contains(st.Next[0], ":40:00") || st.Timing.Cron[0] != "40 * * * *" || st.NotStarted < 6 {
		t.Errorf("%+v", st)
	}
	w.at(6, 41)
	if st := w.settle(r, s); st.Started != 1 {
		t.Errorf("the new slot: %+v", st)
	}
}

func TestSlotsOfASuspensionAreNotCaughtUpWith(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 86400 })
	r := w.operator()
	w.settle(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true })
	w.at(3, 1) // it was suspended while nobody looked
	if st := w.settle(r, s); w.hours("report", st) != "[Suspended x 3]" || len(st.Next) != 0 {
		t.Errorf("%+v", st)
	}
	w.at(5, 1)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = false })
	if st := w.settle(r, s); w.hours("report", st) != "[Suspended x 5]" || st.Held != "" {
		t.Errorf("%v %+v", w.hours("report", st), st)
	}
	w.at(6, 1)
	if st := w.settle(r, s); w.hours("report", st) != "6 [Suspended x 5]" {
		t.Errorf("%v %+v", w.hours("report", st), st)
	}
}

func TestARunThatIsNotTheSchedulesKeepsItsName(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	r := w.operator()
	w.settle(r, s)
	w.at(1, 1)
	other := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: schedule.RunName("report", w.slot(1))}}
	other.Spec.Steps = []v1alpha1.Step{{Name: "x", Job: &v1alpha1.Job{Topic: "x"}}}
	if err := w.client.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if st := w.settle(r, s); st.Started != 0 || fmt.Sprint(reasons(st)) != "[NameTaken x 1]" || len(st.Last) != 0 {
		t.Errorf("%+v", st)
	}
}

// A schedule that is renamed is another one: it begins with its creation.
func TestARenamedScheduleBeginsAnew(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	r := w.operator()
	w.settle(r, s)
	w.at(2, 1)
	w.settle(r, s)
	if err := w.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.pass(r, s)
	again := w.schedule("report", nil) // under the same name, whose last run is there until it is collected
	st := w.settle(r, again)
	why := fmt.Sprint(reasons(st))
	if why != "[NotLatest x 1]" && why != "[Missed x 1]" || len(st.Starting) != 1 || len(w.runs()) != 1 {
		t.Errorf("%v %+v", why, st)
	}
	if st := w.settle(r, w.schedule("renamed", nil)); st.Started != 1 {
		t.Errorf("renamed: %+v", st)
	}
}

func TestASpecWithAnErrorSaysWhere(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ScheduleSpec)
		want   []string
	}{
		"cron and zone": {func(s *v1alpha1.ScheduleSpec) {
			s.Cron, s.TimeZone = []string{"0 * * * *", "61 * * * *"}, "Mars/Olympus"
		}, []string{`spec.cron[1]: minute "61": need 0 to 59`, `spec.timeZone: zone "Mars/Olympus"`}},
		"stopWhen":         {func(s *v1alpha1.ScheduleSpec) { s.StopWhen = "run.phase ==" }, []string{"spec.stopWhen: "}},
		"an unknown field": {func(s *v1alpha1.ScheduleSpec) { s.RunTemplate.Spec.Raw = []byte(`{"stepz":[]}`) }, []string{`spec.runTemplate.spec: unknown field "stepz"`}},
		"no steps":         {func(s *v1alpha1.ScheduleSpec) { s.RunTemplate.Spec.Raw = []byte(`{}`) }, []string{"spec.runTemplate: ", "steps"}},
		"what a run may not": {func(s *v1alpha1.ScheduleSpec) {
			s.RunTemplate.Spec.Raw = []byte(strings.Replace(steps, `{"steps"`, `{"ttlSecondsAfterFinished":0,"steps"`, 1))
		}, []string{"a schedule has no ttlSecondsAfterFinished"}},
		"a cycle": {func(s *v1alpha1.ScheduleSpec) {
			s.RunTemplate.Spec.Raw = []byte(strings.Replace(steps, `"job"`, `"dependsOn":["work"],"job"`, 1))
		}, []string{"spec.runTemplate.spec.steps"}},
		"another tenant": {func(s *v1alpha1.ScheduleSpec) {
			s.RunTemplate.Spec.Raw = []byte(strings.Replace(steps, `{"steps"`, `{"tenant":"acme","steps"`, 1))
		}, []string{"spec.runTemplate.spec.tenant: namespace"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { c.change(&s.Spec) })
			r := w.operator()
			st := w.settle(r, s)
			stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
			for _, want := range c.want {
				if stalled == nil || stalled.Status != metav1.ConditionTrue || !strings.Contains(stalled.Message, want) {
					t.Errorf("%+v, want %s", stalled, want)
				}
			}
			w.at(1, 1)
			if st := w.settle(r, s); len(w.runs()) > 0 || st.Started != 0 {
				t.Errorf("it has runs: %+v", st)
			}
		})
	}
}

func TestAllowListsOfTheNamespaceHoldForTemplates(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	r := w.operator()
	r.RequireLists = true
	st := w.settle(r, s)
	if stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled); stalled == nil || !strings.Contains(stalled.Message, "workloadClass") {
		t.Errorf("%+v", st.Conditions)
	}
	w.at(1, 1)
	if st := w.settle(r, s); fmt.Sprint(reasons(st)) != "[TemplateRefused x 1]" || len(w.runs()) > 0 {
		t.Errorf("%+v", st)
	}
}

func TestFailuresPauseAndAnEditEndsThat(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.PauseAfterFailures, s.Spec.FailedRunsHistoryLimit = new(int32(2)), new(int32(0))
	})
	r := w.operator()
	w.settle(r, s)
	for hour := 1; hour <= 2; hour++ {
		w.at(hour, 1)
		w.settle(r, s)
		w.at(hour, 2)
		w.end(schedule.RunName("report", w.slot(hour)), v1alpha1.RunFailed)
	}
	w.at(3, 1)
	if st := w.settle(r, s); st.Held != v1alpha1.SlotPaused || st.Failures != 2 || len(w.runs()) != 2 {
		t.Fatalf("%+v", st)
	}
	w.at(4, 1)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.CatchUp.Max = 5 })
	w.settle(r, s)
	w.at(5, 1)
	if st := w.settle(r, s); st.Held != "" || st.Started != 3 || fmt.Sprint(reasons(st)) != "[Paused x 2]" {
		t.Errorf("%+v %v", st, reasons(st))
	}
}

// Failures in a row are counted from the runs that are kept.
//
// mutation: prune that counts cancelled runs as failed ones makes this fail.
func TestCancelledRunsDoNotHideFailures(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.PauseAfterFailures = new(int32(3)) })
	r := w.operator()
	w.settle(r, s)
	ends := []v1alpha1.RunPhase{v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunFailed}
	for i, phase := range ends {
		hour := i + 1
		w.at(hour, 1)
		w.settle(r, s)
		w.at(hour, 2)
		w.end(schedule.RunName("report", w.slot(hour)), phase)
		w.settle(r, s)
	}
	if st := w.settle(r, s); st.Held != v1alpha1.SlotPaused || st.Failures != 3 || len(w.runs()) != 4 {
		t.Errorf("%d runs, %+v", len(w.runs()), st)
	}
}

// mutation: prune that keeps failures which do not count any more, or no place for what was
// cancelled, makes this fail.
func TestOldFailuresLeaveRoomForWhatWasCancelled(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.PauseAfterFailures = new(int32(2)) })
	r := w.operator()
	w.settle(r, s)
	ends := []v1alpha1.RunPhase{
		v1alpha1.RunFailed, v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunSucceeded,
		v1alpha1.RunCancelled, v1alpha1.RunCancelled,
	}
	for i, phase := range ends {
		hour := i + 1
		w.at(hour, 1)
		w.settle(r, s)
		w.at(hour, 2)
		w.end(schedule.RunName("report", w.slot(hour)), phase)
		w.settle(r, s)
	}
	if got := w.hours("report", w.settle(r, s)); got != "2 4 5 6 7 8 []" {
		t.Errorf("kept: %s", got)
	}
}

// mutation: delete that does not look below a run makes this fail.
func TestARunIsKeptUntilTheCleanUpBelowItIsOver(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.FailedRunsHistoryLimit = new(int32(0)) })
	r := w.operator()
	cleaning := true
	r.Below = func(_ context.Context, run *v1alpha1.WorkflowRun) (bool, error) {
		return cleaning && run.Status.Phase == v1alpha1.RunFailed, nil
	}
	w.settle(r, s)
	w.at(1, 1)
	w.settle(r, s)
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunFailed)
	if result := w.pass(r, s); result.RequeueAfter != cleanUpPause || len(w.runs()) != 1 {
		t.Fatalf("%d runs, again after %s", len(w.runs()), result.RequeueAfter)
	}
	cleaning = false
	w.clock.SetTime(w.clock.Now().Add(cleanUpPause))
	if w.settle(r, s); len(w.runs()) != 0 {
		t.Errorf("%d runs", len(w.runs()))
	}
}

// mutation: stops that takes outputs in the object store for none, or evaluates nothing where there
// are some, makes this fail.
func TestStopWhenDoesNotGuessLargeOutputs(t *testing.T) {
	for when, stops := range map[string]bool{"!has(run.outputs.more)": false, "run.outputs.left == 0": false, "run.started == 1": true} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.StopWhen = when })
			r := w.operator()
			w.settle(r, s)
			w.at(1, 1)
			w.settle(r, s)
			run := w.runs()[schedule.RunName("report", w.slot(1))]
			at := metav1.NewTime(w.clock.Now())
			run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at, OutputsRef: &v1alpha1.OutputReference{
				Name: "a/b", Digest: "sha256:" + strings.Repeat("0", 64), Size: 9000,
			}}
			if err := w.client.Status().Update(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			st := w.settle(r, s)
			told := ""
			for len(w.events.Events) > 0 {
				told += <-w.events.Events + "\n"
			}
			if (st.Held == v1alpha1.SlotStopped) != stops || strings.Contains(told, "its outputs of 9000 bytes are in the object store") == stops {
				t.Errorf("held %q, events:\n%s", st.Held, told)
			}
		})
	}
}

func TestStopWhenEndsASchedule(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.StopWhen = "run.outputs.left == 0 && run.started == 1" })
	r := w.operator()
	w.settle(r, s)
	w.at(1, 1)
	w.settle(r, s)
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
	w.settle(r, s)
	w.at(9, 1)
	if st := w.settle(r, s); st.Held != v1alpha1.SlotStopped || st.Started != 1 || st.NotStarted != 0 || len(st.Next) != 0 {
		t.Errorf("%+v", st)
	}
}

func TestABackfillStartsSlotsOfThePastInOrder(t *testing.T) {
	w := newWorld(t)
	from, to := metav1.NewTime(w.slot(-4)), metav1.NewTime(w.slot(-2))
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Backfill = &v1alpha1.Backfill{From: from, To: to} })
	r := w.operator()
	for hour := -4; hour <= -2; hour++ {
		st := w.settle(r, s)
		name := schedule.RunName("report", w.slot(hour))
		if st.Active != 1 || w.runs()[name] == nil {
			t.Fatalf("hour %d: %+v", hour, st)
		}
		w.end(name, v1alpha1.RunSucceeded)
	}
	if st := w.settle(r, s); st.Backfill.FinishedAt == nil || st.Backfill.Started != 3 {
		t.Errorf("%+v", st.Backfill)
	}
}

// The slots of a suspension are what a backfill is for most often.
//
// mutation: a backfill that begins while the schedule is suspended makes this fail.
func TestABackfillOfASuspensionStartsItsSlots(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Suspend, s.Spec.Overlap = true, v1alpha1.OverlapAllow })
	r := w.operator()
	w.settle(r, s)
	w.at(5, 1)
	w.settle(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) {
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(1)), To: metav1.NewTime(w.slot(4))}
	})
	w.settle(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = false })
	if st := w.settle(r, s); st.Backfill.Started != 4 || st.Backfill.FinishedAt == nil || len(w.runs()) != 4 {
		t.Errorf("%d runs, %+v", len(w.runs()), st.Backfill)
	}
}

func TestEndedRunsBeyondTheLimitsAreDeleted(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.SuccessfulRunsHistoryLimit, s.Spec.FailedRunsHistoryLimit = new(int32(2)), new(int32(1))
	})
	r := w.operator()
	w.settle(r, s)
	for hour := 1; hour <= 6; hour++ {
		w.at(hour, 1)
		w.settle(r, s)
		w.at(hour, 2)
		w.end(schedule.RunName("report", w.slot(hour)), []v1alpha1.RunPhase{v1alpha1.RunSucceeded, v1alpha1.RunFailed}[hour%2])
		w.settle(r, s)
	}
	if got := w.hours("report", w.settle(r, s)); got != "4 5 6 []" {
		t.Errorf("kept: %s", got)
	}
}

// A finalizer keeps runs that were deleted: deleting them again does nothing, without an end, and
// nothing else was told meanwhile.
//
// mutations: prune that deletes what is being deleted, or that counts it among those that are kept.
func TestRunsThatAreBeingDeletedAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.SuccessfulRunsHistoryLimit = new(int32(1)) })
	deleted := 0
	w.funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		deleted++
		return c.Delete(ctx, o, opts...)
	}
	r := w.operator()
	w.settle(r, s)
	for hour := 1; hour <= 3; hour++ {
		w.at(hour, 1)
		w.settle(r, s)
		run := w.runs()[schedule.RunName("report", w.slot(hour))]
		run.Finalizers = []string{"example.com/archive"}
		if err := w.client.Update(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		w.end(run.Name, v1alpha1.RunSucceeded)
		w.settle(r, s)
		w.settle(r, s)
		if there := len(w.runs()); deleted != hour-1 || there != hour {
			t.Errorf("hour %d: %d deletions, %d runs", hour, deleted, there)
		}
	}
	for _, run := range w.runs() { // or the namespace of the test keeps them
		run.Finalizers = nil
		if err := w.client.Update(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
}

// Somebody deletes the run of a slot and makes one of his own under its name, which the cache has
// not seen.
//
// mutation: cancel or delete without the UID makes this fail.
func TestARunThatWasMadeAnewUnderTheNameIsLeftAlone(t *testing.T) {
	for name, end := range map[string]v1alpha1.RunPhase{"of one to cancel": "", "of one to delete": v1alpha1.RunSucceeded} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) {
				s.Spec.Overlap, s.Spec.SuccessfulRunsHistoryLimit = v1alpha1.OverlapCancelOther, new(int32(0))
			})
			first, swaps := schedule.RunName("report", w.slot(1)), 0
			w.funcs = w.swapped(first, &swaps)
			r := w.operator()
			w.settle(r, s)
			w.at(1, 1)
			w.settle(r, s)
			if end != "" {
				w.end(first, end)
			}
			w.at(2, 1)
			w.settle(r, s)
			now := w.runs()[first]
			if now == nil || len(now.OwnerReferences) != 0 || now.Spec.Shutdown != "" || swaps != 1 {
				t.Errorf("after %d changes: %+v", swaps, now)
			}
		})
	}
}

// swapped makes a run anew just before it is patched or deleted, and counts that.
func (w *world) swapped(name string, swaps *int) interceptor.Funcs {
	swap := func(ctx context.Context, c client.Client, o client.Object) error {
		if _, isRun := o.(*v1alpha1.WorkflowRun); !isRun || o.GetName() != name || *swaps > 0 {
			return nil
		}
		*swaps++
		anew := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: *w.runs()[name].Spec.DeepCopy()}
		return errors.Join(c.Delete(ctx, w.runs()[name]), c.Create(ctx, anew))
	}
	return interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := swap(ctx, c, o); err != nil {
				return err
			}
			return c.Patch(ctx, o, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := swap(ctx, c, o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	}
}

// Its generation is 1 again, and it went so quickly that no pass saw it gone.
//
// mutation: memory that does not compare UIDs makes this fail.
func TestAScheduleMadeAnewIsNotTheOneBefore(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	answer := error(apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind(), "", nil))
	w.answers(func(bool) error { return answer })
	r := w.operator()
	w.settle(r, s)
	if err := w.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	answer = nil
	s = w.schedule("report", nil)
	w.settle(r, s)
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 1 {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

func TestTheAPIServerRefusesWhatItCanSee(t *testing.T) {
	w := newWorld(t)
	for want, change := range map[string]func(*v1alpha1.Schedule){
		"at most 54 characters":      func(s *v1alpha1.Schedule) { s.Name = strings.Repeat("x", 55) },
		"spec.cron[0]":               func(s *v1alpha1.Schedule) { s.Spec.Cron[0] = "* * * *" },
		"spec.overlap":               func(s *v1alpha1.Schedule) { s.Spec.Overlap = "Queue" },
		"spec.dst.gap":               func(s *v1alpha1.Schedule) { s.Spec.DST.Gap = "Both" },
		"spec.catchUp.windowSeconds": func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 5 },
		"spec.runTemplate.spec":      func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.Spec.Raw = []byte(`[]`) },
		"is copied from": func(s *v1alpha1.Schedule) {
			s.Spec.RunTemplate.Metadata.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "x"}
		},
		"to is before": func(s *v1alpha1.Schedule) {
			s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.Now(), To: metav1.NewTime(time.Now().Add(-time.Hour))}
		},
		"from is before the year 2000": func(s *v1alpha1.Schedule) {
			s.Spec.Backfill = &v1alpha1.Backfill{To: metav1.Now(), From: metav1.NewTime(time.Unix(0, 0))}
		},
	} {
		s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "bad"}}
		s.Spec.Cron, s.Spec.RunTemplate.Spec.Raw = []string{"0 * * * *"}, []byte(steps)
		change(s)
		if err := w.client.Create(t.Context(), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
