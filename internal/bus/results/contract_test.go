// SPDX-License-Identifier: Apache-2.0

package results

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var updateContract = flag.Bool("update-contract", false, "rewrite docs/protocol/contract.json")

const contractFile = "../../../docs/protocol/contract.json"

// table is a part of the contract. docs/protocol.md has the same table under the same heading; the
// test of docs/protocol compares the page with the file, and this one the file with the code.
type table struct {
	Title   string              `json:"title"`
	Columns []string            `json:"columns"`
	Rows    []map[string]string `json:"rows"`
}

func newTable(title string, columns ...string) *table { return &table{Title: title, Columns: columns} }

func (t *table) add(cells ...string) {
	row := map[string]string{}
	for i, column := range t.Columns {
		row[column] = cells[i]
	}
	t.Rows = append(t.Rows, row)
}

// settlements asks the code what becomes of a delivery, for each kind of error.
func settlements(t *testing.T) *table {
	t.Helper()
	out := newTable("What becomes of a result", "the operator's error", "the message", "again", "class", "counts")
	const own, d = bus.ClassLockBusy, 1500 * time.Millisecond
	for _, kind := range []struct {
		name string
		err  error
	}{
		{"none: the result is applied, a duplicate, or stale", nil},
		{"permanent, with a reason", Permanent("r", nil)},
		{"permanent, and a delay", errors.Join(&otherError{delay: d, class: own}, Permanent("r", nil))},
		{"`RetryDelay()` d > 0, and a class", &otherError{delay: d, class: own}},
		{"`RetryDelay()` above the limit, and a class", &otherError{delay: math.MaxInt64, class: own}},
		{"`RetryDelay()` d <= 0, and a class", &otherError{delay: -1, class: own}},
		{"`RetryDelay()` d > 0, no class or one that nobody knows", &otherError{delay: d, class: "run-4711"}},
		{"`RetryClass()` only", classOnly(own)},
		{"a cancelled context", context.Canceled},
		{"any other", errors.New("x")},
	} {
		out.add(append([]string{kind.name}, described(t, verdictOf(kind.err, defaultNakDelay), d, own)...)...)
	}
	out.add(append([]string{"permanent, but the dead letter cannot be stored"}, described(t, unburied(defaultNakDelay), d, own)...)...)
	out.add("none: the operator stops first", drained(), "at once; of a backlog 16 MiB a second", "-", "no")
	return out
}

// described is a verdict in words: the message, when it comes again, class, whether it counts.
func described(t *testing.T, v verdict, asked time.Duration, own string) []string {
	t.Helper()
	switch v.action {
	case actionAck:
		return []string{"ack, confirmed by the server", "never", "-", "-"}
	case actionDeadLetter:
		return []string{"dead letter, its PubAck, then Term with the reason", "never", "-", "-"}
	case actionNak:
	}
	again, ok := map[time.Duration]string{0: "at once", asked: "after d", defaultNakDelay: "after " + jitterRange(t, v.delay)}[v.delay]
	if !ok {
		again = "after " + v.delay.String()
	}
	class, counts := v.class, yes(CountsAsFailure(v.class))
	if class == own {
		class, counts = "the error's", "as its class"
	}
	return []string{"NAK", again, class, counts}
}

// jitterRange is what becomes of a delay by the bus's jitter.
func jitterRange(t *testing.T, d time.Duration) string {
	t.Helper()
	at := func(r float64) string {
		return bustest.Offline(t, bus.Config{Rand: func() float64 { return r }}).Jittered(d).Round(time.Millisecond).String()
	}
	return at(0) + " to " + at(1)
}

// drained is what the end of Consume sends for a delivery that is open.
func drained() string {
	var sent []string
	l := newLedger(newReturns())
	d := &Delivery{ledger: l, receipt: wire{name: "m", sent: &sent}}
	l.admit(d, time.Time{}, nil)
	if _, err := l.drain(time.Unix(1000, 0)); err != nil || !cmp.Equal(sent, []string{"m nak"}) {
		return fmt.Sprintf("%v (%v)", sent, err)
	}
	return "NAK"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// classTable has every class that the code knows. A class without a meaning here is shown as such,
// and not in the golden file.
func classTable() *table {
	meanings := map[string]string{
		bus.ClassLockBusy:         "somebody else has the run's lock",
		bus.ClassStoreUnavailable: "Redis or the API server cannot be used now",
		bus.ClassPublishFailed:    "the API server refuses the write of the result; or the dead letter cannot be stored",
		bus.ClassWorkerRequested:  "the worker said Retry; the run waits, not the message",
		bus.ClassShutdown:         "the operator stops",
		bus.ClassAhead:            "the result is of an attempt that the run does not know, read live",
		bus.ClassInboxFull:        "too many results wait in memory",
		bus.ClassCauseAwaited:     "of an attempt that was dispatched ahead of status, and what it follows from has not come yet",
		bus.ClassNeedsNewer:       "the run needs an operator of a newer version",
		bus.ClassUnknown:          "an error that says nothing of it",
	}
	out := newTable("Classes of waits", "class", "means", "counts")
	for _, c := range classes() {
		out.add("`"+c+"`", meanings[c], yes(CountsAsFailure(c)))
	}
	return out
}

func reasonTable() *table {
	out := newTable("Reasons of dead letters", "reason", "of a result")
	out.add("`"+deadletters.ReasonUndecodable+"`", "whose subject names no job")
	out.add("`"+deadletters.ReasonRejected+"`", "whose token is missing or wrong")
	out.add("`"+deadletters.ReasonResultRejected+"`", "with a valid token and a body that is no result, or whose output cannot be used; the attempt has failed, or was answered before")
	out.add("`"+deadletters.ReasonDeliveriesExhausted+"`", "of which `delivery.maxDeliveries` deliveries failed and counted")
	return out
}

func consumerTable(t *testing.T) *table {
	t.Helper()
	c := offline(t, bus.Config{}, Options{}).config(0)
	out := newTable("Consumers of results", "setting", "value")
	out.add("durable", "`"+strings.TrimSuffix(c.Durable, "00")+"<partition>`, in two digits, from 00 to "+strconv.Itoa(protocol.Partitions-1))
	out.add("filter", fmt.Sprintf("one of the %d partitions each", protocol.Partitions))
	out.add("AckPolicy", c.AckPolicy.String())
	out.add("AckWait", c.AckWait.String())
	out.add("InProgress while a result waits", fmt.Sprintf("%d times per AckWait", keepAlives))
	out.add("MaxDeliver", strconv.Itoa(c.MaxDeliver))
	out.add("BackOff", fmt.Sprintf("%d entries", len(c.BackOff)))
	out.add("MaxAckPending", strconv.Itoa(c.MaxAckPending))
	out.add("expiry of a pull, heartbeat", pullExpiry.String()+", "+pullHeartbeat.String())
	out.add("watchdog: nothing comes though messages wait", stallAfter.String())
	out.add("longest delay of a NAK", maxNakDelay.String())
	return out
}

// The contract is what the code does. Tried:
// mutation: another default delay, class, count, AckWait or MaxDeliver in the code makes this fail;
// so does an edit of the file.
func TestTheContractIsWhatTheCodeDoes(t *testing.T) {
	var got bytes.Buffer
	encoder := json.NewEncoder(&got)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode([]*table{settlements(t), classTable(), reasonTable(), consumerTable(t)}); err != nil {
		t.Fatal(err)
	}
	if *updateContract {
		if err := os.WriteFile(contractFile, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(contractFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("the contract is another one; -update-contract rewrites it, and docs/protocol.md follows (-file +code):\n%s", diff)
	}
}

// mutation: counting every class, or none, makes this fail; contention would make dead letters.
func TestOnlyFailuresOfProcessingCount(t *testing.T) {
	want := map[string]bool{
		"lock_busy": false, "store_unavailable": false, "publish_failed": true, "worker_requested": false,
		"shutdown": false, "ahead": true, "cause_awaited": false, "inbox_full": false, "needs_newer": false, "unknown": true,
	}
	got := map[string]bool{}
	for _, c := range classes() {
		got[c] = CountsAsFailure(c)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classes that count (-want +got):\n%s", diff)
	}
}
