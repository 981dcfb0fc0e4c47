// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// blind makes an operator one whose cache has no run yet.
func blind(r *Reconciler) *Reconciler {
	r.Runs = func(context.Context, *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) { return nil, nil }
	return r
}

// run makes the run of a slot, as somebody else would.
func (w *world) run(name string, hours int, owners ...metav1.OwnerReference) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: schedule.RunName(name, w.slot(hours)), OwnerReferences: owners}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "x", Job: &v1alpha1.Job{Topic: "x"}}}
	if err := w.client.Create(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
	return run
}

func owns(s *v1alpha1.Schedule) metav1.OwnerReference {
	return *metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Schedule"))
}

// Runs that ended and wait for clean-ups below them say nothing about slots.
//
// mutations: prune that counts those that wait as deleted, and Decide that bounds them, make this
// fail.
func TestRunsThatWaitForCleanUpsHoldUpNothing(t *testing.T) {
	const ended, waiting = 60, 55
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.SuccessfulRunsHistoryLimit = new(int32(0)) })
	r := w.operator()
	w.settle(r, s)
	cleaning := map[string]bool{}
	for i := range ended {
		run := w.run("report", -1-i, owns(s))
		at := metav1.NewTime(w.clock.Now().Add(time.Duration(i-ended) * time.Second))
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at}
		if err := w.client.Status().Update(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		cleaning[run.Name] = i < waiting
	}
	r.Below = func(_ context.Context, run *v1alpha1.WorkflowRun) (bool, error) { return cleaning[run.Name], nil }
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Suspend = true })
	st := w.settle(r, s)
	if ready := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); ready.Reason != v1alpha1.ReasonScheduleSuspended {
		t.Errorf("it says %+v", ready)
	}
	if n := len(w.runs()); n != waiting {
		t.Errorf("%d runs are kept", n)
	}
	if result := w.pass(r, s); result.RequeueAfter != cleanUpPause {
		t.Errorf("again after %s", result.RequeueAfter)
	}
}

// A look below a run may cost a read of the API server for each child that is gone.
//
// mutations: prune without an end after maxWaits, toPrune that takes those that wait, or those
// first that were looked at, make this fail.
func TestAPassLooksAtFewRunsThatWait(t *testing.T) {
	const waiting, failed = 300, 5
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.SuccessfulRunsHistoryLimit, s.Spec.FailedRunsHistoryLimit = new(int32(0)), new(int32(0))
	})
	r := w.operator()
	var d schedule.Decision
	for i := range waiting + failed {
		run := w.run("report", -1-i, owns(s))
		d.Delete = append(d.Delete, schedule.Run{Name: run.Name, UID: string(run.UID)})
	}
	looks, mem := map[string]int{}, newMemory(s.UID)
	r.Below = func(_ context.Context, run *v1alpha1.WorkflowRun) (bool, error) {
		looks[run.Name]++
		return run.Name != d.Delete[waiting+failed-1].Name, nil
	}
	pass := func() {
		t.Helper()
		before := len(looks)
		wait, err := r.prune(t.Context(), t.Context(), s, &d, mem)
		if err != nil || wait != cleanUpPause || len(looks)-before > maxWaits+maxDeleted {
			t.Fatalf("after %d looks again after %s: %v", len(looks)-before, wait, err)
		}
	}
	for range 2 {
		pass()
	}
	for name, n := range looks {
		if n != 1 {
			t.Errorf("%d looks at %s within %s", n, name, cleanUpPause)
		}
	}
	for range (waiting + failed) / maxWaits {
		w.clock.SetTime(w.clock.Now().Add(cleanUpPause))
		pass()
	}
	if len(looks) != waiting+failed || len(w.runs()) != waiting+failed-1 {
		t.Errorf("looks at %d runs, %d are left", len(looks), len(w.runs()))
	}
}

// The owner before knew of the run that it had created. The cache of the next one may not
// have it yet, nor the schedule that names it.
//
// mutations: observe that does not look up the run that began last, or does so once only, makes a
// row fail.
func TestTheNextOwnerWaitsForARunThatItsCacheDoesNotHave(t *testing.T) {
	for name, old := range map[string]bool{"it has the schedule": false, "it has the schedule of before": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.Overlap = v1alpha1.OverlapBufferAll })
			w.settle(w.operator(), s)
			before := w.stored(s)
			first := blind(w.operator())
			w.at(1, 0)
			if st := w.settle(first, s); st.Started != 1 || len(st.Starting) != 0 {
				t.Fatalf("%+v", st)
			}
			if old {
				w.funcs.Get = func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if cached, ok := o.(*v1alpha1.Schedule); ok && before != nil {
						before.DeepCopyInto(cached)
						return nil
					}
					return api.Get(ctx, key, o, opts...)
				}
			}
			next := blind(w.operator())
			if old {
				_, err := next.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
				if before = nil; err != nil {
					t.Fatal(err)
				}
			}
			w.at(2, 0)
			if st := w.settle(next, s); st.Started != 1 || len(st.Waiting) != 1 || len(w.runs()) != 1 {
				t.Fatalf("%d runs beside each other: %+v", len(w.runs()), st)
			}
			w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
			next.Runs = w.operator().Runs
			if st := w.settle(next, s); st.Started != 2 || len(w.runs()) != 2 {
				t.Errorf("once it has ended: %d runs, %+v", len(w.runs()), st)
			}
		})
	}
}

// A run began and ended, and the cache of the next owner does not have it yet.
//
// mutations: observe that takes such a run for one under way, or that leaves it out of stopWhen.
func TestTheNextOwnerKnowsHowARunEndedThatItsCacheDoesNotHave(t *testing.T) {
	for name, stops := range map[string]bool{"the next slot has its run": false, "it stops the schedule": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) {
				if stops {
					s.Spec.StopWhen = "run.outputs.left == 0"
				}
			})
			first := w.operator()
			w.settle(first, s)
			w.at(1, 0)
			w.settle(first, s)
			w.end(schedule.RunName("report", w.slot(1)), v1alpha1.RunSucceeded)
			w.at(2, 0)
			st := w.settle(blind(w.operator()), s)
			if stops && (st.Started != 1 || st.Held != v1alpha1.SlotStopped) || !stops && (st.Started != 2 || len(st.Skipped) != 0) {
				t.Errorf("%v %+v", reasons(st), st)
			}
		})
	}
}

// The answer to a creation is lost, and then the template is refused: the slot has its run.
//
// mutation: create that gives a slot up without a look makes a row fail.
func TestASlotThatHasItsRunGetsNoReasonBeside(t *testing.T) {
	for name, c := range map[string]struct {
		template string // from now on; empty: as it was
		answer   error  // to creations from now on
		minutes  time.Duration
	}{
		"it cannot be read":               {template: `{"steps":[],"nonsense":1}`},
		"it is invalid":                   {template: `{"steps":[{"name":"work","when":"1 +","job":{"topic":"reports.daily"}}]}`},
		"the API server does not":         {answer: errInvalid},
		"a quota, and the window is over": {answer: errFull, minutes: 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.CatchUp.WindowSeconds = 60 })
			lost := true
			w.funcs.Create = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				dry := len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0
				if !lost && !dry {
					return c.answer
				}
				err := api.Create(ctx, o, opts...)
				if err == nil && !dry {
					err = apierrors.NewInternalError(errors.New("the answer is lost"))
				}
				return err
			}
			r := blind(w.operator())
			w.settle(r, s)
			w.at(1, 0)
			w.pass(r, s)
			lost = false
			if c.template != "" {
				w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.Spec.Raw = []byte(c.template) })
			}
			w.pass(r, s)
			w.at(1, c.minutes)
			w.settle(r, s)
			if st := w.settle(w.operator(), s); len(w.runs()) != 1 || st.Started != 1 || st.Active != 1 || len(st.Starting)+len(st.Skipped) != 0 {
				t.Errorf("%v %+v", reasons(st), st)
			}
		})
	}
}

// A schedule that is deleted and applied again has a backfill, and the garbage collector is not
// through with the runs of the one before.
//
// mutations: create that takes a run for another's which is being deleted, or whose schedule
// is gone.
func TestABackfillWaitsForRunsThatAreAboutToGo(t *testing.T) {
	for name, c := range map[string]struct {
		owner bool // the schedule before
		held  bool // deleted, and kept by a finalizer
	}{"its schedule is gone": {owner: true}, "it is being deleted": {held: true}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := w.schedule("report", nil)
			var owners []metav1.OwnerReference
			if c.owner {
				owners = append(owners, owns(before))
			}
			run := w.run("report", -2, owners...)
			if c.held {
				run.Finalizers = []string{"example.org/keeps"}
				if err := errors.Join(w.client.Update(t.Context(), run), w.client.Delete(t.Context(), run)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.client.Delete(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			s := w.schedule("report", func(s *v1alpha1.Schedule) {
				s.Spec.Backfill = &v1alpha1.Backfill{From: metav1.NewTime(w.slot(-2)), To: metav1.NewTime(w.slot(-2))}
			})
			r := w.operator()
			if st := w.settle(r, s); len(st.Starting) != 1 || len(st.Skipped) != 0 {
				t.Fatalf("%v %+v", reasons(st), st)
			}
			if result := w.pass(r, s); result.RequeueAfter != createPause {
				t.Errorf("tried again after %s", result.RequeueAfter)
			}
			run.Finalizers = nil
			if c.held {
				if err := w.client.Patch(t.Context(), run, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
					t.Fatal(err)
				}
			} else if err := w.client.Delete(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			w.clock.SetTime(w.clock.Now().Add(createPause))
			if st := w.settle(r, s); st.Started != 1 || len(st.Skipped) != 0 || len(w.runs()) != 1 {
				t.Errorf("once it is gone: %v %+v", reasons(st), st)
			}
		})
	}
}

// Who takes over has no desk for a long template at once. Status says that it was accepted.
//
// mutation: problems that validates what was accepted makes this fail.
func TestASlotDoesNotWaitForADeskOfATemplateThatWasAccepted(t *testing.T) {
	w := newWorld(t)
	var spec v1alpha1.WorkflowRunSpec
	for i := range 50 {
		step := v1alpha1.Step{Name: fmt.Sprintf("s%d", i), Job: &v1alpha1.Job{Topic: "t"}}
		step.When = strings.Repeat("[1].map(x, x).size() + ", 40) + "1 > 0"
		spec.Steps = append(spec.Steps, step)
	}
	raw, err := json.Marshal(map[string]any{"steps": spec.Steps})
	if err != nil {
		t.Fatal(err)
	}
	busy := false
	operator := func() *Reconciler {
		r := w.operator()
		r.Aside = &passes.Aside{Most: 1, Clock: clock.RealClock{}, Desk: func(context.Context, string) (rest func() bool, leave func(), err error) {
			if busy {
				return nil, nil, errLeaving
			}
			return func() bool { return true }, func() {}, nil
		}}
		return r
	}
	s := w.schedule("report", func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.Spec = runtime.RawExtension{Raw: raw} })
	w.funcs = interceptor.Funcs{}
	w.settle(operator(), s)
	busy = true
	w.at(1, 0)
	if st := w.settle(operator(), s); st.Started != 1 || len(w.runs()) != 1 {
		t.Errorf("%d runs: %+v", len(w.runs()), st)
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.RunTemplate.SlotInput = "slot" })
	if result := w.pass(operator(), s); result.RequeueAfter != passes.Later {
		t.Errorf("an edit is decided unread: again after %s", result.RequeueAfter)
	}
}

// A run that is not of the schedule has the name of a slot, and a finalizer keeps it.
//
// mutation: exists without an end makes this fail.
func TestANameThatIsNotGivenBackHoldsUpNoOtherSlot(t *testing.T) {
	w := newWorld(t)
	s := w.schedule("report", nil)
	run := w.run("report", 1)
	run.Finalizers = []string{"example.org/keeps"}
	if err := errors.Join(w.client.Update(t.Context(), run), w.client.Delete(t.Context(), run)); err != nil {
		t.Fatal(err)
	}
	r := w.operator()
	w.settle(r, s)
	w.at(1, 0)
	if st := w.settle(r, s); len(st.Starting) != 1 {
		t.Fatalf("%v %+v", reasons(st), st)
	}
	w.at(1, 3)
	w.settle(r, s)
	w.at(2, 0)
	st := w.settle(r, s)
	if got := reasons(st); len(got) != 1 || got[0] != "NameTaken x 1" || st.Started != 1 {
		t.Errorf("%v %+v", got, st)
	}
}

// A schedule was deleted and applied again with a backfill. A finalizer keeps all runs of the one
// before.
//
// mutations: a bound for each name; causes that has a slot which waits for its name.
func TestNamesThatAreNotGivenBackHoldUpSlotsForOneTimeInAll(t *testing.T) {
	const kept = 3
	w := newWorld(t)
	s := w.schedule("report", func(s *v1alpha1.Schedule) {
		s.Spec.Cron, s.Spec.Overlap = []string{"* * * * *"}, v1alpha1.OverlapSkip
		s.Spec.SuccessfulRunsHistoryLimit = new(int32(100))
	})
	at := func(minutes int) metav1.Time { return metav1.NewTime(w.hour.Add(time.Duration(minutes) * time.Minute)) }
	for i := range kept {
		run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: schedule.RunName("report", at(i-kept).Time), Finalizers: []string{"example.org/keeps"},
		}}
		run.Spec.Steps = []v1alpha1.Step{{Name: "x", Job: &v1alpha1.Job{Topic: "x"}}}
		if err := errors.Join(w.client.Create(t.Context(), run), w.client.Delete(t.Context(), run)); err != nil {
			t.Fatal(err)
		}
	}
	w.edit(s, func(s *v1alpha1.Schedule) { s.Spec.Backfill = &v1alpha1.Backfill{From: at(-kept), To: at(-1)} })
	r := w.operator()
	var st *v1alpha1.ScheduleStatus
	for half := range 40 {
		w.clock.SetTime(at(61).Add(time.Duration(half) * 30 * time.Second))
		st = w.settle(r, s)
		for name, run := range w.runs() {
			if run.DeletionTimestamp.IsZero() && (run.Status == nil || run.Status.CompletedAt == nil) {
				w.end(name, v1alpha1.RunSucceeded)
			}
		}
	}
	lost := map[v1alpha1.SlotReason]int64{}
	for _, one := range st.Skipped {
		lost[one.Reason] += one.Count
	}
	if lost[v1alpha1.SlotNameTaken] != kept || lost[v1alpha1.SlotOverlap] == 0 || lost[v1alpha1.SlotOverlap] > 3 {
		t.Errorf("%v %+v", reasons(st), st)
	}
}

// A policy or a webhook may keep a run that ended, as the law may want it.
//
// mutation: prune that ends with the first refusal makes this fail.
func TestARunThatMayNotBeDeletedKeepsNoOther(t *testing.T) {
	kind := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}
	for name, refusal := range map[string]error{
		"a webhook":                    apierrors.NewForbidden(kind, "x", errors.New("legal hold")),
		"a policy":                     apierrors.NewInvalid(schema.GroupKind{Group: kind.Group, Kind: "WorkflowRun"}, "x", nil),
		"a webhook that names no code": answer(http.StatusBadRequest),
		"a policy that says it is 401": answer(http.StatusUnauthorized),
		"a policy that says it is 413": answer(http.StatusRequestEntityTooLarge),
	} {
		t.Run(name, func(t *testing.T) {
			const ended = 5
			w := newWorld(t)
			s := w.schedule("report", nil)
			var d schedule.Decision
			for i := range ended {
				run := w.run("report", i-ended, owns(s))
				d.Delete = append(d.Delete, schedule.Run{Name: run.Name, UID: string(run.UID)})
			}
			asked := 0
			w.funcs.Delete = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if o.GetName() == d.Delete[0].Name {
					asked++
					return refusal
				}
				return api.Delete(ctx, o, opts...)
			}
			r, mem := w.operator(), newMemory(s.UID)
			for range 2 {
				if wait, err := r.prune(t.Context(), t.Context(), s, &d, mem); err != nil || wait < cleanUpPause {
					t.Errorf("again after %s: %v", wait, err)
				}
			}
			if n := len(w.runs()); n != 1 || asked != 1 {
				t.Errorf("%d runs are kept, asked %d times", n, asked)
			}
			w.clock.SetTime(w.clock.Now().Add(refusedPause))
			if _, err := r.prune(t.Context(), t.Context(), s, &d, mem); err != nil || asked != 2 {
				t.Errorf("asked %d times: %v", asked, err)
			}
		})
	}
}

// A webhook may be away that is asked about some runs only, and its time-out is long.
//
// mutations: prune that ends with the first error, that goes on after maxFailed, that looks first
// at those that failed before, or that never does again.
func TestADeletionThatFailsStopsNoOther(t *testing.T) {
	const failing, ended = maxFailed + 2, maxFailed + 10
	w := newWorld(t)
	s := w.schedule("report", nil)
	var d schedule.Decision
	fails := map[string]bool{}
	for i := range ended {
		run := w.run("report", i-ended, owns(s))
		d.Delete = append(d.Delete, schedule.Run{Name: run.Name, UID: string(run.UID)})
		fails[run.Name] = i < failing
	}
	asked := 0
	w.funcs.Delete = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if fails[o.GetName()] {
			asked++
			return answer(http.StatusInternalServerError)
		}
		return api.Delete(ctx, o, opts...)
	}
	r, mem := w.operator(), newMemory(s.UID)
	pass := func(want, left int, fails bool) {
		t.Helper()
		_, err := r.prune(t.Context(), t.Context(), s, &d, mem)
		if n := len(w.runs()); (err != nil) != fails || asked != want || n != left {
			t.Errorf("%d runs are left, asked %d times: %v", n, asked, err)
		}
	}
	pass(maxFailed, ended, true)
	pass(failing, failing, true)
	pass(failing, failing, false)
	w.clock.SetTime(w.clock.Now().Add(deletedPause))
	clear(fails)
	pass(failing, 0, false)
}

// A policy may keep a run from being cancelled, and an API server may fail for a moment: the other
// runs are cancelled all the same, and those that ended are deleted.
//
// mutations: cancelAll that ends with the first error, act that does not prune after one, and a
// refusal that is an error.
func TestACancelThatIsRefusedStopsNothingElse(t *testing.T) {
	kind := v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource()
	for name, one := range map[string]struct {
		err   error
		fails bool
	}{
		"refused": {apierrors.NewForbidden(kind, "x", errors.New("legal hold")), false},
		"failed":  {answer(http.StatusInternalServerError), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.schedule("report", nil)
			var d schedule.Decision
			for hours := -3; hours < 0; hours++ {
				run := w.run("report", hours, owns(s))
				d.Cancel = append(d.Cancel, schedule.Run{Name: run.Name, UID: string(run.UID)})
			}
			d.Delete, d.Cancel = d.Cancel[:1], d.Cancel[1:]
			w.funcs.Patch = func(ctx context.Context, api client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if o.GetName() == d.Cancel[0].Name {
					return one.err
				}
				return api.Patch(ctx, o, patch, opts...)
			}
			_, err := w.operator().act(t.Context(), s, schedule.Input{}, &d, newMemory(s.UID))
			if (err != nil) != one.fails {
				t.Error(err)
			}
			left := w.runs()
			if last := left[d.Cancel[1].Name]; len(left) != 2 || last == nil || last.Spec.Shutdown != v1alpha1.ShutdownCancel {
				t.Errorf("%d runs are left, and the last is %+v", len(left), last)
			}
			d.Delete = nil
			if again, err := w.operator().act(t.Context(), s, schedule.Input{}, &d, newMemory(s.UID)); err == nil && again != refusedPause {
				t.Errorf("again after %s", again)
			}
		})
	}
}

// answer is an answer of the API server that has a code only.
func answer(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "legal hold"}}
}

// The next pass comes after a moment, and its cache may have all runs still.
//
// mutations: prune that asks for the deletion of a run in each pass, or never again.
func TestRunsAreDeletedOnceThoughTheCacheIsBehind(t *testing.T) {
	const ended = maxDeleted + 10
	w := newWorld(t)
	s := w.schedule("report", nil)
	var d schedule.Decision
	cached := map[string]*v1alpha1.WorkflowRun{}
	for i := range ended {
		run := w.run("report", i-ended, owns(s))
		cached[run.Name] = run
		d.Delete = append(d.Delete, schedule.Run{Name: run.Name, UID: string(run.UID)})
	}
	asked := 0
	w.funcs.Get = func(_ context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
		if run, ok := o.(*v1alpha1.WorkflowRun); ok {
			cached[key.Name].DeepCopyInto(run)
		}
		return nil
	}
	w.funcs.Delete = func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		asked++
		return api.Delete(ctx, o, opts...)
	}
	r, mem := w.operator(), newMemory(s.UID)
	for i, want := range []int{maxDeleted, ended} {
		wait, err := r.prune(t.Context(), t.Context(), s, &d, mem)
		if err != nil || asked != want || (i == 0) != (wait == time.Millisecond) {
			t.Errorf("%d deletions, again after %s: %v", asked, wait, err)
		}
		if i == 1 && wait != deletedPause {
			t.Errorf("it is looked again after %s", wait)
		}
	}
	w.clock.SetTime(w.clock.Now().Add(deletedPause))
	if wait, err := r.prune(t.Context(), t.Context(), s, &d, mem); err != nil || asked != ended+maxDeleted {
		t.Errorf("a minute later %d deletions, again after %s: %v", asked, wait, err)
	}
	if wait, err := r.prune(t.Context(), t.Context(), s, &schedule.Decision{}, mem); wait != 0 || err != nil {
		t.Errorf("once they are gone: again after %s: %v", wait, err)
	}
}
