// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxValueBytes = 8 << 10                 // of a value that is shown
	maxLineBytes  = 6 * (maxValueBytes + 1) // of one of its lines, before plain
	maxAsk        = 1024
	maxError      = 1100 // the code of an error, and its message
)

// StepRow is a step in the table of steps.
type StepRow struct {
	Name              string
	Phase, Mark, Tone string
	Kind, Topic       string
	Finally           bool
	Attempt, Failures int32
	Duration          string
	After             []string
	ChildRun          string
	Why               string
	Error             string // all of it, where Why has its beginning only
	Items             *runview.Items
	Bar               []Segment
	Output            Value
	Holds             []string
	Approval          *Approval
}

// Approval is what a step asks.
type Approval struct {
	Message string
	Waits   bool // nobody has decided
}

// Value is JSON as it is shown.
type Value struct {
	Text string
	Size int64
	Cut  bool   // there is more than is shown
	Ref  string // the object that has it; "": status does
}

// None says whether there is no value.
func (v Value) None() bool { return v.Text == "" && v.Ref == "" }

const barWidth = 160

func stepRows(run *v1alpha1.WorkflowRun, st *v1alpha1.WorkflowRunStatus, tree runview.Tree) []StepRow {
	specs, states := map[string]*v1alpha1.Step{}, map[string]*v1alpha1.StepStatus{}
	for _, steps := range [][]v1alpha1.Step{run.Spec.Steps, run.Spec.Finally} {
		for i := range steps {
			specs[steps[i].Name] = &steps[i]
		}
	}
	for i := range st.Steps {
		states[st.Steps[i].Name] = &st.Steps[i]
	}
	all := make([]StepRow, 0, len(tree.Steps))
	for i := range tree.Steps {
		r := &tree.Steps[i]
		row := StepRow{
			Name: r.Name, Phase: string(r.Phase), Mark: Mark(string(r.Phase)), Tone: Tone(string(r.Phase)),
			Kind: string(r.Kind), Topic: shortText(r.Topic), Finally: r.Finally, Attempt: r.Attempt, Failures: r.Failures, ChildRun: r.ChildRun,
			Why: text(r.Why), Items: r.Items,
		}
		if r.DurationMillis != nil {
			row.Duration = runview.Span(time.Duration(*r.DurationMillis) * time.Millisecond)
		}
		if r.Items != nil {
			row.Bar = bar(r.Items, 0, barWidth)
		}
		if s := states[r.Name]; s != nil {
			row.state(s)
		}
		if spec := specs[r.Name]; spec != nil {
			row.After = spec.DependsOn
			row.approval(spec, states[r.Name])
		}
		all = append(all, row)
	}
	return all
}

// state adds what status has of the step.
func (r *StepRow) state(s *v1alpha1.StepStatus) {
	r.Output = valueOf(s.Output, s.OutputRef)
	if e := s.Error; e != nil && e.Message != "" {
		if whole := runview.Printable(e.Code+": "+e.Message, maxError); !strings.Contains(r.Why, whole) {
			r.Error = whole
		}
	}
	for _, l := range s.Locks {
		r.Holds = append(r.Holds, fmt.Sprintf("%s (fence %d)", shortText(l.Name), l.Fence))
	}
	if s.ForEach == nil {
		return
	}
	for _, of := range s.ForEach.Locks {
		for _, l := range of.Locks {
			r.Holds = append(r.Holds, fmt.Sprintf("item %d: %s (fence %d)", of.Item, shortText(l.Name), l.Fence))
		}
	}
}

// approval adds what the step asks.
func (r *StepRow) approval(spec *v1alpha1.Step, s *v1alpha1.StepStatus) {
	if spec.Approval == nil {
		return
	}
	r.Approval = &Approval{Message: strings.TrimSpace(runview.Printable(spec.Approval.Message, maxAsk))}
	if s != nil {
		r.Approval.Waits = s.Phase == v1alpha1.StepWaiting && s.Approval == nil
	}
}

// valueOf is JSON in lines, as far as it is to be shown.
func valueOf(v *runtime.RawExtension, ref *v1alpha1.OutputReference) Value {
	if ref != nil {
		return Value{Size: ref.Size, Ref: runview.Printable(ref.Name, maxText)}
	}
	if v == nil || len(v.Raw) == 0 {
		return Value{}
	}
	out := Value{Size: int64(len(v.Raw))}
	var b strings.Builder
	between := ""
	for line := range runview.JSONLines(v.Raw) {
		if b.Len() > maxValueBytes {
			break
		}
		b.WriteString(between)
		b.WriteString(runview.Printable(plain(string(line[:min(len(line), maxLineBytes)])), maxValueBytes))
		between = "\n"
	}
	if out.Text = b.String(); len(out.Text) > maxValueBytes {
		out.Text, out.Cut = strings.ToValidUTF8(out.Text[:maxValueBytes], ""), true
	}
	return out
}

// plain takes the escapes of JSON away that are there for browsers which take JSON for HTML: "<",
// ">" and "&" read better than their numbers. Templates escape what they write.
func plain(s string) string {
	var b strings.Builder
	signs := map[string]byte{`\u003c`: '<', `\u003e`: '>', `\u0026`: '&'}
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if sign, ok := signs[strings.ToLower(s[i:min(i+6, len(s))])]; ok {
			b.WriteByte(sign)
			i += 5
			continue
		}
		b.WriteString(s[i:min(i+2, len(s))])
		i++
	}
	return b.String()
}
