// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// stopping is a schedule with such a spec.stopWhen, and a run that ended and returned a list.
func stopping(when string) (*v1alpha1.Schedule, []v1alpha1.WorkflowRun) {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report", UID: "s", Generation: 1}}
	s.Spec.StopWhen, s.Status = when, &v1alpha1.ScheduleStatus{Started: 1}
	at := metav1.NewTime(time.Unix(1000, 0))
	run := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report-1", UID: "r", ResourceVersion: "7", CreationTimestamp: at}}
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at}
	run.Status.Outputs = &k8sruntime.RawExtension{Raw: []byte(`{"list":[` + strings.Repeat("1,", 79) + `1]}`)}
	return s, []v1alpha1.WorkflowRun{run}
}

// costly is false after some 100,000 units of cost.
const costly = "run.outputs.list.exists(x, run.outputs.list.exists(y, x + y < 0))"

// There is a pass each minute, and whoever edits a label has more of them made. An expression that
// fails tells so once for each answer.
//
// mutations: stops that remembers nothing, or an answer for another run, version of it, number of
// runs or generation, make this fail.
func TestStopWhenIsEvaluatedOnceForWhatItSees(t *testing.T) {
	told := events.NewFakeRecorder(100)
	r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(2000, 0)), Events: told, Driven: always{}}
	s, runs := stopping("run.outputs.none == 0")
	mem := newMemory(s.UID)
	for i, change := range []func(){
		func() {}, func() { runs[0].UID = types.UID("another") }, func() { runs[0].ResourceVersion = "8" },
		func() { s.Status.Started = 2 }, func() { s.Generation = 2 },
	} {
		change()
		for range 10 {
			if stop, err := r.stops(t.Context(), s, runs, mem); stop || err != nil {
				t.Fatalf("%t, %v", stop, err)
			}
		}
		if n := len(told.Events); n != i+1 {
			t.Errorf("after change %d it was evaluated %d times", i, n)
		}
	}
}

// An expression that takes long has a desk, once, and waits for it where others are there: not even
// the short look at it is made again meanwhile. Its answer is that of a whole evaluation.
//
// mutations: evaluate that takes no desk, or keeps it, or the bound of a short look with it, makes
// this fail, as does one that is begun again in each pass.
func TestACostlyStopWhenTakesADesk(t *testing.T) {
	for when, want := range map[string]bool{costly: false, "!" + costly: true} {
		asked, left := 0, 0
		away := errors.New("all desks are taken")
		r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(2000, 0)), Events: events.NewFakeRecorder(100), Driven: always{}}
		r.Aside = &passes.Aside{Most: 1, Clock: clock.RealClock{}, Desk: func(context.Context, string) (rest func() bool, leave func(), err error) {
			asked++
			return func() bool { return true }, func() { left++ }, away
		}}
		s, runs := stopping(when)
		mem := newMemory(s.UID)
		if _, err := r.stops(t.Context(), s, runs, mem); !errors.Is(err, passes.ErrLater) {
			t.Errorf("without a desk: %v", err)
		}
		if mem.costly == (sight{}) {
			t.Error("that it takes long is not remembered")
		}
		away = nil
		for range 10 {
			if stop, err := r.stops(t.Context(), s, runs, mem); stop != want || err != nil {
				t.Fatalf("%s: %t, %v", when, stop, err)
			}
		}
		if asked != 2 || left != 1 {
			t.Errorf("%d desks were asked for, and %d left", asked, left)
		}
	}
	r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(2000, 0)), Events: events.NewFakeRecorder(100), Driven: always{}}
	s, runs := stopping("size(run.outputs.list) == 80")
	if stop, err := r.stops(t.Context(), s, runs, newMemory(s.UID)); !stop || err != nil { // it has no desks
		t.Errorf("a short one: %t, %v", stop, err)
	}
}

// A template of 300 KB is decoded for a look at it, and not in each pass after that. An edit of the
// namespace, which says what its runs may do, makes another look.
//
// mutations: refused that looks in each pass, or only once for a generation, makes this fail.
func TestATemplateIsLookedAtOnce(t *testing.T) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	c := fake.NewClientBuilder().WithScheme(server.Scheme).WithObjects(ns).Build()
	r := &Reconciler{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(time.Unix(2000, 0)), Driven: always{}}
	s, _ := stopping("")
	s.Spec.RunTemplate.Spec.Raw = []byte(`{"tenant":"other","workflowRef":{"name":"report"},"inputs":{"pad":"` + strings.Repeat("x", 300_000) + `"}}`)
	mem := newMemory(s.UID)
	look := func(passes int) (took uint64, is verdict) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range passes {
			var err error
			if is, err = r.refused(t.Context(), schedule.Input{Now: r.Clock.Now(), Schedule: s}, mem); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc, is
	}
	_, is := look(1)
	if !is.holds || !strings.Contains(is.why, "may not name tenant") {
		t.Errorf("at first: %+v", is)
	}
	if took, again := look(10); took > 1_500_000 || again != is {
		t.Errorf("ten more passes take %d bytes: %+v", took, again)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "team"}, ns); err != nil {
		t.Fatal(err)
	}
	ns.Annotations = map[string]string{v1alpha1.AnnotationAllowedTenants: "other"}
	if err := c.Update(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if _, is := look(1); is.why != "" {
		t.Errorf("once the namespace may: %+v", is)
	}
	if took, is := look(10); took > 1_500_000 || is.why != "" {
		t.Errorf("ten more passes of one that is accepted take %d bytes: %+v", took, is)
	}
}

// mutations: each line of edits that is left out makes this fail.
func TestEditsThatNoPassReadsMakeNone(t *testing.T) {
	s, _ := stopping("")
	for name, c := range map[string]struct {
		change func(*v1alpha1.Schedule)
		want   bool
	}{
		"a label":            {func(s *v1alpha1.Schedule) { s.Labels = map[string]string{"a": "b"} }, false},
		"another annotation": {func(s *v1alpha1.Schedule) { s.Annotations = map[string]string{"a": "b"} }, false},
		"who made it": {func(s *v1alpha1.Schedule) {
			s.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: "eve"}
		}, true},
		"its spec":   {func(s *v1alpha1.Schedule) { s.Generation++ }, true},
		"made anew":  {func(s *v1alpha1.Schedule) { s.UID = "other" }, true},
		"its status": {func(s *v1alpha1.Schedule) { s.Status.Started++ }, true},
	} {
		now := s.DeepCopy()
		now.ResourceVersion = "9"
		c.change(now)
		if got := edits().Update(event.UpdateEvent{ObjectOld: s, ObjectNew: now}); got != c.want {
			t.Errorf("%s makes a pass: %t", name, got)
		}
	}
}

// With who made a schedule a template may be too large, and neither is in the cache then. Its edit
// that mends that is seen all the same.
//
// mutation: edits that compares what the cache has of who made a schedule alone makes this fail.
func TestAnEditThatEndsARefusalForSizeMakesAPass(t *testing.T) {
	s, _ := stopping("")
	s.Spec.RunTemplate.Spec.Raw = []byte(`{"pad":"` + strings.Repeat("x", bounds.MaxSpecBytes-20) + `"}`)
	signed := s.DeepCopy()
	signed.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: strings.Repeat("e", 100)}
	for name, c := range map[string]struct{ was, now *v1alpha1.Schedule }{
		"removed": {kept(signed), kept(s)},
		"made":    {kept(s), kept(signed)},
	} {
		if !edits().Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.now}) {
			t.Errorf("%s: no pass", name)
		}
	}
}
