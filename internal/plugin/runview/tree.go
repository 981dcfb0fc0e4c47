// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Tree is a run with its steps. A step stands below its last dependency in spec order; the others
// are in AlsoAfter.
type Tree struct {
	Namespace  string                    `json:"namespace"`
	Name       string                    `json:"name"`
	Phase      v1alpha1.RunPhase         `json:"phase"`
	Progress   string                    `json:"progress"`
	Tenant     string                    `json:"tenant,omitempty"`
	Class      string                    `json:"class"`
	Policy     *v1alpha1.PolicyReference `json:"policy,omitempty"` // absent: built-in defaults
	Fence      *int64                    `json:"fence,omitempty"`
	Holder     string                    `json:"holder,omitempty"`
	CreatedAt  time.Time                 `json:"createdAt"`
	AgeSeconds int64                     `json:"ageSeconds"`
	Steps      []Row                     `json:"steps"` // parents before children
}

// Row is one step.
type Row struct {
	Name           string             `json:"name"`
	Parent         string             `json:"parent,omitempty"`
	Depth          int                `json:"depth"`
	AlsoAfter      []string           `json:"alsoAfter,omitempty"`
	Kind           Kind               `json:"kind"`
	Finally        bool               `json:"finally,omitempty"` // of spec.finally
	Topic          string             `json:"topic"`             // of a job
	Phase          v1alpha1.StepPhase `json:"phase"`
	Attempt        int32              `json:"attempt"`
	Failures       int32              `json:"failures"`
	StartedAt      *time.Time         `json:"startedAt,omitempty"` // of the last attempt; the dispatch where its worker never said Started
	CompletedAt    *time.Time         `json:"completedAt,omitempty"`
	DelayedUntil   *time.Time         `json:"delayedUntil,omitempty"`
	Items          *Items             `json:"items,omitempty"`          // of a step with forEach
	ChildRun       string             `json:"childRun,omitempty"`       // the name of a child run
	DurationMillis *int64             `json:"durationMillis,omitempty"` // of the last attempt, so far if it goes on
	Why            string             `json:"why,omitempty"`

	branch string // what is drawn before the name
}

// TreeOf is the tree of a run at a moment. children are its child runs, as far as they are known.
func TreeOf(run *v1alpha1.WorkflowRun, now time.Time, children ...v1alpha1.WorkflowRun) Tree {
	st := statusOf(run)
	t := Tree{
		Namespace: run.Namespace, Name: run.Name, Phase: st.Phase, Progress: st.Progress, Tenant: st.Tenant,
		Class: run.Spec.WorkloadClass, Policy: st.Policy, Fence: st.Fence,
		CreatedAt: run.CreationTimestamp.UTC(), AgeSeconds: int64(max(0, now.Sub(run.CreationTimestamp.Time)).Seconds()),
		Steps: []Row{},
	}
	if t.Phase == "" {
		t.Phase = v1alpha1.RunPending
	}
	if t.Progress == "" {
		t.Progress = fmt.Sprintf("0/%d", len(run.Spec.Steps)+len(run.Spec.Finally))
	}
	if st.Lock != nil {
		t.Holder = Printable(st.Lock.Holder, maxTextChars)
	}
	g := grower{run: run, all: stepsOf(run), now: now, family: familyOf(children)}
	g.grow()
	t.Steps = append(t.Steps, g.rows...)
	return t
}

// grower visits the steps depth first. Its recursion is bounded by their number.
type grower struct {
	run      *v1alpha1.WorkflowRun
	all      []step
	children [][]int
	shown    []bool
	rows     []Row
	now      time.Time
	family   family
}

func (g *grower) grow() {
	g.children, g.shown = make([][]int, len(g.all)), make([]bool, len(g.all))
	for i := range g.all {
		if p := g.parent(i); p >= 0 {
			g.children[p] = append(g.children[p], i)
		}
	}
	for i := range g.all {
		if g.parent(i) < 0 {
			g.show(i, -1, 0, "", "")
		}
	}
	for i := range g.all { // what is on a cycle hangs from no root
		g.show(i, -1, 0, "", "")
	}
}

func (g *grower) parent(i int) int {
	if n := len(g.all[i].deps); n > 0 {
		return g.all[i].deps[n-1]
	}
	return -1
}

// show adds a step and what hangs from it. branch is drawn before its name, below before those
// of its children.
func (g *grower) show(i, parent, depth int, branch, below string) {
	if g.shown[i] {
		return
	}
	g.shown[i] = true
	g.rows = append(g.rows, g.row(i, parent, depth, branch))
	open := slices.DeleteFunc(slices.Clone(g.children[i]), func(c int) bool { return g.shown[c] })
	for k, c := range open {
		if k < len(open)-1 {
			g.show(c, i, depth+1, below+"├─ ", below+"│  ")
		} else {
			g.show(c, i, depth+1, below+"└─ ", below+"   ")
		}
	}
}

func (g *grower) row(i, parent, depth int, branch string) Row {
	s := &g.all[i]
	r := Row{
		Name: s.spec.Name, Depth: depth, AlsoAfter: s.also(g.all), Kind: s.kind(), Finally: s.finally, Topic: s.topic(),
		Phase: s.status.Phase, Attempt: s.status.Attempt, Failures: s.status.Failures,
		StartedAt: s.began(), CompletedAt: microTime(s.status.CompletedAt), DelayedUntil: microTime(s.status.DelayedUntil), branch: branch,
	}
	if parent >= 0 {
		r.Parent = g.all[parent].spec.Name
	}
	r.Items = s.items()
	if s.status.ChildRun != nil {
		r.ChildRun = s.status.ChildRun.Name
	}
	if d := s.took(g.now); d != nil {
		ms := d.Milliseconds()
		r.DurationMillis = &ms
	}
	r.Why = g.why(s)
	return r
}

// why says in a few words what is to be known of a step.
func (g *grower) why(s *step) string {
	var also string
	if others := s.also(g.all); len(others) > 0 {
		also = "also after " + names(others)
	}
	return join(g.state(s), doneElsewhere(s), also, g.place(s))
}

// doneElsewhere names the run that did a step in the place of this one.
func doneElsewhere(s *step) string {
	if s.status.DoneBy == "" {
		return ""
	}
	return "done by run " + Printable(s.status.DoneBy, maxErrorChars)
}

// place tells that a step is one of finally, unless it says so itself because it waits
// for the others.
func (g *grower) place(s *step) string {
	if s.finally && (s.status.Phase != v1alpha1.StepPending || statusOf(g.run).Ending != nil) {
		return "finally"
	}
	return ""
}

func (g *grower) state(s *step) string {
	cause := errorText(s.status.Error, maxErrorChars)
	switch s.status.Phase {
	case v1alpha1.StepPending:
		return s.pending(g.run, g.all, g.now)
	case v1alpha1.StepDispatched:
		return s.waitsForWorker(g.now)
	case v1alpha1.StepBackingOff:
		return join(cause, s.nextAttempt(g.run, g.all, g.now))
	case v1alpha1.StepWaiting:
		return join(s.asks(g.now), s.command(g.run))
	case v1alpha1.StepSkipped:
		return "when: " + Printable(s.spec.When, maxErrorChars)
	case v1alpha1.StepCancelled:
		return join("the run ended first", s.items().text(), g.family.child(s), cause)
	case v1alpha1.StepFailed:
		return join(cause, s.items().text(), s.before(), s.shrug())
	case v1alpha1.StepRunning, v1alpha1.StepSucceeded: // why an approval failed is its error
		return join(s.asideText(), s.items().text(), g.family.child(s), cause, s.decided(g.now), s.before())
	default:
		return cmp.Or(s.waiting(g.now), cause) // cause: the phase is one of a newer operator
	}
}

func (s *step) before() string {
	if s.status.Failures == 0 {
		return ""
	}
	return failures(s.status.Failures)
}

func (s *step) waitsForWorker(now time.Time) string {
	if text := s.asideText(); text != "" {
		return join(text, s.before())
	}
	text := "waits for a worker"
	if at := microTime(s.status.DispatchedAt); at != nil {
		text += " since " + when(*at, now)
	}
	return join(text, s.before())
}

// heldBack is why a suspended run's steps do not go on.
func heldBack(run *v1alpha1.WorkflowRun) string { return "no new attempt while " + suspender(run) }

func (s *step) nextAttempt(run *v1alpha1.WorkflowRun, all []step, now time.Time) string {
	at, place := microTime(s.status.NextAttemptAt), ""
	if s.lacksPlace(run, all) {
		place = forPlace(run)
	}
	switch {
	case suspended(run):
		return heldBack(run)
	case place != "" && (at == nil || !at.After(now)):
		return place
	case at != nil:
		return join("next attempt at "+when(*at, now), place)
	default:
		return "next attempt as soon as possible"
	}
}
