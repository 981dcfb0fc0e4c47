// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// perLongText is what a decision may allocate more for a text of 95 KiB than for one of 8 KiB,
// which is longer than all that is kept of it.
const perLongText = 8 << 10

// longTexts are what others may say of a job at length, and in letters that are not printable.
var longTexts = map[string]func(in *Input, id protocol.JobID, text string){
	"failed": said(func(r *Result, text string) {
		r.Result.Status, r.Result.Error = protocol.StatusFailed, &protocol.ResultError{Message: text}
	}),
	"code": said(func(r *Result, text string) {
		r.Result.Status, r.Result.Error = protocol.StatusFailed, &protocol.ResultError{Code: text}
	}),
	"later": said(func(r *Result, text string) {
		r.Result = protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: 5000, Error: &protocol.ResultError{Message: text}}
	}),
	"unusable":   said(func(r *Result, text string) { r.Rejected = text }),
	"odd status": said(func(r *Result, text string) { r.Result.Status = protocol.ResultStatus(text) }),
	"dead letter": func(in *Input, id protocol.JobID, text string) {
		in.DeadLetters = append(in.DeadLetters, DeadLetter{ID: id, Failures: 3, Cause: text})
	},
}

func said(what func(r *Result, text string)) func(*Input, protocol.JobID, string) {
	return func(in *Input, id protocol.JobID, text string) {
		r := Result{ID: id}
		what(&r, text)
		in.Results = append(in.Results, r)
	}
}

// atLength are the facts of a decision about so many jobs, each with a text of so many bytes.
func atLength(t *testing.T, kind string, items bool, n, size int) Input {
	t.Helper()
	run := fanOut(n, int32(n), v1alpha1.Collect)
	if !items {
		run.Spec.Steps = nil
		for i := range n {
			run.Spec.Steps = append(run.Spec.Steps, newStep(fmt.Sprint("s", i)))
			run.Spec.Steps[i].OnFailure = v1alpha1.FailureContinue
		}
		run.Spec.MaxParallelSteps = int32(n)
	}
	advance(t, run, epoch)
	in := letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1)})
	for _, id := range InFlight(run) {
		longTexts[kind](&in, id, strings.Repeat("line\r\n", size/6))
	}
	return in
}

// costsNoMore says that a long text costs no more than one that is as long as what is kept of it,
// and becomes the same.
func costsNoMore(t *testing.T, n int, with func(size int) Input) Decision {
	t.Helper()
	short, long := with(8<<10), with(95<<10)
	var want, got Decision
	usual := allocated(func() { want = objects{}.decide(short) })
	bytes := allocated(func() { got = objects{}.decide(long) })
	t.Logf("%d KiB allocated for short texts, %d KiB for long ones", usual>>10, bytes>>10)
	if most := usual + uint64(n)*perLongText; bytes > most {
		t.Errorf("%d texts of 95 KiB allocate %d bytes, more than %d", n, bytes, most)
	}
	if diff := cmp.Diff(want, got); diff != "" || !got.Changed {
		t.Errorf("changed %t; what becomes of a long text (-short +long):\n%s", got.Changed, diff)
	}
	return got
}

// A fan-out fails, and each worker sends the trace of its stack: hundreds of results with 95 KB
// each are one batch. A line is kept of each.
//
// mutations: Printable that cuts at the end; askLater or rejectItem with the whole text, OfItem
// of it.
func TestALongTextCostsNoMoreThanWhatIsKeptOfIt(t *testing.T) {
	for kind := range longTexts {
		for what, items := range map[string]bool{"steps": false, "items": true} {
			t.Run(kind+", "+what, func(t *testing.T) {
				const n = 40
				out := costsNoMore(t, n, func(size int) Input { return atLength(t, kind, items, n, size) })
				for k, why := range out.Rejected {
					if utf8.RuneCountInString(why) > bounds.MaxErrorChars {
						t.Errorf("result %d is put aside for a reason of %d bytes", k, len(why))
					}
				}
			})
		}
	}
}

// mutations: an event of a wait that is made of the whole text; texts.fit that cuts at the end.
func TestALongTextOfAnApproverCostsNoMoreThanWhatIsKeptOfIt(t *testing.T) {
	const n = 4 // a spec has 512 KiB
	costsNoMore(t, n, func(size int) Input {
		text, run := strings.Repeat("line\r\n", size/6), newRun()
		run.Spec.MaxParallelSteps = n
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1)})
		for i := range n {
			run.Spec.Steps = append(run.Spec.Steps, newStep(fmt.Sprint("s", i), approval(func(a *v1alpha1.Approval) { a.Message = text })))
			in.Signals = append(in.Signals, Signal{
				Step: fmt.Sprint("s", i), Name: text, Approver: text, Comment: text, Decision: v1alpha1.Approve, At: epoch,
			})
		}
		return in
	})
}

// What is said of a result takes its time whatever becomes of it, and many are one batch.
//
// mutations: applyResults, or catchUpStep, without a rest after each.
func TestADecisionRestsAfterEachResult(t *testing.T) {
	const n = 40
	for kind := range longTexts {
		t.Run(kind, func(t *testing.T) {
			in, pauses := atLength(t, kind, true, n, 8<<10), 0
			in.Pause = func() { pauses++ }
			Decide(in)
			if pauses < len(in.Results) {
				t.Errorf("%d results, %d pauses", len(in.Results), pauses)
			}
		})
	}
	run := newRun(newStep("a"), newStep("b"))
	advance(t, run, epoch)
	advance(t, run, epoch, succeeded("a", 1, "7"))
	pauses := 0
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Pause: func() { pauses++ }})
	for range n {
		in.Results = append(in.Results, succeeded("a", 1, "["+strings.Repeat("1,", 1<<10)+"1]"))
	}
	if Decide(in); pauses < n {
		t.Errorf("%d results that are of no use any more, %d pauses", n, pauses)
	}

	run = leftAhead(t, nil, newStep("a"), newStep("b", after("a")))
	pauses = 0
	in = letIn(Input{Run: run, Now: epoch.Add(time.Second), Lock: held(1), Pause: func() { pauses++ }, Results: []Result{succeeded("a", 1, "7")}})
	for range n {
		in.Results = append(in.Results, succeeded("b", 1, "["+strings.Repeat("1,", 1<<10)+"1]"))
	}
	if Decide(in); pauses < 2*n { // once as ahead, once as applied
		t.Errorf("%d results to an attempt ahead, %d pauses", n, pauses)
	}
}
