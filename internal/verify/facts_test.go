// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"context"
	"encoding/xml"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
)

func ended(name string) v1alpha1.WorkflowRun {
	now := metav1.Now()
	return v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: &v1alpha1.WorkflowRunStatus{ObservedGeneration: 1, Phase: v1alpha1.RunSucceeded, CompletedAt: &now}}
}

func waiting(name, reason, message string) v1alpha1.WorkflowRun {
	return v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: &v1alpha1.WorkflowRunStatus{
		ObservedGeneration: 1, Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{{Name: "a", JobID: "job"}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: reason, Message: message}},
	}}
}

func good() facts {
	return facts{
		Name: "n", Seed: 7, Took: time.Minute, Patience: 5 * time.Minute, Bound: Bound, Figures: book.Figures{Answered: 20, Duplicates: 3, Redeliveries: 2, Uploads: 1},
		HandOvers: []time.Duration{9 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond}, Runs: []v1alpha1.WorkflowRun{ended("a"), ended("b")}, Writes: 9, Watched: 2,
	}
}

// mutation: each check that takes no notice of what it is about, a stall that may be as long as it
// likes, and a fault that did not happen and is taken for one that did, make a row fail.
func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(*facts)
		wrong, untold int
		says          []string
	}{
		"all is well": {func(*facts) {}, 0, 0, []string{
			"2 of 2 runs ended in 1m0s", "20 results; 3 were said again, 2 jobs came again, 1 outputs", "p50   5 ms", "p99   9 ms", "status writes a run           4.5",
		}},
		"a result is lost":  {func(f *facts) { f.Verdict = []string{"lost: job x"} }, 1, 0, []string{"I1 I2   FAILED", "lost: job x"}},
		"a fence goes back": {func(f *facts) { f.Wrong = []string{"I3: the fence"} }, 1, 0, []string{"I3      FAILED", "  the fence"}},
		"too many at once":  {func(f *facts) { f.Wrong = []string{"I4: 7 runs"} }, 1, 0, []string{"I4      FAILED", "  7 runs"}},
		"runs wait": {func(f *facts) {
			f.Runs = append(f.Runs, waiting("c", "Waiting", "for the lock"), waiting("d", "Waiting", "for the lock"), v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "e"}})
		}, 1, 1, []string{"2 of 5 runs ended", "2 runs, say c: Succeeded=Unknown Waiting: for the lock", "1 runs, say e: no operator has looked at it", "not judged"}},
		"workers get nothing": {func(f *facts) {
			f.Runs, f.Figures = []v1alpha1.WorkflowRun{waiting("c", "Waiting", "for workers")}, book.Figures{}
		}, 1, 1, []string{"no worker got one"}},
		"a short stall":  {func(f *facts) { f.Done = []Done{{Fault: FlushRedis, What: "all keys", Stall: Bound}} }, 0, 0, []string{"I5      ok", "after flush-redis   45000 ms"}},
		"a long stall":   {func(f *facts) { f.Done = []Done{{Fault: FlushRedis, What: "all keys", Stall: Bound + 1}} }, 1, 0, []string{"I5      FAILED", "flush-redis: 45s"}},
		"a slow cluster": {func(f *facts) { f.Bound, f.Done = time.Minute, []Done{{Fault: FlushRedis, Stall: time.Minute}} }, 0, 0, []string{"I5 ok", "more than 1m0s apart"}},
		"nothing came after it": {func(f *facts) {
			f.Done, f.Runs = []Done{{Fault: FlushRedis, What: "all keys"}}, append(f.Runs, waiting("c", "Waiting", "for the lock"))
		}, 1, 2, []string{"I5 unknown", "not judged: not all runs ended"}},
		"a long stall to the end": {func(f *facts) {
			f.Done, f.Runs = []Done{{Fault: FlushRedis, What: "all keys", Stall: Bound + 1}}, append(f.Runs, waiting("c", "Waiting", "for the lock"))
		}, 2, 1, []string{"I5 FAILED", "flush-redis: 45s"}},
		"no fault":      {func(f *facts) { f.Done = []Done{{Fault: RestartOperator, What: notDone + "no"}} }, 0, 1, []string{"I5      unknown", "restart-operator did not happen: no"}},
		"much is wrong": {func(f *facts) { f.Verdict = strings.Split(strings.Repeat("lost,", maxTold+2), ",") }, 1, 0, []string{"and 3 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := good()
			c.change(&f)
			r := f.report()
			if wrong, untold := r.Count(); wrong != c.wrong || untold != c.untold {
				t.Errorf("%d wrong, %d untold; want %d, %d", wrong, untold, c.wrong, c.untold)
			}
			var out bytes.Buffer
			if err := r.Table(&out); err != nil {
				t.Fatal(err)
			}
			said := strings.Join(strings.Fields(out.String()), " ")
			for _, want := range c.says {
				if !strings.Contains(said, strings.Join(strings.Fields(want), " ")) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
			checkJUnit(t, r, c.wrong, c.untold)
		})
	}
}

func checkJUnit(t *testing.T, r Report, wrong, untold int) {
	t.Helper()
	var out bytes.Buffer
	if err := r.JUnit(&out); err != nil {
		t.Fatal(err)
	}
	var s junitSuite
	if err := xml.Unmarshal(out.Bytes(), &s); err != nil {
		t.Fatal(err)
	}
	failures, skipped := 0, 0
	for _, c := range s.Cases {
		if c.Failure != nil {
			failures++
		}
		if c.Skipped != nil {
			skipped++
		}
	}
	if s.Tests != len(r.Checks) || s.Failures != wrong || failures != wrong || s.Skipped != untold || skipped != untold {
		t.Errorf("%+v", s)
	}
}

// mutation: faults that forgets those that it did not come to makes this fail.
func TestAFaultThatTheTimeDidNotReachIsTold(t *testing.T) {
	over, stop := context.WithCancel(t.Context())
	stop()
	trial := &trial{Options: Options{Clock: clock.RealClock{}, Faults: []Fault{RestartWorker, FlushRedis}}, ledger: book.New(), size: book.Size{Runs: 1, Steps: 8}}
	trial.faults(over)
	f := good()
	f.Done = trial.done
	r := f.report()
	if wrong, untold := r.Count(); wrong != 0 || untold != 1 || len(r.Faults) != 2 {
		t.Errorf("%d wrong, %d untold, of %+v", wrong, untold, r.Faults)
	}
	for _, n := range r.Numbers {
		if strings.HasPrefix(n.Name, "longest time without a result") {
			t.Errorf("a fault that did not happen has a number: %+v", n)
		}
	}
}

func TestPublishedFiguresAreThere(t *testing.T) {
	for _, name := range []string{"p50", "p99"} {
		if published(name) == "" {
			t.Errorf("%s is not published any more", name)
		}
	}
}
