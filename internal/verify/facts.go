// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/docs/benchmarks"
	"github.com/syncopate-dev/syncopate/internal/book"
)

// maxTold is how many things wrong of one kind are told.
const maxTold = 5

// notJudged says why what may still come is not judged.
const notJudged = "not judged: not all runs ended"

// facts are what was seen. report judges them; it asks nobody.
type facts struct {
	Name            string
	Seed            uint64
	Took, Patience  time.Duration
	Bound           time.Duration // between two results after a fault
	Figures         book.Figures
	HandOvers       []time.Duration
	Runs            []v1alpha1.WorkflowRun // as they are stored in the end
	Writes, Watched int                    // of status, of how many runs
	Verdict         []string               // of the ledger; only where all runs ended
	Wrong           []string               // of the watcher
	Done            []Done
}

func (f facts) unfinished() int { return len(f.stuck()) }

// stuck are the runs that have not ended.
func (f facts) stuck() []*v1alpha1.WorkflowRun {
	var all []*v1alpha1.WorkflowRun
	for i := range f.Runs {
		if f.Runs[i].Unwritten() || f.Runs[i].Status.CompletedAt == nil {
			all = append(all, &f.Runs[i])
		}
	}
	return all
}

func (f facts) report() Report {
	r := Report{
		Namespace: f.Name, Seed: f.Seed, Took: f.Took, Runs: len(f.Runs), Ended: len(f.Runs) - f.unfinished(), Results: f.Figures.Answered,
		Duplicates: f.Figures.Duplicates, Redeliveries: f.Figures.Redeliveries, Uploads: f.Figures.Uploads, Faults: f.Done,
	}
	ledger := Check{Name: "I1 I2", What: "each confirmed result has one effect, each job one dispatch", Wrong: f.Verdict}
	if f.unfinished() > 0 {
		ledger.Unknown = notJudged
	}
	r.Checks = []Check{
		{Name: "ended", What: fmt.Sprintf("all runs ended within %s", f.Patience), Wrong: f.why()},
		ledger,
		{Name: "I3", What: "no fence in status goes back or has two leases", Wrong: beginning(f.Wrong, "I3: ")},
		{Name: "I4", What: fmt.Sprintf("never were more than %d runs admitted", limit), Wrong: beginning(f.Wrong, "I4: ")},
	}
	if len(f.Done) > 0 {
		r.Checks = append(r.Checks, f.stalls())
	}
	r.Numbers = f.numbers()
	return r
}

// stalls is I5.
func (f facts) stalls() Check {
	c := Check{Name: "I5", What: fmt.Sprintf("after a fault no two results are more than %s apart", f.Bound)}
	if f.unfinished() > 0 { // more may come, and too late
		c.Unknown = notJudged
	}
	for _, d := range f.Done {
		if d.Stall > f.Bound {
			c.Wrong = append(c.Wrong, fmt.Sprintf("%s: %s", d.Fault, d.Stall.Round(time.Millisecond)))
		}
		if !d.happened() {
			c.Unknown = fmt.Sprintf("%s %s", d.Fault, d.What)
		}
	}
	return c
}

func beginning(all []string, with string) []string {
	var found []string
	for _, s := range all {
		if rest, ok := strings.CutPrefix(s, with); ok {
			found = append(found, rest)
		}
	}
	return found
}

// why says what the runs that have not ended wait for, the same of many once.
func (f facts) why() []string {
	count, example := map[string]int{}, map[string]string{}
	for _, run := range f.stuck() {
		reason := waitsFor(run)
		count[reason]++
		if example[reason] == "" || run.Name < example[reason] {
			example[reason] = run.Name
		}
	}
	var all []string
	for _, reason := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	}) {
		all = append(all, fmt.Sprintf("%d runs, say %s: %s", count[reason], example[reason], reason))
	}
	if len(all) > 0 && f.Figures.Answered == 0 && f.dispatched() {
		all = append(all, "jobs were dispatched, and no worker got one: is this the operator's NATS, and may these workers read its jobs?")
	}
	return all
}

func (f facts) dispatched() bool {
	for _, run := range f.stuck() {
		if run.Unwritten() {
			continue
		}
		for i := range run.Status.Steps {
			if run.Status.Steps[i].JobID != "" {
				return true
			}
		}
	}
	return false
}

// waitsFor is what the conditions of a run say that is not well.
func waitsFor(run *v1alpha1.WorkflowRun) string {
	if run.Unwritten() {
		return "no operator has looked at it"
	}
	var said []string
	for _, kind := range []string{v1alpha1.ConditionAdmitted, v1alpha1.ConditionRunLockRenewed, v1alpha1.ConditionSucceeded} {
		c := meta.FindStatusCondition(run.Status.Conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		said = append(said, fmt.Sprintf("%s=%s %s: %s", kind, c.Status, c.Reason, c.Message))
	}
	if len(said) == 0 {
		return "it says nothing"
	}
	return strings.Join(said, "; ")
}

// numbers are what users feel, beside what docs/benchmarks has published.
func (f facts) numbers() []Number {
	var all []Number
	if n := len(f.HandOvers); n > 0 {
		sorted := slices.Sorted(slices.Values(f.HandOvers))
		all = append(all,
			Number{Name: "last result to next job, p50", Here: millis(sorted[n/2]), Published: published("p50")},
			Number{Name: "last result to next job, p99", Here: millis(sorted[min(n-1, n*99/100)]), Published: published("p99")})
	}
	if f.Watched > 0 {
		all = append(all, Number{Name: "status writes a run", Here: fmt.Sprintf("%.1f", float64(f.Writes)/float64(f.Watched))})
	}
	for _, d := range f.Done {
		if !d.happened() {
			continue
		}
		all = append(all, Number{Name: "longest time without a result after " + string(d.Fault), Here: millis(d.Stall)})
	}
	return all
}

// published is a figure of the suite latency at half load; "" if it is not there.
func published(name string) string {
	ms, err := benchmarks.Latency("result to next job", "half load", name)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%.0f ms", ms)
}

func millis(d time.Duration) string {
	return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
}
