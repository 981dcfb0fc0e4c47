// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// crowd decides about a run while NATS is full, or does not answer; it says whether there was
// something to persist.
func (o *outage) crowd(full, down time.Time) bool {
	in := letIn(Input{Run: o.run, Now: o.at, Lock: held(1), NATSDown: down, NoRoom: full})
	out := Decide(in)
	if out.Changed {
		o.run.Status = persisted(o.t, &out.Status)
	}
	return out.Changed
}

// mutation: lacksRoom that is false, a roomText that does not keep the moment, or lacksRoom before
// lacksNATS makes this fail.
func TestAFullNATSIsToldOnce(t *testing.T) {
	o := &outage{t, newRun(newStep("a"), newStep("b", delay(3600))), epoch}
	o.crowd(time.Time{}, time.Time{})
	o.at = epoch.Add(10 * time.Second)
	if !o.crowd(epoch.Add(7*time.Second), time.Time{}) {
		t.Error("it is not told")
	}
	reason, message := o.said()
	want := "NATS has no room since 2026-11-20T10:00:07Z: jobs and outputs wait; 0 of 2 steps finished; " +
		"a waits for a worker since 2026-11-20T10:00:00Z (attempt 1); b is delayed until 2026-11-20T11:00:00Z"
	if reason != v1alpha1.ReasonWaitingForRoom || message != want {
		t.Errorf("%s: %s", reason, message)
	}
	if o.crowd(epoch.Add(9*time.Second), time.Time{}) {
		t.Error("it is told again, though another process only found it out later")
	}
	o.crowd(epoch.Add(7*time.Second), epoch.Add(8*time.Second))
	if reason, message := o.said(); reason != v1alpha1.ReasonWaitingForNATS || strings.Contains(message, "no room") {
		t.Errorf("in an outage %s: %s", reason, message)
	}
	if !o.crowd(time.Time{}, time.Time{}) {
		t.Error("its end is not told")
	}
	if reason, message := o.said(); reason != v1alpha1.ReasonRunning || strings.Contains(message, "NATS") {
		t.Errorf("afterwards %s: %s", reason, message)
	}
}

// mutation: roomText without Lack, or that keeps words of another one; NoRoomSaid that does
// not read it, or not where the run is suspended.
func TestWhatHasNoRoomIsToldInItsOwnWords(t *testing.T) {
	for lack, want := range map[Lack]string{
		LackShare: "The share of NATS for jobs of one run or namespace is used up since ",
		LackTopic: "NATS has no consumer for another topic since ",
	} {
		o := &outage{t, newRun(newStep("a")), epoch}
		since := epoch.Add(7 * time.Second)
		decide := func(lack Lack) Decision {
			return Decide(letIn(Input{Run: o.run, Now: o.at, Lock: held(1), NoRoom: since, Lack: lack}))
		}
		read := func(when string) {
			t.Helper()
			if at, got := report.NoRoomSaid(o.run); !at.Equal(since) || got != lack {
				t.Errorf("%s it is read as since %s, lack %d, want %d", when, at, got, lack)
			}
		}
		out := decide(lack)
		o.run.Status = persisted(t, &out.Status)
		if reason, message := o.said(); reason != v1alpha1.ReasonWaitingForRoom || !strings.HasPrefix(message, want) {
			t.Errorf("%s: %s", reason, message)
		}
		read("at first")
		if out := decide(LackNATS); !strings.HasPrefix(status.Condition(&out.Status, v1alpha1.ConditionSucceeded).Message, "NATS has no room since 2026-11-20T10:00:07Z: ") {
			t.Error("what it lacks is something else, and it goes on with the words of before")
		}
		o.run.Spec.Suspend = true
		out = decide(lack)
		o.run.Status = persisted(t, &out.Status)
		read("suspended")
	}
}

// mutations: Published that leaves out nothing of a run whose jobs find no room, or also what a
// worker has begun.
func TestWhatIsToBeInNATSWhileThereIsNoRoom(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"), newStep("all", forEach("${[1, 2, 3]}", 3, v1alpha1.Collect)))
	o := &outage{t, run, epoch}
	o.crowd(time.Time{}, time.Time{})
	if all, published := Unanswered(run), Published(run); len(all) != 5 || !slices.Equal(all, published) {
		t.Fatalf("with room %v, of %v", published, all)
	}
	run.Status.Steps[1].Phase, run.Status.Steps[1].StartedAt = v1alpha1.StepRunning, run.Status.Steps[1].DispatchedAt
	o.crowd(epoch, time.Time{})
	if published := Published(run); !slices.Equal(published, []protocol.JobID{job("b", 1)}) {
		t.Errorf("without room %v", published)
	}
}

// mutation: lacksRoom that does not ask for what is in flight makes this fail.
func TestOnlyWhatIsToBeStoredWaitsForRoom(t *testing.T) {
	o := &outage{t, newRun(newStep("a", delay(3600))), epoch}
	o.crowd(epoch, time.Time{})
	if reason, message := o.said(); reason == v1alpha1.ReasonWaitingForRoom || strings.Contains(message, "NATS") {
		t.Errorf("a delay: %s: %s", reason, message)
	}
}

// mutation: lacksRoom without the outputs of the run makes this fail.
func TestOutputsOfARunWaitForRoom(t *testing.T) {
	run := newRun(newStep("a"))
	run.Spec.Outputs = raw(`{"n":"${steps.a.output}"}`)
	o := &outage{t, run, epoch}
	o.crowd(time.Time{}, time.Time{})
	a := &run.Status.Steps[0]
	a.Phase, a.CompletedAt = v1alpha1.StepSucceeded, a.DispatchedAt
	a.OutputRef = reference(protocol.NewOutputRef(job("a", 1), []byte(text(100<<10))))
	o.crowd(epoch, time.Time{})
	if reason, message := o.said(); reason != v1alpha1.ReasonWaitingForRoom || !strings.Contains(message, "its outputs wait to be read or stored; NATS has no room since") {
		t.Errorf("%s: %s", reason, message)
	}
}

// mutation: NoRoomSaid of another reason, or that does not read the moment, makes this fail.
func TestTheMomentOfAFullNATSIsReadFromTheRun(t *testing.T) {
	o := &outage{t, newRun(newStep("a")), epoch}
	said := func(want time.Time) {
		t.Helper()
		if got, lack := report.NoRoomSaid(o.run); lack != LackNATS || !got.Equal(want) {
			t.Errorf("%s: %s, want %s", o.at, got, want)
		}
	}
	said(time.Time{})
	o.crowd(time.Time{}, time.Time{})
	said(time.Time{})
	o.crowd(epoch.Add(7*time.Second), time.Time{})
	said(epoch.Add(7 * time.Second))
	status.Condition(o.run.Status, v1alpha1.ConditionSucceeded).Message = "NATS has no room since yesterday"
	said(time.Time{})
	o.run.Status.Conditions = nil
	said(time.Time{})
}

// The job of an attempt that nobody answered may never have got to NATS.
//
// mutations: TimedOut without noRoomText, or with it of an attempt that began; timeOut or
// timeOutItems that give it no input.
func TestATimeOutForWantOfAnAnswerSaysWhatHadNoRoom(t *testing.T) {
	since := epoch.Add(7 * time.Second)
	for lack, want := range map[Lack]string{
		LackNATS:  "; since 2026-11-20T10:00:07Z NATS had no room for jobs or outputs of the run: the job may not have been published",
		LackShare: "; since 2026-11-20T10:00:07Z the share of NATS for jobs of the run or its namespace was used up: the job may not have been published",
		LackTopic: "; since 2026-11-20T10:00:07Z NATS had no consumer for a topic of the run: the job may not have been published",
	} {
		run := newRun(newStep("a"), newStep("began"), newStep("all", forEach("${[1]}", 1, v1alpha1.FailStep)))
		advance(t, run, epoch)
		run.Status.Steps[1].Phase, run.Status.Steps[1].StartedAt = v1alpha1.StepRunning, run.Status.Steps[1].DispatchedAt
		errorOf := func(step int, since time.Time) string {
			t.Helper()
			out := Decide(letIn(Input{Run: run, Now: epoch.Add(3 * time.Hour), Lock: held(1), NoRoom: since, Lack: lack}))
			if out.Status.Steps[step].Error == nil {
				t.Fatalf("step %d has no error: %+v", step, out.Status.Steps[step])
			}
			return out.Status.Steps[step].Error.Message
		}
		for _, step := range []int{0, 2} {
			if got := errorOf(step, since); !strings.HasSuffix(got, want) {
				t.Errorf("step %d: %s", step, got)
			}
		}
		if got := errorOf(1, since); strings.Contains(got, "NATS") {
			t.Errorf("of an attempt that began: %s", got)
		}
		if got := errorOf(0, time.Time{}); strings.Contains(got, "NATS") {
			t.Errorf("while there is room: %s", got)
		}
	}
}
