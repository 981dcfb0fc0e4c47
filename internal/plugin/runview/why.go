// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

const (
	maxStepFacts = 10
	// patience is how late the operator may be before that is worth a word.
	patience = 30 * time.Second
)

// Answer says what a run waits for, or how it ended.
type Answer struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Phase     v1alpha1.RunPhase `json:"phase"`
	Ended     bool              `json:"ended"`
	Reason    string            `json:"reason"`          // of the condition Succeeded
	Summary   string            `json:"summary"`         // goes on after "the run"
	Since     *time.Time        `json:"since,omitempty"` // absent: not known
	Facts     []Fact            `json:"facts"`
	Next      *Moment           `json:"next,omitempty"`  // absent: nothing will happen by time alone
	Place     *Place            `json:"place,omitempty"` // in the tenant's line, as it is now
	Lock      *RunLock          `json:"lock,omitempty"`  // the run lock as Redis has it now; absent: it was not asked
	Locks     []Lock            `json:"locks,omitempty"` // locks across runs that it waits for, with who has them

	retried string // how often a lock that cannot be taken is tried again
}

// Stands adds the place of a run that waits to be admitted; nil: it has none.
func (a *Answer) Stands(p *Place) {
	if p == nil {
		return
	}
	a.Place = p
	a.Facts = append(a.Facts, Fact{About: "line", Text: Printable(p.text(), maxTextChars)})
}

// Alone says that nothing is known of the other runs that a run waits for.
func (a *Answer) Alone(why error) {
	a.beforeHelp(Fact{About: "others", Text: Printable("the other runs under way could not be read: "+why.Error(), maxTextChars)})
}

// Fact is one thing that has to do with it.
type Fact struct {
	About string     `json:"about"` // a step's name with "step ", or what it is about
	Text  string     `json:"text"`
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"`
	Then  string     `json:"then,omitempty"` // what happens then
}

// Moment is when the operator looks at the run again, with no new fact.
type Moment struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// Why says what blocks a run. policies are all LockPolicies; nil: not known. children are its child
// runs, as far as they are known.
func Why(run *v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy, now time.Time, children ...v1alpha1.WorkflowRun) Answer {
	v := viewer{run: run, st: statusOf(run), all: stepsOf(run), policies: policies, now: now, family: familyOf(children)}
	v.answer = Answer{Namespace: run.Namespace, Name: run.Name, Phase: v.st.Phase, Ended: v.st.CompletedAt != nil, Facts: []Fact{}}
	if v.answer.Phase == "" {
		v.answer.Phase = v1alpha1.RunPending
	}
	v.summary()
	if v.answer.Ended {
		v.ended()
	} else {
		v.underWay()
	}
	v.deadLetters()
	v.help()
	v.answer.Next = v.next()
	return v.answer
}

// waitsForLocks is since when steps wait for locks across runs; nil: none does.
func (v *viewer) waitsForLocks() (since *time.Time) {
	for i := range v.st.Steps {
		if w := lockWaitOf(&v.st.Steps[i]); w != nil && (since == nil || w.StartedAt.Time.Before(*since)) {
			since = utc(w.StartedAt.Time)
		}
	}
	return since
}

func (v *viewer) summary() {
	a, c := &v.answer, v.condition(v1alpha1.ConditionSucceeded)
	if c == nil {
		a.Reason, a.Summary, a.Since = v1alpha1.ReasonPending, "was not looked at by the operator yet", utc(v.run.CreationTimestamp.Time)
		return
	}
	a.Reason, a.Summary = c.Reason, v.means(c)
	if v.suspendedByParent() {
		a.Summary, v.advice = "is suspended with its parent run "+v.st.Parent.Name, []string{"to resume: resume run " + v.st.Parent.Name}
	}
	if a.Ended {
		a.Summary += ": " + c.Message
		a.Since = secondTime(v.st.CompletedAt)
	} else {
		v.waits()
	}
	a.Summary = Printable(a.Summary, maxTextChars)
}

// waits tells what a run under way waits for, and since when.
func (v *viewer) waits() {
	a := &v.answer
	switch a.Reason {
	case v1alpha1.ReasonPending, v1alpha1.ReasonQueued:
		queue(v)
	case v1alpha1.ReasonWaitingForLock:
		if since := v.waitsForLocks(); since != nil {
			a.Summary, a.Since = "waits for locks across runs", since
			return
		}
		a.Since, a.retried = v.transition(v1alpha1.ConditionRunLockRenewed), v.retried()
	case v1alpha1.ReasonRunning:
		a.Summary, a.Since = v.running()
	case v1alpha1.ReasonWaitingForWorkers:
		_, a.Since = v.running()
		a.Summary += ": " + v.condition(v1alpha1.ConditionSucceeded).Message
	case v1alpha1.ReasonWaitingForNATS, v1alpha1.ReasonWaitingForRoom:
		a.Summary += ": " + v.condition(v1alpha1.ConditionSucceeded).Message
	case v1alpha1.ReasonFinalizing:
		if v.st.Ending != nil {
			a.Since = microTime(&v.st.Ending.AnnouncedAt)
		}
	default:
		if k := waits.For(a.Reason); k != nil {
			a.Summary, a.Since = v.waiting(a.Summary, k.Phase)
		}
	}
}

// queue tells what a run waits for that is not admitted.
func queue(v *viewer) {
	v.answer.Since = v.queuedAt()
	if w := lockWait(v.st); w != nil {
		v.answer.Summary, v.answer.Since = "waits for locks across runs", utc(w.StartedAt.Time)
	}
}

// running tells work from waiting for workers: the reason is Running for both.
func (v *viewer) running() (string, *time.Time) {
	var working, waiting []string
	var since *time.Time
	for i := range v.all {
		s := &v.all[i]
		if s.aside() {
			continue
		}
		switch s.status.Phase {
		case v1alpha1.StepRunning:
			if n := s.items(); n != nil && n.Running == 0 && n.Dispatched > 0 {
				waiting = append(waiting, s.spec.Name)
				since = earlier(since, s.waitsSince())
				continue
			}
			working = append(working, s.spec.Name)
		case v1alpha1.StepDispatched:
			waiting = append(waiting, s.spec.Name)
			since = earlier(since, microTime(s.status.DispatchedAt))
		default: // it has nothing to do with workers
		}
	}
	switch {
	case len(working) > 0:
		return "is being worked on: " + names(working), nil
	case len(waiting) > 0:
		return "waits for workers: " + names(waiting), since
	default:
		return "is under way", nil
	}
}

// waiting names the steps of a phase, and says since when the first of them waits.
func (v *viewer) waiting(text string, phase v1alpha1.StepPhase) (string, *time.Time) {
	var steps []string
	var since *time.Time
	for i := range v.all {
		if s := &v.all[i]; s.status.Phase == phase {
			steps = append(steps, s.spec.Name)
			since = earlier(since, microTime(s.status.StartedAt))
		}
	}
	if len(steps) > 0 {
		text += ": " + names(steps)
	}
	return text, since
}

// underWay collects the facts of a run that did not end.
func (v *viewer) underWay() {
	v.newer()
	v.lag()
	v.wishes()
	v.parent()
	v.ending()
	v.admission()
	v.lockTrouble()
	v.stepFacts()
	v.policyFacts()
	v.lock()
	v.deadlines()
}

// newer tells that operators as old as this code leave the run alone.
func (v *viewer) newer() {
	if version := v.run.NeedsNewer(); version > 0 {
		v.add(Fact{About: "operator", Text: fmt.Sprintf("a newer operator wrote the run: one that does not know version %d of its status leaves it alone", version)})
		v.advise("bring the newer operator back, or cancel the run and let it end before you go back to an older one (event NeedsNewerOperator)")
	}
}

// lag tells that the run may be ahead of what status says.
func (v *viewer) lag() {
	c := v.st.Checkpoint
	if c == nil || c.Mode != v1alpha1.CheckpointCoalesced {
		return
	}
	text := "status may lag behind: steps are dispatched before it is written"
	if c.LagMillis > 0 {
		text += fmt.Sprintf("; the last write had waited %d ms", c.LagMillis)
	}
	v.add(Fact{About: "checkpoint", Text: text})
}

// wishes are changes which the operator has not answered yet.
func (v *viewer) wishes() {
	if t := v.run.DeletionTimestamp; t != nil {
		v.add(Fact{About: "deletion", Text: "the run is being deleted", Since: secondTime(t)})
	}
	// Once the finally steps run, Cancel has nothing left to change.
	if wish := v.run.Spec.Shutdown; wish != "" && (v.st.Ending == nil || wish != v1alpha1.ShutdownCancel) {
		v.add(Fact{About: "shutdown", Text: fmt.Sprintf("spec.shutdown is %s, and not carried out yet", v.run.Spec.Shutdown)})
	}
	if v.run.Spec.Suspend && v.answer.Reason != v1alpha1.ReasonSuspended {
		v.add(Fact{About: "suspend", Text: "spec.suspend is set: no new jobs"})
	}
	if seen := v.st.ObservedGeneration; seen > 0 && seen < v.run.Generation {
		v.add(Fact{About: "spec", Text: fmt.Sprintf("generation %d was not looked at yet; status is about %d", v.run.Generation, seen)})
	}
}

func (v *viewer) admission() {
	c := v.condition(v1alpha1.ConditionAdmitted)
	if c == nil || c.Status == metav1.ConditionTrue {
		return
	}
	if text := v.means(c); text != "" {
		f := Fact{About: "admission", Text: text, Since: v.queuedAt()}
		if c.Status == metav1.ConditionFalse {
			f.Since = secondTime(&c.LastTransitionTime)
		}
		switch c.Reason {
		case v1alpha1.ReasonAdmissionBusy, v1alpha1.ReasonAdmissionUnavailable, v1alpha1.ReasonWaitingForPolicy:
			f.Text += "; " + c.Message
		}
		v.add(f)
	}
}

func (v *viewer) lockTrouble() {
	for _, kind := range []string{v1alpha1.ConditionRunLockRenewed, v1alpha1.ConditionRunLockAbandoned} {
		c := v.condition(kind)
		if c == nil {
			continue
		}
		text := v.means(c)
		if text == "" {
			continue
		}
		if _, known := meaningOf(kind, c.Reason); known && kind == v1alpha1.ConditionRunLockRenewed {
			text = c.Reason + ": " + join(text, c.Message)
		} else if known {
			text = c.Reason + ": " + join(text, v.takeOver())
		}
		v.add(Fact{About: "lock", Text: text, Since: secondTime(&c.LastTransitionTime)})
	}
}

// ended tells of the steps that failed and of what becomes of the object.
func (v *viewer) ended() {
	for i := range v.all {
		if s := &v.all[i]; s.status.Phase == v1alpha1.StepFailed {
			v.add(Fact{About: "step " + s.spec.Name, Text: join(
				s.failed(), errorText(s.status.Error, maxTextChars/2), s.before(), s.shrug())})
		}
	}
	if from := cmp.Or(v.st.StartedAt, v.queueStart()); from != nil {
		v.add(Fact{About: "took", Text: spanOfSeconds(v.st.CompletedAt.Sub(from.Time))})
	}
}

func (v *viewer) queueStart() *metav1.Time {
	if v.st.Admission == nil {
		return nil
	}
	return v.st.Admission.QueuedAt
}
