// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// Kind is OpenTelemetry's kind of a span.
type Kind int

// The kinds that are used, by their numbers in OTLP.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
	Producer Kind = 4
)

// Span is a span that is over.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID // Parent is zero for the first span of a trace
	Name       string
	Kind       Kind
	Start, End time.Time
	Failed     bool
	Problem    string // why it failed
	Attributes []Attribute
}

// Attribute says something about a span: a text, or a number if the text is empty.
type Attribute struct {
	Key, Text string
	Number    int64
}

// Ended are the spans that are over by a write which made a run what it is now. was is the run
// before; nil: not known, and all spans are given that are over.
func Ended(was, now *v1alpha1.WorkflowRun, percent int) []Span {
	m := maker{run: now, at: Of(now, percent)}
	if now.Status == nil || !m.at.Sampled {
		return nil
	}
	before := statusBefore(was, now)
	if queueOver(now.Status) && !queueOver(before) {
		m.queue()
	}
	m.steps(before.Steps)
	if now.Status.CompletedAt != nil && before.CompletedAt == nil {
		m.whole()
	}
	return m.spans
}

func statusBefore(was, now *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRunStatus {
	if was == nil || was.UID != now.UID || was.Status == nil {
		return &v1alpha1.WorkflowRunStatus{}
	}
	return was.Status
}

// maker makes the spans of one run.
type maker struct {
	run   *v1alpha1.WorkflowRun
	at    Context // of the run's own span
	specs map[string]*v1alpha1.Step
	spans []Span
}

// maxText is how many bytes a text of a span has. Users write some, as the slot: all of an
// annotation would take the room in the queue from spans of others.
const maxText = 256

// add adds a span of the run. One that seems to end before it begins, because other clocks measured
// the two, takes no time.
func (m *maker) add(s Span) {
	s.Trace = m.at.Trace
	if s.End.Before(s.Start) {
		s.End = s.Start
	}
	s.Attributes = append(s.Attributes, Attribute{Key: "syncopate.run.uid", Text: string(m.run.UID)})
	s.Name, s.Problem = bounds.CutBytes(s.Name, maxText), bounds.CutBytes(s.Problem, maxText)
	for i := range s.Attributes {
		s.Attributes[i].Text = bounds.CutBytes(s.Attributes[i].Text, maxText)
	}
	m.spans = append(m.spans, s)
}

func queueOver(st *v1alpha1.WorkflowRunStatus) bool {
	return st.Admission != nil && st.Admission.QueuedAt != nil && (st.Admission.AdmittedAt != nil || st.CompletedAt != nil)
}

func (m *maker) queue() {
	a := m.run.Status.Admission
	end := a.AdmittedAt
	if end == nil {
		end = m.run.Status.CompletedAt
	}
	m.add(Span{
		ID: spanID(m.run, "", 0, kindQueue), Parent: m.at.Span, Name: "wait for admission", Kind: Internal, Start: a.QueuedAt.Time, End: end.Time,
		Failed: a.AdmittedAt == nil,
	})
}

// whole adds the span of the run, and that of the schedule which started it.
func (m *maker) whole() {
	st, run := m.run.Status, m.run
	given, _ := Parse(run.Annotations[v1alpha1.AnnotationTraceparent])
	start, end := m.extent()
	s := Span{
		ID: m.at.Span, Parent: given.Span, Name: "run", Kind: Server, Start: start, End: end,
		Failed: st.Phase != v1alpha1.RunSucceeded,
		Attributes: []Attribute{
			{Key: "k8s.namespace.name", Text: run.Namespace}, {Key: "syncopate.run.name", Text: run.Name}, {Key: "syncopate.run.phase", Text: string(st.Phase)},
		},
	}
	if s.Failed {
		s.Problem = status.ReasonOf(st, v1alpha1.ConditionSucceeded)
	}
	if st.Fence != nil {
		s.Attributes = append(s.Attributes, Attribute{Key: "syncopate.fence", Number: *st.Fence})
	}
	if st.Policy != nil {
		s.Attributes = append(s.Attributes, Attribute{Key: "syncopate.policy", Text: st.Policy.Name})
	}
	if st.Tenant != "" {
		s.Attributes = append(s.Attributes, Attribute{Key: "syncopate.tenant", Text: st.Tenant})
	}
	if name := run.Labels[v1alpha1.LabelSchedule]; name != "" {
		s.Parent = m.schedule(name, given.Span)
	}
	m.add(s)
}

// precision is by how much a time that is stored in whole seconds may be too early.
const precision = time.Second - time.Microsecond

// extent is when a run was created and ended, both of which are stored in whole seconds; its steps
// say where in them.
func (m *maker) extent() (start, end time.Time) {
	created, completed := m.run.CreationTimestamp.Time, m.run.Status.CompletedAt.Time
	start, end = created.Add(precision), completed
	known := false
	for i := range m.run.Status.Steps {
		s := &m.run.Status.Steps[i]
		for _, t := range []*metav1.MicroTime{s.DispatchedAt, s.StartedAt, s.CompletedAt} {
			if t == nil {
				continue
			}
			known = true
			if t.Time.Before(start) {
				start = t.Time
			}
			if t.Time.After(end) && t.Time.Sub(completed) <= precision {
				end = t.Time
			}
		}
	}
	if !known || start.Before(created) {
		start = created
	}
	return start, end
}

// schedule adds the span of a slot, and gives its id; that of the parent if there is no slot.
func (m *maker) schedule(name string, parent SpanID) SpanID {
	slot, created := m.run.Annotations[v1alpha1.AnnotationSlot], m.run.CreationTimestamp.Time
	start, err := time.Parse(time.RFC3339, slot)
	if err != nil {
		return parent
	}
	if start.After(created) {
		start = created // nobody but its users says when the slot was
	}
	id := spanID(m.run, "", 0, kindSchedule)
	m.add(Span{
		ID: id, Parent: parent, Name: "schedule " + name, Kind: Internal, Start: start, End: created,
		Attributes: []Attribute{{Key: "syncopate.slot", Text: slot}},
	})
	return id
}

func (m *maker) steps(before []v1alpha1.StepStatus) {
	known := status.Index(before)
	for i := range m.run.Status.Steps {
		var old *v1alpha1.StepStatus
		if k, ok := known[m.run.Status.Steps[i].Name]; ok {
			old = &before[k]
		}
		m.step(old, &m.run.Status.Steps[i])
	}
}

// step adds what is over of a step, and was not when the step was as old says; nil: not known.
func (m *maker) step(old, s *v1alpha1.StepStatus) {
	if !ofThisRun(s) || (old != nil && asItWas(old, s)) {
		return
	}
	if old == nil || begun(old) == nil {
		m.locks(s)
	}
	switch {
	case s.Phase == v1alpha1.StepBackingOff && s.NextAttemptAt != nil:
		m.attempt(s, s.NextAttemptAt)
	case status.Ended(s.Phase) && s.CompletedAt != nil:
		m.part(old, s)
		m.wholeStep(s)
	}
}

// asItWas says that nothing of a step can have become over.
func asItWas(old, s *v1alpha1.StepStatus) bool {
	return status.Ended(old.Phase) || (old.Phase == s.Phase && old.Attempt == s.Attempt)
}

// locks adds the span of a step's wait for its locks, which is over with its first attempt.
func (m *maker) locks(s *v1alpha1.StepStatus) {
	spec, end := m.spec(s.Name), begun(s)
	if spec == nil || len(spec.Locks) == 0 || end == nil || s.Attempt > 1 {
		return
	}
	m.add(Span{
		ID: spanID(m.run, s.Name, 0, kindLocks), Parent: spanID(m.run, s.Name, 0, kindStep), Name: "wait for locks", Kind: Internal, Start: m.ready(s), End: end.Time,
		Attributes: []Attribute{{Key: "syncopate.step", Text: s.Name}},
	})
}

// begun is when the last attempt of a step began, or what else it does; nil: it has not begun.
func begun(s *v1alpha1.StepStatus) *metav1.MicroTime {
	if s.DispatchedAt != nil {
		return s.DispatchedAt
	}
	return s.StartedAt
}

// ofThisRun says whether the run did anything of the step.
func ofThisRun(s *v1alpha1.StepStatus) bool {
	began := s.DispatchedAt != nil || s.StartedAt != nil || s.ChildRun != nil
	return s.DoneBy == "" && (began || s.Phase != v1alpha1.StepCancelled)
}

// part adds the span of what a step did last.
func (m *maker) part(old, s *v1alpha1.StepStatus) {
	one, k := m.about(s)
	if k == kindAttempt {
		if old == nil || old.Phase != v1alpha1.StepBackingOff || old.Attempt != s.Attempt { // else it was over before
			m.attempt(s, s.CompletedAt)
		}
		return
	}
	if s.StartedAt == nil {
		return
	}
	one.ID, one.Parent = spanID(m.run, s.Name, 0, k), spanID(m.run, s.Name, 0, kindStep)
	one.Start, one.End, one.Failed = s.StartedAt.Time, s.CompletedAt.Time, s.Phase != v1alpha1.StepSucceeded
	m.add(one)
}

// about says what kind of work a step had, and what is to be said of it.
func (m *maker) about(s *v1alpha1.StepStatus) (Span, kind) {
	spec := m.spec(s.Name)
	switch {
	case s.ForEach != nil:
		return Span{Name: "items", Kind: Producer, Attributes: []Attribute{
			{Key: "syncopate.items", Number: int64(s.ForEach.Total)},
			{Key: "syncopate.items.succeeded", Number: int64(s.ForEach.Succeeded)},
			{Key: "syncopate.items.failed", Number: int64(s.ForEach.Failed)},
		}}, kindItems
	case s.ChildRun != nil:
		return Span{Name: "child run", Kind: Client, Attributes: []Attribute{{Key: "syncopate.child.name", Text: s.ChildRun.Name}}}, kindChild
	case spec != nil && spec.Approval != nil:
		one := Span{Name: "approval", Kind: Internal}
		if s.Approval != nil {
			one.Attributes = []Attribute{{Key: "syncopate.approval.decision", Text: string(s.Approval.Decision)}}
		}
		return one, kindApproval
	case spec != nil && spec.Delay != nil:
		return Span{Name: "delay", Kind: Internal}, kindDelay
	}
	return Span{}, kindAttempt
}

// attempt adds the span of a step's last attempt. If another follows it lasts until that is due:
// status says no other end, and it is the same end for whoever looks later.
func (m *maker) attempt(s *v1alpha1.StepStatus, end *metav1.MicroTime) {
	if s.DispatchedAt == nil || s.Attempt < 1 {
		return
	}
	one := Span{
		ID: spanID(m.run, s.Name, s.Attempt, kindAttempt), Parent: spanID(m.run, s.Name, 0, kindStep), Name: "attempt", Kind: Producer,
		Start: s.DispatchedAt.Time, End: end.Time, Failed: s.Phase != v1alpha1.StepSucceeded,
		Attributes: []Attribute{{Key: "syncopate.step", Text: s.Name}, {Key: "syncopate.attempt", Number: int64(s.Attempt)}, {Key: "messaging.system", Text: "nats"}},
	}
	if spec := m.spec(s.Name); spec != nil && spec.Job != nil {
		one.Attributes = append(one.Attributes, Attribute{Key: "messaging.destination.name", Text: spec.Job.Topic})
	}
	if one.Failed && s.Error != nil {
		one.Problem = s.Error.Code
	}
	m.add(one)
}

func (m *maker) wholeStep(s *v1alpha1.StepStatus) {
	one := Span{
		ID: spanID(m.run, s.Name, 0, kindStep), Parent: m.at.Span, Name: s.Name, Kind: Internal, Start: m.ready(s), End: s.CompletedAt.Time,
		Failed:     !status.Passed(s.Phase),
		Attributes: []Attribute{{Key: "syncopate.step", Text: s.Name}, {Key: "syncopate.step.phase", Text: string(s.Phase)}, {Key: "syncopate.attempts", Number: int64(s.Attempt)}},
	}
	if one.Failed && s.Error != nil {
		one.Problem = s.Error.Code
	}
	m.add(one)
}

// ready is when a step could begin: the run was admitted, and the steps that it depends on were
// over; a step of finally, when the end was announced. Status has no time of a step's first
// attempt once there is a second one. Of a time in whole seconds the end of that second counts, so
// that no wait is told that was none.
func (m *maker) ready(s *v1alpha1.StepStatus) time.Time {
	within := precision
	if s.Attempt > 1 {
		within = 0 // else the first attempt could begin before its step
	}
	at := m.run.CreationTimestamp.Add(within)
	for _, t := range m.before(s, within) {
		if t.After(at) {
			at = t
		}
	}
	for _, known := range []*metav1.MicroTime{s.DispatchedAt, s.StartedAt, s.CompletedAt} {
		if known != nil && known.Time.Before(at) {
			at = known.Time
		}
	}
	return at
}

// before is when what a step had to wait for was over. A time in whole seconds is that much later.
func (m *maker) before(s *v1alpha1.StepStatus, within time.Duration) (all []time.Time) {
	st := m.run.Status
	if status.Admitted(st) {
		all = append(all, st.Admission.AdmittedAt.Add(within))
	}
	if st.Ending != nil && m.inFinally(s.Name) {
		all = append(all, st.Ending.AnnouncedAt.Time)
	}
	spec := m.spec(s.Name)
	if spec == nil {
		return all
	}
	index := status.Index(st.Steps)
	for _, name := range spec.DependsOn {
		if i, ok := index[name]; ok && st.Steps[i].CompletedAt != nil {
			all = append(all, st.Steps[i].CompletedAt.Time)
		}
	}
	return all
}

func (m *maker) inFinally(name string) bool {
	for i := range m.run.Spec.Finally {
		if m.run.Spec.Finally[i].Name == name {
			return true
		}
	}
	return false
}

func (m *maker) spec(name string) *v1alpha1.Step {
	if m.specs == nil {
		m.specs = make(map[string]*v1alpha1.Step, cmp.Or(len(m.run.Spec.Steps)+len(m.run.Spec.Finally), 1))
		for _, list := range [][]v1alpha1.Step{m.run.Spec.Steps, m.run.Spec.Finally} {
			for i := range list {
				m.specs[list[i].Name] = &list[i]
			}
		}
	}
	return m.specs[name]
}
