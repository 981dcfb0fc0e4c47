// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// stepFacts tells of the steps that began and did not end, and of those which only lack a place.
func (v *viewer) stepFacts() {
	var facts []Fact
	var placeless []string
	for i := range v.all {
		s := &v.all[i]
		if f, ok := v.stepFact(s); ok {
			facts = append(facts, f)
		}
		if v.placeless(s) {
			placeless = append(placeless, s.spec.Name)
		}
	}
	for _, f := range facts[:min(len(facts), maxStepFacts)] {
		v.add(f)
	}
	if n := len(facts) - maxStepFacts; n > 0 {
		v.add(Fact{About: "steps", Text: fmt.Sprintf("and %d more; kubectl syncopate tree shows all", n)})
	}
	if len(placeless) > 0 {
		v.add(Fact{About: "steps", Text: names(placeless) + ": " + forPlace(v.run)})
	}
}

// placeless says whether nothing but a place among the parallel steps is missing for a
// step to begin.
func (v *viewer) placeless(s *step) bool {
	if s.status.Phase != v1alpha1.StepPending || s.status.LockWait != nil || !s.wantsPlace() || !v.admitted() || suspended(v.run) {
		return false
	}
	return len(s.unknown)+len(s.waitsFor(v.all)) == 0 && (!s.finally || v.st.Ending != nil)
}

func (v *viewer) stepFact(s *step) (Fact, bool) {
	f := Fact{About: "step " + s.spec.Name}
	if text := s.asideText(); text != "" {
		f.Text = fmt.Sprintf("%s (attempt %d)", text, s.status.Attempt)
		f.Until, f.Then = s.timeout()
		return f, true
	}
	switch s.status.Phase {
	case v1alpha1.StepPending:
		if w := s.status.LockWait; w != nil {
			f.Text, f.Since = "waits for lock "+w.Lock, utc(w.StartedAt.Time)
		}
	case v1alpha1.StepDispatched:
		v.dispatchedFact(s, &f)
	case v1alpha1.StepRunning:
		v.runningFact(s, &f)
	case v1alpha1.StepBackingOff:
		f.Text = join(fmt.Sprintf("backs off after attempt %d", s.status.Attempt), errorText(s.status.Error, maxTextChars/2), s.before())
		nextAttemptFact(v, s, &f)
	case v1alpha1.StepWaiting:
		v.approvalFact(s, &f)
	default:
		v.waitFact(s, &f)
	}
	return f, f.Text != ""
}

// nextAttemptFact names no moment that is over to a step that waits for a place.
func nextAttemptFact(v *viewer, s *step, f *Fact) {
	at := microTime(s.status.NextAttemptAt)
	switch {
	case suspended(v.run):
		f.Text = join(f.Text, heldBack(v.run))
		return
	case s.lacksPlace(v.run, v.all):
		f.Text = join(f.Text, forPlace(v.run))
		if at != nil && !at.After(v.now) {
			return
		}
	}
	f.Until, f.Then = at, "next attempt"
}

// dispatchedFact claims nothing of the worker while nothing can be known of it.
func (v *viewer) dispatchedFact(s *step, f *Fact) {
	f.Text, f.Since = fmt.Sprintf("waits for a worker of topic %s (attempt %d)", s.topic(), s.status.Attempt), microTime(s.status.DispatchedAt)
	at := s.status.DispatchedAt
	switch {
	case v.noNATS():
		f.Text = fmt.Sprintf("dispatched to topic %s (attempt %d); whether a worker has it is not known while NATS does not answer", s.topic(), s.status.Attempt)
	case at != nil && v.now.Sub(at.Time) > patience:
		v.advise("if a worker says that it answered: a result of an attempt that is not there, or with a wrong token, is put aside; " +
			"kubectl syncopate dead-letters list --run NAME shows it, the latter with --reason rejected")
	}
	f.Until, f.Then = s.timeout()
}

func (v *viewer) runningFact(s *step, f *Fact) {
	if s.status.ChildRun != nil {
		v.childFact(s, f)
		return
	}
	f.Since = microTime(s.status.StartedAt)
	if n := s.items(); n != nil {
		f.Text = join(n.text(), errorText(s.status.Error, maxTextChars/2))
		return
	}
	f.Text = fmt.Sprintf("runs (attempt %d)", s.status.Attempt)
	if v.noNATS() {
		f.Text = fmt.Sprintf("began (attempt %d); whether it is over is not known while NATS does not answer", s.status.Attempt)
	}
	f.Until, f.Then = s.timeout()
}
