// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// BenchmarkDecide is one result applied to a run of 200 steps, 100 of them in flight, one
// step becoming ready.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{5, 50, 200} {
		b.Run(fmt.Sprintf("%d steps", n), func(b *testing.B) {
			steps := make([]v1alpha1.Step, n)
			for i := range steps {
				steps[i] = newStep(fmt.Sprintf("step-%d", i), input(`{"text":"${run.name}"}`))
				if i >= n/2 {
					steps[i].DependsOn = []string{steps[i-n/2].Name}
				}
			}
			run := newRun(steps...)
			run.Spec.MaxParallelSteps = int32(n)
			first := decideAt(run, epoch, held(1))
			run.Status = &first.Status
			results := []Result{succeeded("step-0", 1, `{"status":200}`)}
			b.ReportAllocs()
			for b.Loop() {
				if out := decideAt(run, epoch.Add(time.Second), held(1), results...); len(out.Dispatch) != 1 {
					b.Fatal(out.Dispatch)
				}
			}
		})
	}
}

// BenchmarkDecideFirst is the first decision of a run of 200 steps in a chain: validation
// of all expressions.
func BenchmarkDecideFirst(b *testing.B) {
	steps := make([]v1alpha1.Step, 200)
	for i := range steps {
		steps[i] = newStep(fmt.Sprintf("step-%d", i), input(`{"text":"${run.name}"}`))
		if i > 0 {
			steps[i].DependsOn = []string{steps[i-1].Name}
			steps[i].When = fmt.Sprintf("steps[%q].phase == 'Succeeded'", steps[i-1].Name)
		}
	}
	run := newRun(steps...)
	for b.Loop() {
		decideAt(run, epoch, held(1))
	}
}

// BenchmarkDecideBatch is 100 results of 100 parallel steps in one decision.
func BenchmarkDecideBatch(b *testing.B) {
	steps := make([]v1alpha1.Step, 100)
	results := make([]Result, 100)
	for i := range steps {
		steps[i] = newStep(fmt.Sprint("s", i))
		results[i] = result(steps[i].Name, 1, protocol.StatusSucceeded)
	}
	run := newRun(steps...)
	run.Spec.MaxParallelSteps = 100
	first := decideAt(run, epoch, held(1))
	run.Status = &first.Status
	for b.Loop() {
		if out := decideAt(run, epoch, held(1), results...); out.Status.Phase != v1alpha1.RunSucceeded {
			b.Fatal(out.Status.Phase)
		}
	}
}

// BenchmarkItems is a whole fan-out, 50 jobs at a time, ten results with each decision:
// what a result costs must not depend on how many items there are (ratio at most 1.3
// between 100 and 10,000).
func BenchmarkItems(b *testing.B) {
	const together = 10
	for _, n := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("%d items", n), func(b *testing.B) {
			run := fanOut(n, 50, v1alpha1.Collect)
			b.ReportAllocs()
			for b.Loop() {
				run.Status = nil
				in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
				for store := (objects{}); !Finished(run); {
					out := store.decide(in)
					run.Status, in.Lists, in.Results = &out.Status, out.Lists, nil
					ids := InFlight(run)
					for _, id := range ids[:min(together, len(ids))] {
						r := Result{ID: id}
						r.Result.Status, r.Result.Output = protocol.StatusSucceeded, []byte(`{"ok":true}`)
						in.Results = append(in.Results, r)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/result")
		})
	}
}
