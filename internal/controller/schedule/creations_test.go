// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/schedule"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// What the API server cannot do now is done later, or is a reason.
func TestACreationThatFailsIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 60 })
	w.settle(w.operator(), s)
	away := true
	w.funcs = interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if away {
			return apierrors.NewTooManyRequests("no room", 7)
		}
		return c.Create(ctx, o, opts...)
	}}
	r := w.operator()
	w.at(1, 0)
	if result := w.pass(r, s); result.RequeueAfter != 7*time.Second {
		t.Fatalf("tried again after %v", result.RequeueAfter)
	}
	away = false
	w.clock.SetTime(w.clock.Now().Add(7 * time.Second))
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 {
		t.Errorf("%+v", st)
	}
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
	away = true
	w.at(2, 0)
	w.pass(r, s)
	w.at(2, 2)
	if st := w.settle(r, s); fmt.Sprint(reasons(st)) != "[StartFailed x 1]" || st.Started != 1 || len(st.Starting) != 0 {
		t.Errorf("%+v", st)
	}
}

// mutation: refusedForGood that has IsForbidden makes this fail, and so does create that gives a
// slot up for Input.Doubt.
func TestACreationThatIsForbiddenIsTriedAgainUntilTheWindowIsOver(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 60 })
	w.settle(w.operator(), s)
	full := true
	w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	r := w.operator()
	w.at(1, 0)
	if result := w.pass(r, s); result.RequeueAfter != createPause {
		t.Fatalf("tried again after %v", result.RequeueAfter)
	}
	full = false
	w.clock.SetTime(w.clock.Now().Add(createPause))
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 {
		t.Fatalf("%+v", st)
	}
	w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
	full = true
	w.at(2, 0)
	w.pass(r, s)
	w.at(2, 2)
	if st := w.settle(r, s); fmt.Sprint(reasons(st)) != "[StartFailed x 1]" || st.Started != 1 || len(st.Starting) != 0 {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

// mutation: a slot that is created while the schedule is suspended makes this fail.
func TestASlotWhoseRunCouldNotBeCreatedIsSuspendedToo(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.settle(w.operator(), s)
	full := true
	w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	r := w.operator()
	w.at(1, 0)
	w.pass(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true })
	full = false
	if st := w.settle(r, s); fmt.Sprint(reasons(st)) != "[Suspended x 1]" || st.Started != 0 || len(st.Starting) != 0 || len(w.runs()) != 0 {
		t.Errorf("%v %d runs, %+v", reasons(st), len(w.runs()), st)
	}
}

// A run that is there already is its slot's, though the schedule is suspended and nobody was told.
//
// mutation: settle that does not look makes this fail.
func TestARunThatWasCreatedBeforeASuspensionCounts(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.settle(w.operator(), s)
	unseen := w.operator()
	unseen.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
	next := w.operator() // it has no memory of the run, and an old cache
	next.Runs = unseen.Runs
	w.settle(next, s)
	w.at(1, 0)
	w.pass(unseen, s)
	if len(w.runs()) != 1 {
		t.Fatal("no run")
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true })
	w.settle(next, s)
	if st := w.settle(w.operator(), s); st.Started != 1 || st.Active != 1 || len(st.Starting) != 0 || len(st.Skipped) != 0 {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

var (
	runsResource = v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource()
	errFull      = apierrors.NewForbidden(runsResource, "", errors.New("exceeded quota"))
	errInvalid   = apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind(), "", nil)
)

// answers has operators that are made from now on get an answer to creations; nil: that of the API
// server. The returned number is that of dry runs.
func (w *world) answers(f func(dry bool) error) *int {
	tries := new(int)
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
		if dry {
			*tries++
		}
		if err := f(dry); err != nil {
			return err
		}
		return c.Create(ctx, o, opts...)
	}
	return tries
}

// A quota that is full while a schedule is applied, or a policy that is changed later, needs no
// edit of the schedule.
//
// mutation: a Forbidden that is learned without a time to ask again makes this fail. So does one
// that is asked about in each pass, and a condition Stalled for what is forbidden for now.
func TestADryRunThatIsForbiddenIsMadeAgainAfterAMinute(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Cron = []string{"0 0 29 2 *"} })
	full := true
	tries := w.answers(func(bool) error {
		if full {
			return errFull
		}
		return nil
	})
	r := w.operator()
	st := w.settle(r, s)
	ready, stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
	if ready.Status != metav1.ConditionFalse || ready.Reason != v1alpha1.ReasonTemplateRefused || !strings.Contains(ready.Message, "exceeded quota") || stalled.Status != metav1.ConditionFalse {
		t.Fatalf("%+v", st.Conditions)
	}
	before := w.stored(s).ResourceVersion
	for minute := 1; minute <= 3; minute++ {
		for range 5 { // other events
			if result := w.pass(r, s); result.RequeueAfter != longestWait {
				t.Fatalf("looked at again after %v", result.RequeueAfter)
			}
		}
		if *tries != minute {
			t.Fatalf("%d dry runs in minute %d", *tries, minute)
		}
		w.clock.SetTime(w.clock.Now().Add(longestWait))
	}
	if after := w.stored(s).ResourceVersion; after != before {
		t.Error("status was written though nothing is new")
	}
	full = false
	if st := w.settle(r, s); !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) || *tries != 4 {
		t.Errorf("after %d dry runs: %+v", *tries, st.Conditions)
	}
}

// A quota that is full of the schedule's own runs says nothing about its template.
//
// mutation: create that does not learn makes this fail.
func TestARunThatWasCreatedEndsWhatADryRunForbade(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	w.answers(func(dry bool) error {
		if dry {
			return errFull
		}
		return nil
	})
	r := w.operator()
	if st := w.settle(r, s); meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Fatalf("%+v", st.Conditions)
	}
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%+v", st)
	}
}

// What is invalid stays so until an edit, and is not said of the spec after it.
//
// mutation: refusedForGood without IsInvalid, or dryRun that returns what it knows of another
// generation, makes this fail.
func TestWhatIsInvalidIsAskedOnceAndEndsWithAnEdit(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	answer := error(apierrors.NewInternalError(errors.New("not yet")))
	tries := w.answers(func(dry bool) error {
		if dry {
			return answer
		}
		return nil
	})
	r := w.operator()
	w.settle(r, s)
	answer = errInvalid
	*tries = 0
	w.at(1, 0)
	if st := w.settle(r, s); fmt.Sprint(reasons(st)) != "[TemplateRefused x 1]" || *tries != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) {
		t.Fatalf("%d dry runs: %+v", *tries, st)
	}
	answer = apierrors.NewInternalError(errors.New("not now"))
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.SlotInput = "slot" })
	w.settle(r, s)
	w.at(2, 0)
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

// The webhook's word on a run of a Workflow is about that Workflow, too, which may come or
// be mended later.
//
// mutation: a refusal that is believed until the Schedule is edited makes this fail.
func TestWhatIsInvalidOfAWorkflowIsAskedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.RunTemplate.Spec.Raw = []byte(`{"workflowRef":{"name":"report"}}`)
	})
	answer := error(errInvalid)
	w.answers(func(bool) error { return answer })
	r := w.operator()
	if st := w.settle(r, s); meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionStalled) || meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Fatalf("%+v", st.Conditions)
	}
	answer = nil
	w.at(1, 0)
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

// Admission of others that refuses for ten minutes, and is mended, needs no edit of the schedules
// that were accepted before.
//
// mutations: notCreated that forgets that a template was accepted; dryRun that refuses it for good;
// answered that does not read status, for the operator that takes over.
func TestWhatWasAcceptedOnceIsRefusedForNow(t *testing.T) {
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprint("another operator takes over: ", another), func(t *testing.T) { wasAcceptedOnce(t, another) })
	}
}

func wasAcceptedOnce(t *testing.T, another bool) {
	t.Helper()
	w := newWorld(t)
	s := w.schedule("report", nil)
	refused := false
	w.answers(func(bool) error {
		if refused {
			return errInvalid
		}
		return nil
	})
	r := w.operator()
	w.settle(r, s)
	refused = true
	for _, minute := range []time.Duration{0, 2} { // the slot, and a dry run
		if another {
			r = w.operator()
		}
		w.at(1, minute)
		st := w.settle(r, s)
		ready, stalled := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionStalled)
		if fmt.Sprint(reasons(st)) != "[TemplateRefused x 1]" || ready.Reason != v1alpha1.ReasonTemplateRefused || stalled.Status != metav1.ConditionFalse {
			t.Errorf("minute %d: %v %+v", minute, reasons(st), st.Conditions)
		}
	}
	refused = false
	w.at(2, 0)
	if st := w.settle(r, s); st.Started != 1 || len(w.runs()) != 1 || !meta.IsStatusConditionTrue(st.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("mended: %v %+v", reasons(st), st)
	}
}

// A message that is another one each time has status written at each slot.
//
// mutations: notCreated, or dryRun, that keeps the run's name.
func TestARefusalHasTheSameWordsForEachSlot(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	refused := false
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if refused {
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind(), o.GetName(), nil)
		}
		return c.Create(ctx, o, opts...)
	}
	r := w.operator()
	w.settle(r, s)
	refused = true
	said := map[string]bool{}
	for _, at := range [][2]time.Duration{{1, 0}, {1, 2}, {2, 0}} { // a slot, a dry run, a slot
		w.at(int(at[0]), at[1])
		said[meta.FindStatusCondition(w.settle(r, s).Conditions, v1alpha1.ConditionReady).Message] = true
	}
	if len(said) != 1 {
		t.Errorf("it said %v", said)
	}
}

// handing drives schedules until it has handed them over.
type handing struct {
	always
	over    *bool
	end     *context.CancelFunc // of the last pass
	refused func()              // is called after a pass was refused; nil: nothing is
}

func (h handing) Enter(ctx context.Context, _ types.UID) (context.Context, func() bool, bool) {
	while, end := context.WithCancel(ctx)
	if *h.over {
		end()
		if h.refused != nil {
			h.refused()
		}
	} else {
		*h.end = end
	}
	return while, func() bool { end(); return false }, !*h.over
}

// mutations: failed that gives back the error of a pass which a hand-over cut off, or that does not
// note the schedule down for Gained.
func TestAPassThatAHandOverCutsOffIsNoError(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	over, end := false, context.CancelFunc(nil)
	r := w.operator()
	r.Driven = handing{over: &over, end: &end}
	w.settle(r, s)
	w.funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
		over = true
		end()
		return context.Canceled
	}
	w.at(1, 0)
	again := w.operator()
	again.Driven = r.Driven
	key := client.ObjectKeyFromObject(s)
	if result, err := again.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result.RequeueAfter != 0 || !over {
		t.Errorf("%+v, %v, asked: %v", result, err, over)
	}
	if again.waker.waiting[key] != s.UID {
		t.Errorf("who gains its partition does not wake it: %v", again.waker.waiting)
	}
}

// owner owns all partitions.
type owner struct{}

func (owner) Owns(int) bool { return true }

func (owner) While(ctx context.Context, _ int) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// All other runs of its partition stand still while a hand-over waits for the pass.
//
// mutations: a loop of act or prune that goes on when the schedule is to be handed over.
func TestAPassEndsBetweenTwoCallsWhenItsScheduleIsHandedOver(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Overlap, s.Spec.FailedRunsHistoryLimit = v1alpha1.OverlapAllow, new(int32(10))
	})
	partition := []int{protocol.Partition(string(s.UID))}
	partitions := driven.New(w.clock, owner{})
	asked, calls := false, 0
	call := func() {
		calls++
		if asked {
			over, end := context.WithCancel(t.Context())
			end()
			partitions.End(over, partition, func([]int) {}) // waits for the pass no longer than it has to
		}
	}
	w.answers(func(dry bool) error {
		if !dry {
			call()
		}
		return nil
	})
	w.funcs.Patch = func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
		call()
		return c.Patch(ctx, o, p, opts...)
	}
	w.funcs.Delete = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		call()
		return c.Delete(ctx, o, opts...)
	}
	r := w.operator()
	r.Driven = partitions
	step := func(what string, left int) {
		t.Helper()
		for _, c := range []struct {
			who   string
			asked bool
			want  int
		}{{"who hands over", true, 1}, {"the next owner", false, left}} {
			partitions.Begin(partition)
			asked, calls = c.asked, 0
			w.settle(r, s)
			if noted := r.waker.waiting[client.ObjectKeyFromObject(s)] == s.UID; calls != c.want || noted != c.asked {
				t.Errorf("%s: %s: %d calls, want %d; noted for Gained: %t", what, c.who, calls, c.want, noted)
			}
		}
	}
	partitions.Begin(partition)
	w.settle(r, s)
	w.edit(s, func(s *v1alpha1.Schedule) {
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-6)), To: metav1.NewTime(w.slot(-2))}
	})
	step("creations", 4)
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapCancelOther })
	w.at(1, 0)
	step("cancels", 4)
	for name := range w.runs() {
		w.end(name, v1alpha1.RunCancelled)
	}
	w.settle(r, s) // the slot that waited for them has its run
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.FailedRunsHistoryLimit = new(int32(0)) })
	step("deletions", 4)
}

// A partition may come back before the pass that its hand-over cut off has ended.
//
// mutations: failed that asks whether it drives the schedule before it notes it down, that keeps
// the note of one which it drives, or that takes this hand-over for an error, or an error for one.
func TestAPartitionThatComesBackWhileItsPassEndsIsNotMissed(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	key := client.ObjectKeyFromObject(s)
	over, end := false, context.CancelFunc(nil)
	var r *Reconciler
	back := func() { r.Gained(map[int]bool{protocol.Partition(string(s.UID)): true}) }
	for name, c := range map[string]struct {
		fails  func()
		cause  error
		want   reconcile.Result
		queued int
	}{
		"right after it was asked": {fails: func() { over = true; end() }, queued: 1},
		"before it was asked":      {fails: func() { end() }, want: reconcile.Result{RequeueAfter: conflictPause}},
		"never left":               {fails: func() {}, cause: errLeaving},
	} {
		r, over = w.operator(), false
		r.Driven = handing{over: &over, end: &end, refused: back}
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		r.waker.start(q)
		r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) {
			c.fails()
			return nil, errLeaving
		}
		result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
		if !errors.Is(err, c.cause) || result != c.want || q.Len() != c.queued || len(r.waker.waiting) != c.queued {
			t.Errorf("%s: %+v, %v, %d woken, %d noted", name, result, err, q.Len(), len(r.waker.waiting))
		}
		q.ShutDown()
	}
}

// The dry run is of the next slot: it may be accepted where those of the backfill are not.
//
// mutation: notCreated that has the dry run made again at once.
func TestABackfillThatIsRefusedGoesOnAfterAMinute(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Overlap, s.Spec.CatchUp.WindowSeconds = v1alpha1.OverlapAllow, 60
		s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-40)), To: metav1.NewTime(w.slot(-2))}
	})
	w.answers(func(dry bool) error {
		if dry {
			return nil
		}
		return errInvalid
	})
	w.at(1, 30) // no slot is due but one that is missed
	r := w.operator()
	for minute := 1; minute <= 2; minute++ {
		st := w.settle(r, s)
		if st.Backfill == nil || st.Backfill.FinishedAt != nil || st.NotStarted != int64(10*minute+1) {
			t.Errorf("minute %d: %+v, %d not started: %v", minute, st.Backfill, st.NotStarted, reasons(st))
		}
		w.clock.SetTime(w.clock.Now().Add(longestWait))
	}
}

// A backfill is done once: slots that it began while no run could be created would be used up.
//
// mutations: fillBack that does not look at Refused, or at Doubt; notCreated that believes the dry
// run of before.
func TestABackfillWaitsForATemplateThatIsNotRefused(t *testing.T) {
	for name, template := range map[string]string{"for good": steps, "for now": `{"workflowRef":{"name":"report"}}`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) {
				s.Spec.Overlap, s.Spec.RunTemplate.Spec.Raw = v1alpha1.OverlapAllow, []byte(template)
				s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-40)), To: metav1.NewTime(w.slot(-2))}
			})
			refused := true
			w.answers(func(bool) error {
				if refused {
					return errInvalid
				}
				return nil
			})
			r := w.operator()
			if st := w.settle(r, s); st.Backfill != nil || st.Started != 0 || len(st.Skipped) != 0 {
				t.Errorf("refused: %+v, %v", st.Backfill, reasons(st))
			}
			refused = false
			w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.SlotInput = "slot" })
			if st := w.settle(r, s); st.Backfill == nil || st.Backfill.Started != 10 || len(w.runs()) != 10 {
				t.Fatalf("mended: %+v, %d runs", st.Backfill, len(w.runs()))
			}
			refused = true // a Workflow may change without an edit of the schedule
			for name := range w.runs() {
				w.end(name, v1alpha1.RunSucceeded)
			}
			if st := w.settle(r, s); st.Backfill.FinishedAt != nil || st.Backfill.Started != 10 || fmt.Sprint(reasons(st)) != "[TemplateRefused x 10]" {
				t.Errorf("refused in the middle: %+v, %v", st.Backfill, reasons(st))
			}
		})
	}
}

// mutation: a dry run with a slot that no run of the schedule can have.
func TestADryRunHasASlotOfTheSchedule(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.TimeZone, s.Spec.RunTemplate.SlotInput = "Asia/Kolkata", "slot"
	})
	var tried []string
	w.funcs.Create = func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if run, is := o.(*v1alpha1.WorkflowRun); is {
			tried = append(tried, string(run.Spec.Inputs.Raw))
		}
		return c.Create(ctx, o, opts...)
	}
	w.settle(w.operator(), s)
	if len(tried) != 1 || !strings.HasSuffix(tried[0], `:00:00+05:30"}`) {
		t.Errorf("tried with %q", tried)
	}
}

// mutation: problems that validates again, or not after an edit, makes this fail. The second run
// stands for what a pass makes of the same generation.
func TestATemplateIsValidatedOnceForEachGeneration(t *testing.T) {
	good, bad := &v1alpha1.WorkflowRun{}, &v1alpha1.WorkflowRun{}
	good.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	bad.Spec.Steps = []v1alpha1.Step{{Name: "A", Job: &v1alpha1.Job{Topic: "t"}}}
	mem, r := newMemory("u"), &Reconciler{Driven: always{}}
	problems := func(generation int64, run *v1alpha1.WorkflowRun) string {
		s := &v1alpha1.Schedule{}
		s.Generation = generation
		wrong, err := r.problems(t.Context(), mem, s, run)
		if err != nil {
			t.Error(err)
		}
		return wrong
	}
	first := problems(1, bad)
	if again := problems(1, good); first == "" || again != first {
		t.Errorf("first %q, then %q", first, again)
	}
	if edited := problems(2, good); edited != "" {
		t.Errorf("after an edit: %q", edited)
	}
}

var errLeaving = errors.New("it is handed over")

// leaving is a process that is about to hand over what it drives.
type leaving struct{ always }

func (leaving) Early(ctx context.Context, _ types.UID) (context.Context, func()) {
	early, end := context.WithCancelCause(ctx)
	end(errLeaving)
	return early, func() {}
}

// mutation: problems that remembers a template which there was no desk for, that asks for that of
// another namespace, or that keeps a hand-over waiting.
func TestALongTemplateIsValidatedAtADesk(t *testing.T) {
	run := &v1alpha1.WorkflowRun{}
	run.Namespace = "team"
	for i := range 50 {
		step := v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Job: &v1alpha1.Job{Topic: "t"}}
		step.When = strings.Repeat("[1].map(x, x).size() + ", 40) + "1 > 0"
		run.Spec.Steps = append(run.Spec.Steps, step)
	}
	asked, away := "", errors.New("the operator stops")
	more := false
	r := &Reconciler{Driven: always{}, Aside: &passes.Aside{Most: 1, Clock: clock.RealClock{}, Desk: func(_ context.Context, namespace string) (rest func() bool, leave func(), err error) {
		asked += namespace + " "
		return func() bool { return more }, func() { asked += "left " }, away
	}}}
	mem, s := newMemory("u"), &v1alpha1.Schedule{}
	s.Namespace, s.Generation = run.Namespace, 1
	for range 2 {
		if _, err := r.problems(t.Context(), mem, s, run); !errors.Is(err, passes.ErrLater) {
			t.Errorf("without a desk, or without time for it: %v", err)
		}
		away = nil
	}
	more = true
	for range 2 {
		if wrong, err := r.problems(t.Context(), mem, s, run); err != nil || wrong != "" {
			t.Errorf("%q, %v", wrong, err)
		}
	}
	r.Driven, s.Generation = leaving{}, 2
	r.Aside.Desk = func(ctx context.Context, _ string) (rest func() bool, leave func(), err error) {
		return nil, nil, context.Cause(ctx)
	}
	if _, err := r.problems(t.Context(), mem, s, run); !errors.Is(err, errLeaving) {
		t.Errorf("when it is handed over: %v", err)
	}
	if asked != "team team left team left " {
		t.Errorf("desks: %s", asked)
	}
}
