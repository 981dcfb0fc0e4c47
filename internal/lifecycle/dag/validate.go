// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// decodeJSON reads JSON as the API server does: whole numbers as int64, others as float64.
func decodeJSON(raw []byte) (any, error) {
	var v any
	if err := utiljson.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return v, nil
}

// The patterns of the schema, for objects that did not pass it: a job id or subject made of
// anything else would be unusable.
var (
	stepName  = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)
	topicName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)
)

const (
	maxTopicChars = 100
	maxStepName   = 40
)

// Validate lists what is wrong with a spec, each with its field, in spec order; empty: it
// can be run. nest says where the run is among those that are nested. Not whole: the meter had no
// more to give, and the list says nothing. The meter may be nil.
func Validate(run *v1alpha1.WorkflowRun, p *Plan, nest Nest, m *expr.Meter) (problems []string, whole bool) {
	return validate(run, p, nest, expr.Metered(m))
}

// ValidateAt is Validate for who may wait: what takes long is done at a desk, where it rests now
// and then until that says that there is no more time. The error is that of desk, or
// expr.ErrUnread.
func ValidateAt(run *v1alpha1.WorkflowRun, p *Plan, nest Nest, desk func() (rest func() bool, leave func(), err error)) ([]string, error) {
	problems, whole := Validate(run, p, nest, &expr.Meter{Most: bounds.MaxQuickSpecCost})
	if whole {
		return problems, nil
	}
	rest, leave, err := desk()
	if err != nil {
		return nil, err
	}
	defer leave()
	if problems, whole = Validate(run, p, nest, &expr.Meter{Pause: rest}); !whole {
		return nil, expr.ErrUnread
	}
	return problems, nil
}

func validate(run *v1alpha1.WorkflowRun, p *Plan, nest Nest, meter expr.Option) (problems []string, whole bool) {
	v := validator{run: run, plan: p, nest: nest, meter: meter}
	if problems := v.sizes(); len(problems) > 0 {
		return problems, true
	}
	v.object("spec.inputs", run.Spec.Inputs, bounds.MaxInputsBytes)
	for i := 0; i < len(p.Steps) && !v.unread; i++ {
		v.step(i)
	}
	if v.unread {
		return nil, false
	}
	v.locks(-1, "spec.locks", run.Spec.Locks)
	v.acyclic()
	v.outputs()
	return v.problems, !v.unread
}

// sizes are why a spec is not looked at.
func (v *validator) sizes() []string {
	spec, p := &v.run.Spec, v.plan
	switch n := len(p.Steps); {
	case len(spec.Steps) == 0:
		return []string{"spec.steps: at least one step is needed"}
	case n > bounds.MaxSteps:
		return []string{fmt.Sprintf("spec.steps: %d steps, those of spec.finally included, more than %d", n, bounds.MaxSteps)}
	}
	if why := TooLarge(v.run, p); why != "" {
		return []string{why}
	}
	if n := p.ChildRuns(); n > v.nest.Below {
		return []string{fmt.Sprintf("spec.steps: %d steps are runs, and %d runs may be below this one: %d are below the run at the top at most, in equal shares", n, v.nest.Below, bounds.MaxRunsBelow)}
	}
	return nil
}

// TooLarge says why the spec of a run is too large to be looked at; empty: it is not.
func TooLarge(run *v1alpha1.WorkflowRun, p *Plan) string {
	if n := specBytes(&run.Spec, p); n > bounds.MaxSpecBytes {
		return fmt.Sprintf("spec: %d bytes of inputs, expressions and dependencies, more than %d in all", n, bounds.MaxSpecBytes)
	}
	return ""
}

func locksBytes(requests []v1alpha1.LockRequest) (n int) {
	for _, l := range requests {
		n += len(l.Key) + len(l.Mutex)
	}
	return n
}

// specBytes is the size of what makes a spec large.
func specBytes(spec *v1alpha1.WorkflowRunSpec, p *Plan) int {
	n := len(bounds.Raw(spec.Inputs)) + len(bounds.Raw(spec.Outputs))
	for i := range p.Steps {
		s := &p.Steps[i]
		n += len(s.When)
		n += locksBytes(s.Locks)
		if s.Job != nil {
			n += len(bounds.Raw(s.Job.Input))
		}
		if s.ForEach != nil {
			n += len(s.ForEach.Items) + locksBytes(s.ForEach.Locks)
		}
		if k := waits.Of(s); k != nil {
			n += k.Bytes(s)
		}
		if s.Run != nil {
			n += len(bounds.Raw(s.Run.Inputs)) + len(s.Run.Spec.Raw)
		}
		for _, code := range s.Retry.OnCodes {
			n += len(code)
		}
		for _, name := range s.DependsOn {
			n += len(name)
		}
	}
	return n
}

type validator struct {
	run      *v1alpha1.WorkflowRun
	plan     *Plan
	taken    int // locks so far
	forEachs int // steps with forEach so far
	nest     Nest
	meter    expr.Option
	unread   bool // the meter had no more to give
	problems []string
}

func (v *validator) add(field, format string, args ...any) {
	v.problems = append(v.problems, field+": "+fmt.Sprintf(format, args...))
}

// wrong adds what is wrong with the expressions of a field.
func (v *validator) wrong(field string, err error) {
	if errors.Is(err, expr.ErrUnread) {
		v.unread = true
		return
	}
	v.add(field, "%v", err)
}

// Field is where a step stands.
func (p *Plan) Field(i int) string {
	if p.IsFinally(i) {
		return fmt.Sprintf("spec.finally[%d]", i-p.Main)
	}
	return fmt.Sprintf("spec.steps[%d]", i)
}

func (v *validator) step(i int) {
	s, field := &v.plan.Steps[i], v.plan.Field(i)
	if !stepName.MatchString(s.Name) {
		v.add(field+".name", "%s is not 1 to 40 of a-z, 0-9 and dashes", quote(s.Name))
	}
	if first := v.plan.Index[s.Name]; first != i {
		v.add(field+".name", "%s is already the name of %s", quote(s.Name), v.plan.Field(first))
	}
	v.dependencies(i, field+".dependsOn")
	v.locks(i, field+".locks", s.Locks)
	if s.When != "" {
		names, err := expr.ConditionSteps(s.When, v.place(i)...)
		v.references(i, field+".when", names, err)
	}
	v.kind(i, field)
}

// kind checks what a step does.
func (v *validator) kind(i int, field string) {
	s := &v.plan.Steps[i]
	if needs := kindsAllowed(s, v.plan.IsFinally(i)); needs != "" {
		v.add(field, "%s", needs)
		return
	}
	switch {
	case s.ForEach != nil && s.Job == nil:
		v.add(field+".forEach", "it needs a job")
	case s.Job != nil:
		v.job(i, field+".job", s.Job)
		v.forEach(i, field+".forEach")
	case s.Run != nil:
		v.child(i, field+".run", s.Run)
	default:
		k := waits.Of(s)
		if at, problem := k.Problem(s, v.run.CreationTimestamp); problem != "" {
			v.add(field+"."+k.Field+at, "%s", problem)
		}
	}
}

func (v *validator) job(i int, field string, job *v1alpha1.Job) {
	if len(job.Topic) > maxTopicChars || !topicName.MatchString(job.Topic) {
		v.add(field+".topic", "%s is not words of a-z, 0-9 and dashes joined by dots, at most %d characters",
			quote(job.Topic), maxTopicChars)
	}
	if v.object(field+".input", job.Input, bounds.MaxJobInputBytes) {
		names, err := expr.TemplateSteps(bounds.Raw(job.Input), append(v.place(i), WithItem(&v.plan.Steps[i])...)...)
		v.references(i, field+".input", names, err)
	}
}

func (v *validator) forEach(i int, field string) {
	f := v.plan.Steps[i].ForEach
	if f == nil {
		return
	}
	names, err := expr.ListSteps(f.Items, v.place(i)...)
	v.references(i, field+".items", names, err)
	if f.MaxParallel < 0 || f.MaxParallel > bounds.MaxItemsParallel {
		v.add(field+".maxParallel", "%d is not in 1..%d", f.MaxParallel, bounds.MaxItemsParallel)
	}
	v.locks(i, field+".locks", f.Locks, expr.WithItem)
	if v.forEachs++; v.forEachs == bounds.MaxForEachSteps+1 {
		v.add(field, "a run may have %d steps with forEach", bounds.MaxForEachSteps)
	}
}

// outputs checks spec.outputs, which may read all of spec.steps.
func (v *validator) outputs() {
	raw := bounds.Raw(v.run.Spec.Outputs)
	if !v.object("spec.outputs", v.run.Spec.Outputs, bounds.MaxJobInputBytes) {
		return
	}
	names, err := expr.TemplateSteps(raw, v.place(-1)...)
	if err != nil {
		v.wrong("spec.outputs", err)
		return
	}
	for _, name := range names {
		if j, known := v.plan.Index[name]; !known || v.plan.IsFinally(j) {
			v.add("spec.outputs", "there is no step %s in spec.steps%s", quote(name), v.isIt(name))
		}
	}
}

// references checks the steps that an expression reads: only what the step depends on has ended for
// certain when it starts.
func (v *validator) references(i int, field string, names []string, err error) {
	if err != nil {
		v.wrong(field, err)
		return
	}
	if len(names) == 0 {
		return
	}
	sees := v.plan.Sees(i)
	for _, name := range names {
		j, known := v.plan.Index[name]
		switch {
		case !known:
			v.add(field, "there is no step %s%s", quote(name), v.isIt(name))
		case j == i:
			v.add(field, "the step reads its own state")
		case !slices.Contains(sees, j):
			v.add(field, "step %s is read but not depended on; add it to dependsOn", quote(name))
		}
	}
}

func (v *validator) dependencies(i int, field string) {
	s := &v.plan.Steps[i]
	seen := make(map[string]bool, len(s.DependsOn))
	for k, name := range s.DependsOn {
		at := fmt.Sprintf("%s[%d]", field, k)
		j, known := v.plan.Index[name]
		switch {
		case seen[name]:
			v.add(at, "%s is listed twice", quote(name))
		case name == s.Name:
			v.add(at, "step %s depends on itself", quote(name))
		case !known:
			v.add(at, "there is no step %s%s", quote(name), v.isIt(name))
		case v.plan.IsFinally(i) && !v.plan.IsFinally(j):
			v.add(at, "%s is not a finally step: all other steps are over when these begin", quote(name))
		case v.plan.IsFinally(j) && !v.plan.IsFinally(i):
			v.add(at, "%s is a finally step: those begin when all others are over", quote(name))
		}
		seen[name] = true
	}
}

// object checks a field that must hold a JSON object of bounded size, and says whether it does.
func (v *validator) object(field string, e *runtime.RawExtension, limit int) bool { //nolint:unparam // each field has a bound of its own
	raw := bounds.Raw(e)
	if len(raw) > limit {
		v.add(field, "%d bytes, more than %d", len(raw), limit)
		return false
	}
	value, err := decodeJSON(raw)
	if err != nil {
		v.add(field, "%v", err)
		return false
	}
	if _, ok := value.(map[string]any); !ok {
		v.add(field, "%s is not a JSON object", quote(string(bytes.TrimSpace(raw))))
		return false
	}
	if deeper(value, bounds.MaxInputDepth) {
		v.add(field, "nested more than %d deep", bounds.MaxInputDepth)
		return false
	}
	return true
}

// deeper says whether a value has more lists and objects in each other than n.
func deeper(value any, n int) bool {
	switch v := value.(type) {
	case map[string]any:
		return n == 0 || slices.ContainsFunc(slices.Collect(maps.Values(v)), func(inner any) bool { return deeper(inner, n-1) })
	case []any:
		return n == 0 || slices.ContainsFunc(v, func(inner any) bool { return deeper(inner, n-1) })
	default:
		return false
	}
}

// acyclic reports the first cycle of two steps or more; self-dependencies have a message
// of their own.
func (v *validator) acyclic() {
	path := v.plan.cycle()
	if len(path) < 3 {
		return
	}
	names := make([]string, 0, len(path))
	for _, i := range path {
		names = append(names, v.plan.Steps[i].Name)
	}
	v.add(strings.TrimRight(v.plan.Field(path[0]), "[]0123456789"), "cycle, each step depends on the next: %s", strings.Join(names, " -> "))
}

func quote(s string) string { return fmt.Sprintf("%q", bounds.Cut(s, bounds.MaxCodeChars)) }
