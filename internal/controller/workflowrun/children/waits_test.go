// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// forbidden is how a quota or a policy refuses the creation of a run.
func forbidden(name, why string) error {
	return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, name, errors.New(why))
}

// slow is a site whose creations are answered after a time, or never, if it is zero. What is asked
// of it may take as long as a pass.
func slow(t *testing.T, after time.Duration) (s *site, creates func() (lifecycle.Child, error), woken chan types.NamespacedName, tries *atomic.Int32) {
	t.Helper()
	s, woken, tries = newSite(t), make(chan types.NamespacedName, 1), new(atomic.Int32)
	s.Clock = clock.RealClock{}
	s.Wake = func(parent types.NamespacedName) { woken <- parent }
	s.answer = func(ctx context.Context, _ client.Object) error {
		tries.Add(1)
		var answered <-chan time.Time
		if after > 0 {
			answered = time.After(after)
		}
		select {
		case <-answered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s, func() (lifecycle.Child, error) {
		ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
		defer stop()
		s.observes()
		render := func(context.Context, string) (lifecycle.ChildToCreate, error) { return s.child(), nil }
		_, err := s.Create(ctx, s.while(), &s.state, s.parent, s, nil, render)
		return s.observes().Children["p-c"], err
	}, woken, tries
}

// An API server waits for a webhook that hangs as long as that says, ten seconds by default and
// thirty at most, and then goes on without it. A pass has less.
//
// mutations: a creation with the time of its pass, one that wakes nobody, or that counts as due
// while it is under way, or that has no end.
func TestChildren_AWebhookThatHangsPutsAChildOff(t *testing.T) {
	for name, c := range map[string]struct {
		after, over time.Duration
		want        lifecycle.Child
	}{
		"for 10 s": {10 * time.Second, 10 * time.Second, lifecycle.Child{State: lifecycle.ChildThere, UID: "u-p-c"}},
		"for 60 s": {time.Minute, time.Minute, lifecycle.Child{State: lifecycle.ChildThere, UID: "u-p-c"}},
		"for ever": {0, createTimeout, lifecycle.Child{State: lifecycle.ChildPostponed, Cause: "the API server did not answer within 1m5s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, creates, woken, tries := slow(t, c.after)
				began := time.Now()
				if seen, err := creates(); seen.State != lifecycle.ChildUnknown || err != nil {
					t.Fatalf("before it is answered: %+v, %v", seen, err)
				}
				if took := time.Since(began); took > patience {
					t.Errorf("the pass took %s", took)
				}
				if due := s.state.NotYetCreated(s.parent, time.Now()); len(due) != 0 {
					t.Errorf("created again meanwhile: %v", due)
				}
				if parent := <-woken; parent.Name != "p" || parent.Namespace != "n" || time.Since(began) != c.over {
					t.Errorf("woken: %s after %s", parent, time.Since(began))
				}
				if diff := cmp.Diff(c.want, s.observes().Children["p-c"]); diff != "" || tries.Load() != 1 {
					t.Errorf("%d tries, %s", tries.Load(), diff)
				}
			})
		})
	}
}

// mutation: a creation that goes on when the run is another process's.
func TestChildren_ACreationUnderWayEndsWithTheOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, creates, woken, _ := slow(t, 0)
		owned, lose := context.WithCancel(t.Context())
		s.owned = owned
		if _, err := creates(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		lose()
		<-woken
		if took := time.Since(began); took > 0 {
			t.Errorf("it went on for %s", took)
		}
		if seen := s.observes().Children["p-c"]; seen.State != lifecycle.ChildUnknown {
			t.Errorf("%+v", seen)
		}
		if due := s.state.NotYetCreated(s.parent, time.Now()); len(due) != 1 {
			t.Errorf("not created again by the next owner: %v", due)
		}
	})
}

// Creations under way are as many as there are places, whatever became of their passes; a pass that
// finds none goes on, and no error is told. Its run is woken when it is its turn, and looks for no
// place before.
//
// mutations: a creation that gives its place up with its pass; begin with an error where time is
// over; NotYetCreated that names children of a run in line; seen without lacks.
func TestChildren_ACreationKeepsItsPlaceAndAPassDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := shares.New(1, true, shares.KindMetrics{})
		first, second := drive(t, places, 1, every(30*time.Second)), drive(t, places, 1, every(30*time.Second))
		began := time.Now()
		first.pass(t)
		if took := time.Since(began); took > patience {
			t.Errorf("the pass waited for its creation for %s", took)
		}
		for range 3 {
			began := time.Now()
			if again := second.pass(t); !again.IsZero() && again.Before(time.Now().Add(time.Second)) || second.there() > 0 {
				t.Errorf("another pass in %s, there: %d", time.Until(again), second.there())
			}
			if took := time.Since(began); took > briefly {
				t.Errorf("the pass waited for a place for %s", took)
			}
			if due := second.state.NotYetCreated(second.parent, time.Now()); len(due) > 0 || places.Waiting() != 1 {
				t.Errorf("due without a place: %v; in line: %d", due, places.Waiting())
			}
		}
		<-second.woken
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("it is its turn after %s", took)
		}
		second.until(t, 1)
		if first.there() != 1 || time.Since(began) != time.Minute {
			t.Errorf("%d of the first is there, after %s", first.there(), time.Since(began))
		}
	})
}

// family is a site whose parent has so many children, with a count of what is tried. It is
// refused by name, or else by all.
func family(t *testing.T, n int) (s *site, pass func() (tried []string), refuse map[string]error) {
	t.Helper()
	s, refuse = newSite(t), map[string]error{}
	s.parent.Status.Steps = nil
	for i := range n {
		name := fmt.Sprintf("c%d", i)
		s.parent.Status.Steps = append(s.parent.Status.Steps, v1alpha1.StepStatus{Name: name, Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "p-" + name}})
	}
	asked := make(chan string, 100)
	s.answer = func(_ context.Context, o client.Object) error {
		asked <- o.GetName()
		if err, ok := refuse[o.GetName()]; ok {
			return err
		}
		return refuse[""]
	}
	render := func(_ context.Context, step string) (lifecycle.ChildToCreate, error) {
		return lifecycle.ChildToCreate{Step: step, Name: "p-" + step}, nil
	}
	return s, func() (tried []string) {
		t.Helper()
		s.observes()
		if _, err := s.Create(t.Context(), s.while(), &s.state, s.parent, s, nil, render); err != nil {
			t.Fatal(err)
		}
		for len(asked) > 0 {
			tried = append(tried, <-asked)
		}
		slices.Sort(tried)
		return tried
	}, refuse
}

// mutations: a wait that stays the same, that has no bound, or that an edit does not end.
func TestChildren_WhatAPolicyRefusesIsTriedEverLater(t *testing.T) {
	s, pass, refuse := family(t, 2)
	refuse["p-c0"] = forbidden("p-c0", "denied by a policy")
	if tried := pass(); len(tried) != 2 {
		t.Fatalf("tried: %v", tried)
	}
	next := func() time.Duration {
		t.Helper()
		at := s.observes().RetryAt
		wait := at.Sub(s.clock.Now())
		s.clock.SetTime(at)
		if tried := pass(); !slices.Equal(tried, []string{"p-c0"}) {
			t.Errorf("tried: %v", tried)
		}
		return wait
	}
	var waits []time.Duration
	for range 8 {
		waits = append(waits, next())
	}
	want := []time.Duration{5, 10, 20, 40, 80, 160, 300, 300}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
	s.parent.Generation++ // the edit may be the mend
	if tried := pass(); !slices.Equal(tried, []string{"p-c0"}) {
		t.Errorf("after an edit: %v", tried)
	}
	if wait := next(); wait != createDelay {
		t.Errorf("after an edit it waits for %s", wait)
	}
	refuse["p-c0"] = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	next()
	if wait := next(); wait != createDelay {
		t.Errorf("what nobody refused waits for %s", wait)
	}
}

// mutations: NotYetCreated that names all, full that a creation does not end, or that a child which
// a policy refuses makes longer or shorter for others.
func TestChildren_AFullQuotaIsAskedForOneChildOfAll(t *testing.T) {
	s, pass, refuse := family(t, 5)
	refuse[""] = forbidden("p-c", "exceeded quota: runs")
	if len(pass()) == 0 {
		t.Fatal("none was tried")
	}
	var waits []time.Duration
	for range 3 {
		at := s.observes().RetryAt
		waits = append(waits, at.Sub(s.clock.Now()))
		if tried := pass(); len(tried) != 0 {
			t.Errorf("before it is time: %v", tried)
		}
		s.clock.SetTime(at)
		if tried := pass(); len(tried) != 1 {
			t.Errorf("tried: %v", tried)
		}
	}
	if diff := cmp.Diff([]time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second}, waits); diff != "" {
		t.Error(diff)
	}

	refuse["p-c0"] = forbidden("p-c0", "denied by a policy") // it is asked before the quota
	s.clock.SetTime(s.observes().RetryAt)
	if tried := pass(); !slices.Equal(tried, []string{"p-c0"}) {
		t.Errorf("tried: %v", tried)
	}
	delete(refuse, "")
	if tried := pass(); !slices.Equal(tried, []string{"p-c1"}) { // the word of a policy on one is none on the others
		t.Errorf("tried: %v", tried)
	}
	if tried := pass(); !slices.Equal(tried, []string{"p-c2", "p-c3", "p-c4"}) {
		t.Errorf("once there is room: %v", tried)
	}
}

// mutation: a log of each try, or none of another cause.
func TestChildren_ACauseIsInTheLogOnce(t *testing.T) {
	s, _, refuse := family(t, 3)
	var lines []string
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	render := func(_ context.Context, step string) (lifecycle.ChildToCreate, error) {
		return lifecycle.ChildToCreate{Step: step, Name: "p-" + step}, nil
	}
	logged := func(why string) int {
		t.Helper()
		lines = nil
		for _, name := range []string{"p-c0", "p-c1", "p-c2"} {
			refuse[name] = apierrors.NewForbidden(schema.GroupResource{Resource: "workflowruns"}, name, errors.New(why))
		}
		s.clock.SetTime(s.clock.Now().Add(time.Hour))
		if _, err := s.Create(ctx, s.while(), &s.state, s.parent, s, nil, render); err != nil {
			t.Fatal(err)
		}
		return strings.Count(strings.Join(lines, "\n"), "cannot be created")
	}
	for i, c := range []struct {
		why  string
		want int
	}{{"denied by a policy", 1}, {"denied by a policy", 0}, {"exceeded quota: runs", 1}, {"denied by a policy", 0}} {
		if got := logged(c.why); got != c.want {
			t.Errorf("%d, %s: %d lines, want %d", i, c.why, got, c.want)
		}
	}
}

// mutations: tell that keeps each cause, or none, or that takes another one at once.
func TestChildren_ACauseOfAnotherKindIsTold(t *testing.T) {
	leader := apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	other := apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	policy, quota := forbidden("p-c", "denied by a policy"), forbidden("p-c", "exceeded quota: runs")
	away := errors.New("connection refused")
	for name, c := range map[string]struct {
		first, then error
		after       time.Duration
		want        error
	}{
		"of another kind":         {leader, policy, textPause, policy},
		"within a minute":         {leader, policy, textPause - time.Second, leader},
		"of the same kind":        {leader, other, time.Hour, leader},
		"a quota after a policy":  {policy, quota, time.Hour, quota},
		"a policy after a quota":  {quota, policy, time.Hour, policy},
		"no answer of the server": {leader, away, time.Hour, away},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.refuse = c.first
			if seen, err := s.creates(); seen.Cause != c.first.Error() || err != nil {
				t.Fatalf("%+v, %v", seen, err)
			}
			s.clock.SetTime(start.Add(c.after))
			s.refuse = c.then
			if seen, err := s.creates(); seen.Cause != c.want.Error() || err != nil {
				t.Errorf("%+v, %v", seen, err)
			}
		})
	}
}

// What stays as it is for hours is asked for at the usual pace, whatever was refused before: the
// bound ends the wait for a refusal only.
//
// mutations: pace with an end that has passed, or without one that has not.
func TestChildren_WhatCannotBeComparedIsTriedAtAPace(t *testing.T) {
	there := run(func(r *v1alpha1.WorkflowRun) { r.Spec.WorkloadClass = "web" })
	policy := forbidden("p-c", "denied by a policy")
	blind := fake.NewClientBuilder().Build() // one that knows no runs
	for name, c := range map[string]struct {
		answer error
		live   client.Reader // nil: one that reads
		want   time.Duration
	}{
		"a webhook is away":    {answer: apierrors.NewInternalError(errors.New("webhook is away")), want: createDelay},
		"the server is busy":   {answer: apierrors.NewTooManyRequests("slow down", 60), want: time.Minute},
		"the server is silent": {answer: fmt.Errorf("%w within 1m5s", errSilent), want: createDelay},
		"the run is not read":  {answer: policy, live: blind, want: createDelay},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, there.DeepCopy())
			s.refuse = policy
			if seen, err := s.creates(); seen.State != lifecycle.ChildPostponed || err != nil {
				t.Fatalf("%+v, %v", seen, err)
			}
			s.refuse = c.answer
			if c.live != nil {
				s.Live = c.live
			}
			s.clock.SetTime(start.Add(compareBound))
			for range 3 {
				seen, err := s.creates()
				if seen.State != lifecycle.ChildPostponed || err != nil {
					t.Fatalf("%+v, %v", seen, err)
				}
				at := s.observes().RetryAt
				if wait := at.Sub(s.clock.Now()); wait != c.want {
					t.Fatalf("tried again in %s, want %s", wait, c.want)
				}
				s.clock.SetTime(at)
			}
		})
	}
	t.Run("refused all the time", func(t *testing.T) {
		s := newSite(t, there.DeepCopy())
		s.refuse = policy
		for range 20 {
			if seen, err := s.creates(); seen.State != lifecycle.ChildPostponed || err != nil {
				break
			}
			s.clock.SetTime(s.observes().RetryAt)
		}
		if took := s.clock.Now().Sub(start); took != compareBound {
			t.Errorf("it waited for %s", took)
		}
	})
}

// A creation that hangs is waited for by the pass that began it alone: the others have the lock of
// their run to do what is to be done.
//
// mutation: await that waits for what an earlier pass left.
func TestChildren_ACreationThatHangsKeepsOnePass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, creates, woken, tries := slow(t, 30*time.Second)
		began := time.Now()
		if _, err := creates(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != patience {
			t.Fatalf("the pass that began it waited for %s", took)
		}
		for range 3 {
			later := time.Now()
			if seen, err := creates(); seen.State != lifecycle.ChildUnknown || err != nil {
				t.Fatalf("%+v, %v", seen, err)
			}
			if took := time.Since(later); took > 0 {
				t.Errorf("a pass with nothing to create waited for %s", took)
			}
		}
		<-woken
		if took := time.Since(began); took != 30*time.Second {
			t.Errorf("woken after %s", took)
		}
		if seen := s.observes().Children["p-c"]; seen.State != lifecycle.ChildThere || tries.Load() != 1 {
			t.Errorf("%d tries, %+v", tries.Load(), seen)
		}
	})
}

// A creation that is under way frees a place when it is over, and wakes the parent: nobody waits
// for a place meanwhile.
//
// mutation: patience that does not look at what is under way.
func TestChildren_ACreationThatHangsKeepsNoPassForItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, shares.New(1, true, shares.KindMetrics{}), 2, every(30*time.Second))
		d.pass(t)
		for range 3 {
			began := time.Now()
			if d.pass(t); time.Since(began) > briefly {
				t.Errorf("a pass waited for %s", time.Since(began))
			}
			time.Sleep(time.Second)
		}
		d.until(t, 2)
	})
}

// mutations: a full quota of which only the first child is tried; one of which all are that can be
// rendered.
func TestChildren_AFullQuotaIsNotAskedForWhatCannotBeRendered(t *testing.T) {
	s, pass, refuse := family(t, 4)
	refuse[""] = forbidden("p-c", "exceeded quota: runs")
	if len(pass()) == 0 {
		t.Fatal("none was tried")
	}
	var tried []string
	s.answer = func(_ context.Context, o client.Object) error {
		tried = append(tried, o.GetName()) // one at a time: the race detector would say so
		return refuse[""]
	}
	away := errors.New("the object store is away")
	render := func(_ context.Context, step string) (lifecycle.ChildToCreate, error) {
		if step == "c0" {
			return lifecycle.ChildToCreate{}, away
		}
		return lifecycle.ChildToCreate{Step: step, Name: "p-" + step}, nil
	}
	for _, full := range []error{refuse[""], nil} {
		tried, refuse[""] = nil, full
		s.clock.SetTime(s.observes().RetryAt)
		if _, err := s.Create(t.Context(), s.while(), &s.state, s.parent, s, nil, render); !errors.Is(err, away) {
			t.Fatal(err)
		}
		if !slices.Equal(tried, []string{"p-c1"}) {
			t.Fatalf("refused with %v: tried %v", full, tried)
		}
	}
}

// Others that begin to wait are no reason to keep a cause that is none any more.
//
// mutations: tell that begins the pause anew with each child that is put off; one without a pause.
func TestChildren_ANewCauseIsToldThoughOthersBeginToWait(t *testing.T) {
	leader := apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	policy := forbidden("p-c", "denied by a policy")
	s, pass, refuse := family(t, 5)
	refuse[""] = leader
	all := s.parent.Status.Steps
	next := func(children int, after time.Duration) lifecycle.Child {
		t.Helper()
		s.parent.Status.Steps = all[:children]
		s.clock.SetTime(start.Add(after))
		pass()
		return s.observes().Children["p-c0"]
	}
	if seen := next(1, 0); seen.Cause != leader.Error() {
		t.Fatalf("%+v", seen)
	}
	for i := range 3 {
		next(i+2, time.Duration(i+1)*textPause/2)
	}
	refuse["p-c0"] = policy
	if seen := next(4, 2*textPause); seen.Cause != policy.Error() {
		t.Errorf("another cause, half a minute after another child began to wait: %+v", seen)
	}
	refuse["p-c0"] = leader
	if seen := next(5, 3*textPause-time.Second); seen.Cause != policy.Error() {
		t.Errorf("within a minute of that: %+v", seen)
	}
}

// mutations: edited that looks at the spec alone, or that takes each look for an edit.
func TestChildren_AnAnnotationIsAnEdit(t *testing.T) {
	s, pass, refuse := family(t, 1)
	refuse[""] = forbidden("p-c0", "denied by a policy")
	pass()
	if tried := pass(); len(tried) != 0 {
		t.Fatalf("tried with no edit: %v", tried)
	}
	for _, value := range []string{"1", "2"} {
		s.parent = s.parent.DeepCopy() // as the watch has it
		s.parent.Annotations["retry"] = value
		if tried := pass(); !slices.Equal(tried, []string{"p-c0"}) {
			t.Errorf("after the annotation %s: %v", value, tried)
		}
		if tried := pass(); len(tried) != 0 {
			t.Errorf("tried again: %v", tried)
		}
	}
	s.parent = s.parent.DeepCopy()
	s.parent.Annotations["syncopate.dev/rebuilt"] = "x"
	if tried := pass(); len(tried) != 0 {
		t.Errorf("tried for what the operator marks: %v", tried)
	}
}
