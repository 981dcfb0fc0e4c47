// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// growing is a run whose steps all answered with a list that takes four times its length as it is
// stored: n results of 95 KiB.
func growing(t *testing.T, n int) (*v1alpha1.WorkflowRun, []Result) {
	t.Helper()
	run := newRun()
	run.Spec.ActiveDeadlineSeconds, run.Spec.MaxParallelSteps = new(int32(60)), int32(n)
	for i := range n {
		run.Spec.Steps = append(run.Spec.Steps, newStep(fmt.Sprint("s", i)))
	}
	advance(t, run, epoch)
	var results []Result
	for i := range n {
		results = append(results, succeeded(fmt.Sprint("s", i), 1, "["+strings.Repeat("1e20,", 95<<10/5-1)+"1]"))
	}
	return run, results
}

// mostKnown is what a decision may allocate that finds all of its results stored.
const mostKnown = 4 << 20

// Two hundred results of 95 KiB have 18 MiB, and may have four times that as they are stored. Those
// that are beyond what one decision stores count all the same, though the run ends with this write.
//
// mutations: keepOne without its bound; keepOne that does not look what is stored, or does not say
// of what that is made: the last decision makes all of it canonical again; keepOne that counts
// what is stored, and leaves the rest to the next write.
func TestADecisionStoresSoMuchAndNoMore(t *testing.T) {
	const n = 40
	for name, c := range map[string]struct {
		adjust func(in *Input)
		want   string
	}{
		"they succeed":                  {func(*Input) {}, "Succeeded/Succeeded"},
		"one of them fails":             {func(in *Input) { in.Results[0] = failed("s0", 1, "E", "no") }, "Failed/StepFailed"},
		"the run is cancelled":          {func(in *Input) { in.Run.Spec.Shutdown = v1alpha1.ShutdownCancel; in.Results = in.Results[1:] }, "Cancelled/Cancelled"},
		"at the deadline without Redis": {func(in *Input) { in.Lock, in.Now = unavailable(), epoch.Add(time.Hour) }, "Succeeded/Succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			run, results := growing(t, n)
			for i := range run.Spec.Steps {
				run.Spec.Steps[i].Retry.MaxFailures = 1
			}
			in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Results: results})
			c.adjust(&in)
			in.Answers.AsOf, in.Payloads = in.Now, Payloads{}
			for decisions := 1; ; decisions++ {
				var out Decision
				took, bytes := allocated(func() { out = Decide(in) }), int64(0)
				for _, s := range out.Needs.Store {
					bytes += int64(len(s.Data))
					in.Payloads[s.Ref.Name], in.Payloads[s.Of] = Payload{}, Payload{Stored: &s.Ref}
				}
				if most := int64(bounds.MaxLoadedBytes + 5*95<<10); bytes > most {
					t.Errorf("a decision stores %d bytes, more than %d", bytes, most)
				}
				if bytes > 0 {
					continue
				}
				if got := outcomeOf(&out.Status); got != c.want || out.Needs.Any() {
					t.Fatalf("%s, want %s; it needs %+v", got, c.want, out.Needs)
				}
				if took > mostKnown {
					t.Errorf("the last decision allocates %d bytes", took)
				}
				for k, v := range out.Verdicts {
					if v != Applied {
						t.Errorf("result %d is %s", k, v)
					}
				}
				if stored := len(in.Payloads) / 2; stored < len(in.Results)-1 || decisions < 3 {
					t.Errorf("%d outputs are stored after %d decisions", stored, decisions)
				}
				return
			}
		})
	}
}
