// SPDX-License-Identifier: Apache-2.0

package book

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Topic of all jobs, where a plan has none of its own.
const Topic = "ledger.work"

// Ending is how an attempt ends.
type Ending string

// The ways in which an attempt ends.
const (
	Succeeds Ending = "Succeeded"
	fails    Ending = "Failed"
	Retries  Ending = "Retry"
	endsRun  Ending = "Failed, final"
)

// Size is how much a ledger test does.
type Size struct {
	Runs    int
	Steps   int    // of each run; a quarter as many attempts beyond the first of each step are spread over them
	Workers int    // jobs worked on at the same time
	Topic   string // of all jobs; "": Topic
	Patience,
	Quick, // the longest of most jobs; 0: 20 ms at the most
	Slow, // the longest job
	Late time.Duration // the longest time until a late copy of a result is published
}

// Results is how many attempts are answered.
func (s Size) Results() int { return s.Runs * (s.Steps + s.Steps/4) }

// Plan says how every attempt of every step of every run ends. It follows from seed and size.
type Plan struct {
	seed uint64
	size Size
	runs []script
}

// script is the plan of one run: for each step, how its attempts end, in order.
type script [][]Ending

const (
	lanes = 8 // a step depends on the one that stands so many before it; the last step depends on the last of each lane
	// doomed is how many runs there are for each one that ends with a final failure.
	doomed = 10
)

// MakePlan makes the plan of a seed.
func MakePlan(seed uint64, s Size) Plan {
	s.Topic = cmp.Or(s.Topic, Topic)
	p := Plan{seed: seed, size: s}
	for run := range s.Runs {
		r := rand.New(rand.NewPCG(seed, uint64(run)))
		steps := make(script, s.Steps)
		for range s.Steps / 4 {
			i := r.IntN(s.Steps)
			steps[i] = append(steps[i], []Ending{fails, Retries}[r.IntN(2)])
		}
		for i := range steps {
			steps[i] = append(steps[i], Succeeds)
		}
		if run%doomed == doomed-1 {
			last := steps[s.Steps-1]
			last[len(last)-1] = endsRun
		}
		p.runs = append(p.runs, steps)
	}
	return p
}

func runName(i int) string { return fmt.Sprintf("run-%04d", i) }

// StepName is the name of a step of a plan.
func StepName(i int) string { return fmt.Sprintf("step-%03d", i) }

// steps makes the specification of a run.
func (p Plan) spec() v1alpha1.WorkflowRunSpec {
	wait, none := int64(50), int32(0)
	spec := v1alpha1.WorkflowRunSpec{MaxParallelSteps: lanes}
	for i := range p.size.Steps {
		step := v1alpha1.Step{Name: StepName(i), Job: &v1alpha1.Job{Topic: p.size.Topic, Input: input(i)}, Retry: v1alpha1.Retry{
			MaxFailures: 1000, Backoff: v1alpha1.Backoff{InitialMillis: &wait, MaxMillis: &wait, JitterPercent: &none},
		}}
		first, last := i-lanes, i-lanes
		if i == p.size.Steps-1 {
			last = i - 1
		}
		for on := max(0, first); on <= last; on++ {
			step.DependsOn = append(step.DependsOn, StepName(on))
		}
		spec.Steps = append(spec.Steps, step)
	}
	return spec
}

func input(i int) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"number":%d}`, i)}
}

// Objects are the runs of the plan.
func (p Plan) Objects() []*v1alpha1.WorkflowRun {
	runs := make([]*v1alpha1.WorkflowRun, p.size.Runs)
	for i := range runs {
		runs[i] = &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: runName(i)}, Spec: p.spec()}
	}
	return runs
}

// ByName is the plan by name of run and step.
func (p Plan) ByName() map[string]map[string][]Ending {
	all := make(map[string]map[string][]Ending, len(p.runs))
	for i, s := range p.runs {
		all[runName(i)] = make(map[string][]Ending, len(s))
		for k, endings := range s {
			all[runName(i)][StepName(k)] = endings
		}
	}
	return all
}

// Success is a result that says so, without an output that matters.
func Success() []byte { return Succeeds.Body("", 0) }

// Body is a result that ends an attempt as planned, and carries a value that no other result has.
func (e Ending) Body(value string, wait time.Duration) []byte {
	result := protocol.Result{Error: &protocol.ResultError{Code: "Planned", Message: value}}
	switch e {
	case fails:
		result.Status = protocol.StatusFailed
	case endsRun:
		result.Status, result.Final = protocol.StatusFailed, true
	case Retries:
		result.Status, result.RetryAfterMillis = protocol.StatusRetry, wait.Milliseconds()
	default:
		result = protocol.Result{Status: protocol.StatusSucceeded, Output: output(value, 0)}
	}
	return encode(result)
}

// output is one with a value, as canonical JSON, and as large as wanted.
func output(value string, padding int) []byte {
	return fmt.Appendf(nil, `{"padding":%q,"value":%q}`, strings.Repeat("x", padding), value)
}

func encode(r protocol.Result) []byte {
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(err.Error()) // no JSON: the run that gets it fails
	}
	return body
}

// valueOf finds the value in the status of a step; "" if there is none. That of a large output is
// the name of its object, which has the digest in it.
func valueOf(s *v1alpha1.StepStatus) string {
	switch {
	case s.OutputRef != nil:
		return s.OutputRef.Name
	case s.Output != nil:
		var output struct{ Value string }
		if err := json.Unmarshal(s.Output.Raw, &output); err != nil {
			return err.Error()
		}
		return output.Value
	case s.Error != nil:
		value, _, _ := strings.Cut(s.Error.Message, "; asked for a retry in ") // what the operator adds to a worker's wish
		return value
	default:
		return ""
	}
}

// RunOf is the name of the run in the CloudEvents source of a job.
func RunOf(source string) string { return source[strings.LastIndex(source, "/")+1:] }
