// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// eventsOf are the events of a reason.
func eventsOf(all []Event, reason string) (found []Event) {
	for _, e := range all {
		if e.Reason == reason {
			found = append(found, e)
		}
	}
	return found
}

// mutations: an event of wishes that is a warning, or that has only the error, and an error that is
// set only if the worker told one, each make cases fail.
func TestARetryOfAnItemSaysWhatTheWorkerAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		millis      int64
		err         *protocol.ResultError
		event, code string
		message     string
	}{
		"no error":         {500, nil, "asked for a retry in 500 ms", "RetryRequested", "item 1: asked for a retry in 500 ms"},
		"no time":          {0, nil, "asked for a retry", "RetryRequested", "item 1: asked for a retry"},
		"more than may be": {300000, nil, "asked for a retry in 300000 ms, more than the policy's 30s", "RetryRequested", "item 1: asked for a retry in 300000 ms, more than the policy's 30s"},
		"an error": {
			500, &protocol.ResultError{Code: "Busy", Message: "no seat"},
			"asked for a retry in 500 ms", "Busy", "item 1: no seat; asked for a retry in 500 ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")))
			advance(t, run, epoch)
			r := ofItem(1, retryIn("a", 1, c.millis))
			r.Result.Error = c.err
			out := advance(t, run, epoch, r)
			want := []Event{{Type: report.EventNormal, Reason: "ItemsBackingOff", Detail: true, Message: "Step a: items 1 come again; the worker of item 1 " + c.event}}
			if diff := cmp.Diff(want, eventsOf(out.Events, "ItemsBackingOff")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if e := run.Status.Steps[0].Error; e == nil || e.Code != c.code || e.Message != c.message {
				t.Errorf("error %+v", e)
			}
		})
	}
}

// mutations: wishes among the items that failed, and a wish that takes the place of the cause of
// others, make this fail.
func TestAFailureOfAnItemIsToldApartFromAWishOfAnother(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")))
	advance(t, run, epoch)
	out := advance(t, run, epoch, ofItem(0, failed("a", 1, "Broken", "")), ofItem(1, retryIn("a", 1, 500)))
	want := []Event{
		{Type: report.EventWarning, Reason: "ItemsBackingOff", Message: "Step a: items 0 are tried again; Broken: item 0"},
		{Type: report.EventNormal, Reason: "ItemsBackingOff", Detail: true, Message: "Step a: items 1 come again; the worker of item 1 asked for a retry in 500 ms"},
	}
	if diff := cmp.Diff(want, eventsOf(out.Events, "ItemsBackingOff")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if e := run.Status.Steps[0].Error; e == nil || e.Message != "item 1: asked for a retry in 500 ms" {
		t.Errorf("the error of item 0 is told of item 1: %+v", e)
	}
}

// mutation: postponeItem that does not ask whether items failed for good makes this fail.
func TestAWishHidesNoItemThatFailedForGood(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2]}", 2, v1alpha1.Collect), maxFailures(1)))
	advance(t, run, epoch)
	wish := ofItem(1, retryIn("a", 1, 500))
	wish.Result.Error = &protocol.ResultError{Code: "Busy"}
	advance(t, run, epoch, ofItem(0, failed("a", 1, "Broken", "")), wish)
	advance(t, run, epoch.Add(time.Second))
	advance(t, run, epoch.Add(time.Second), ofItem(1, succeeded("a", 2, "1")))
	if s := run.Status.Steps[0]; s.Phase != v1alpha1.StepSucceeded || s.Error == nil || s.Error.Code != "Broken" {
		t.Errorf("%s, error %+v", s.Phase, s.Error)
	}
}

// mutation: itemsText that cuts its whole text makes this fail.
func TestTheEventOfManyItemsHasTheirCause(t *testing.T) {
	const items = 200
	cause := strings.Repeat("ö", bounds.MaxMessageChars/2-len("item 198: "))
	for name, c := range map[string]struct {
		failures int32
		reason   string
		what     string
	}{
		"they are tried again": {3, "ItemsBackingOff", " are tried again; Broken: item 198: "},
		"they failed":          {1, "ItemsFailed", " failed; Broken: item 198: "},
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a", forEach("${"+numbers(items)+"}", items, v1alpha1.Collect), maxFailures(c.failures)))
			advance(t, run, epoch)
			var results []Result
			for item := 0; item < items; item += 2 {
				results = append(results, ofItem(item, failed("a", 1, "Broken", cause)))
			}
			all := eventsOf(advance(t, run, epoch, results...).Events, c.reason)
			if len(all) != 1 {
				t.Fatalf("events %+v", all)
			}
			text := all[0].Message
			if !strings.HasPrefix(text, "Step a: items 0,2,4,") || !strings.Contains(text, fmt.Sprintf(",... (%d in all)%s", items/2, c.what)) || !strings.HasSuffix(text, cause) {
				t.Errorf("%s", text)
			}
		})
	}
}

// mutation: a text of the dead letter without its item makes this fail.
func TestADeadLetterNamesItsItem(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")))
	advance(t, run, epoch)
	for _, item := range []int{0, 2} {
		id := ofItem(item, result("a", 1, protocol.StatusStarted)).ID
		out := givenUp(run, epoch, DeadLetter{ID: id, Failures: 3, Cause: "no"})
		want := fmt.Sprintf("Result of step a, item %d, attempt 1: put aside after 3 failed deliveries, the last one with: no", item)
		if !slices.ContainsFunc(out.Events, func(e Event) bool { return e.Type == report.EventWarning && e.Message == want }) {
			t.Errorf("item %d: %+v", item, out.Events)
		}
		run.Status = persisted(t, &out.Status)
	}
}

// Two of three items have dead letters as their answers, and the third succeeded: nothing of the
// run is with a worker, or in NATS.
//
// mutations: WaitsForWorker, or inFlight, that counts all groups, and itemsText without
// asideItemsText, each make this fail.
func TestItemsWithDeadLettersWaitForNobody(t *testing.T) {
	run := newRun(newStep("a", forEach("${[1, 2, 3]}", 3, "")))
	advance(t, run, epoch)
	for item := range 2 {
		out := givenUp(run, epoch, DeadLetter{ID: ofItem(item, result("a", 1, protocol.StatusStarted)).ID, Failures: 3, Cause: "no"})
		run.Status = persisted(t, &out.Status)
	}
	in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Workers: map[string]Workers{"t.a": {State: WorkersAbsent, Since: epoch}}, NATSDown: epoch})
	told := func(in Input) (reason, message string) {
		out := Decide(in)
		c := status.Condition(&out.Status, v1alpha1.ConditionSucceeded)
		return c.Reason, c.Message
	}
	if reason, _ := told(in); reason != v1alpha1.ReasonWaitingForNATS {
		t.Errorf("while item 2 is in flight: %s", reason)
	}
	advance(t, run, epoch, ofItem(2, succeeded("a", 1, "1")))
	const want = "a runs since 2026-11-20T10:00:00Z: 1 of 3 items are over, the answers of items 0-1 are dead letters"
	if reason, message := told(in); reason != v1alpha1.ReasonRunning || !strings.HasSuffix(message, want) {
		t.Errorf("without NATS: %s: %s", reason, message)
	}
	in.NATSDown = time.Time{}
	if reason, message := told(in); reason != v1alpha1.ReasonRunning || !strings.HasSuffix(message, want) {
		t.Errorf("without workers: %s: %s", reason, message)
	}
}
