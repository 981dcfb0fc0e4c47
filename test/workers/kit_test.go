// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func TestMain(m *testing.M) {
	// Nearly all of it is waiting, so more at a time than there are processors. -parallel
	// wins over this.
	if err := flag.Set("test.parallel", "10"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, natstest.Leaks()...)
}

// Who changes a sentence of the protocol sees here which check relies on it.
//
// mutation: a word left out of a check's sentence, or of the page, makes this fail.
func TestEveryCheckQuotesTheProtocol(t *testing.T) {
	t.Parallel()
	var pages string
	for _, page := range []string{"protocol.md", "workers.md"} {
		b, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		pages += " " + strings.Join(strings.Fields(string(b)), " ")
	}
	seen := map[string]bool{}
	for _, c := range checks() {
		if !strings.Contains(pages, c.sentence) {
			t.Errorf("check %s: no page says %q", c.id, c.sentence)
		}
		if !strings.Contains(pages, "`"+c.id+"`") {
			t.Errorf("check %s: docs/workers.md does not name it", c.id)
		}
		if seen[c.id] {
			t.Errorf("two checks %s", c.id)
		}
		seen[c.id] = true
	}
}

// operate connects an operator with its streams to a server of its own.
func operate(t *testing.T) *operator {
	t.Helper()
	return operateAt(t, Config{URL: natstest.Start(t).URL()})
}

// operateAt connects an operator, and makes its streams.
func operateAt(t *testing.T, c Config) *operator {
	t.Helper()
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	o, err := connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.close(context.WithoutCancel(t.Context())) })
	if err := o.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *operator) stream(t *testing.T, name string) jetstream.Stream {
	t.Helper()
	s, err := o.js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mutation: forge without one of the headers, with the sample's id, or with those of the
// publication, makes this fail.
func TestAForgedJobIsOneOfTheBusButForWhatIsForged(t *testing.T) {
	t.Parallel()
	o := operate(t)
	id := newJob("same")
	stored := func() *jetstream.RawStreamMsg {
		m, err := o.stream(t, o.names.JobsStream()).GetLastMsgForSubject(t.Context(), o.names.Job(DefaultTopic, id))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := o.dispatch(t.Context(), id, quick); err != nil {
		t.Fatal(err)
	}
	ofTheBus := stored()
	if err := o.withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.forge(t.Context(), id, quick.bytes(), unchanged); err != nil {
		t.Fatal(err)
	}
	ofItsPublication := cmpopts.IgnoreMapEntries(func(name string, _ []string) bool { return strings.HasPrefix(name, "Nats-Expected-") })
	if diff := cmp.Diff(ofTheBus, stored(), ofItsPublication, cmpopts.IgnoreFields(jetstream.RawStreamMsg{}, "Sequence", "Time")); diff != "" {
		t.Errorf("job (-bus +forged):\n%s", diff)
	}
}

// mutation: a makeConsumer with a setting of its own makes this fail.
func TestTheConsumerIsThatOfTheBusButForAckWait(t *testing.T) {
	t.Parallel()
	o := operate(t)
	if err := o.jobs.Publish(t.Context(), jobs.Job{ID: newJob("a"), Topic: "another"}); err != nil {
		t.Fatal(err)
	}
	config := func(topic string) jetstream.ConsumerConfig {
		c, err := o.stream(t, o.names.JobsStream()).Consumer(t.Context(), protocol.Durable(topic))
		if err != nil {
			t.Fatal(err)
		}
		return c.CachedInfo().Config
	}
	want := config("another")
	want.Name, want.Durable = protocol.Durable(DefaultTopic), protocol.Durable(DefaultTopic)
	want.FilterSubject, want.AckWait = o.names.TopicJobs(DefaultTopic), DefaultAckWait
	if diff := cmp.Diff(want, config(DefaultTopic)); diff != "" {
		t.Errorf("consumer (-bus +kit):\n%s", diff)
	}
	err := o.bus.EnsureStreams(t.Context())
	drift := (*bus.DriftError)(nil)
	if !errors.As(err, &drift) || len(drift.Drifts) != 1 || drift.Drifts[0].Field != "duplicate_window" {
		t.Errorf("streams differ from those of the bus: %v", err)
	}
}

// mutation: prepare that does not look, or close that leaves streams behind, makes this fail.
func TestStreamsThatAreThereAreLeftAlone(t *testing.T) {
	t.Parallel()
	o := operate(t)
	c := Config{URL: o.config.URL, Skip: IDs()}
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrStreamsExist) {
		t.Fatalf("got %v", err)
	}
	o.stream(t, o.names.JobsStream())
	c.Reset = true
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Reset = false
	if _, err := Run(t.Context(), c); err != nil { // the run before left none
		t.Fatal(err)
	}
}

func TestWhatTheKitCannotDoIsSkipped(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	var skip []string
	for _, c := range checks() {
		if c.needs == nothing && c.id != "reply" {
			skip = append(skip, c.id)
		}
	}
	worker, err := startRaw(s.URL(), none)()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := worker.Kill(); err != nil {
			t.Error(err)
		}
	}()
	outcomes, err := Run(t.Context(), Config{URL: s.URL(), Concurrency: 1, AckWait: rawAckWait, Skip: skip})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range outcomes {
		if o.Verdict != OK && o.Detail != "as asked" {
			got[o.ID] = string(o.Verdict) + ": " + o.Detail
		}
	}
	const server, command = "skipped: needs a NATS server of the kit's own", "skipped: needs the command that starts the worker"
	want := map[string]string{
		"overlap": "skipped: needs a worker that does several jobs at a time", "killed": command, "shutdown": command, "secret": command,
		"restart-working": server, "restart-idle": server, "half-done": command + " with a short grace period",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// mutation: a check that takes a failure for what References asks for, or that never does,
// makes this fail.
func TestAWorkerWithoutAnObjectStorePassesUnlessItNeedsOne(t *testing.T) {
	t.Parallel()
	skip := slices.DeleteFunc(IDs(), func(id string) bool {
		return slices.Contains([]string{"large-output", "claim-check", "stored-first", "over-limit"}, id)
	})
	for needed, want := range map[bool]map[string]Verdict{
		false: {"large-output": OK, "claim-check": OK, "stored-first": OK, "over-limit": OK},
		true:  {"large-output": OK, "claim-check": Failed, "stored-first": Failed, "over-limit": OK},
	} {
		s := natstest.Start(t)
		outcomes, err := Run(t.Context(), Config{URL: s.URL(), AckWait: rawAckWait, Skip: skip, References: needed, Start: startRaw(s.URL(), hasNoStore)})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Verdict{}
		for _, o := range outcomes {
			if o.Verdict != Skipped {
				got[o.ID] = o.Verdict
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("needed: %t (-want +got):\n%s", needed, diff)
		}
	}
}

func TestAnUnusableConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"a check that does not exist":         {Skip: []string{"nonsense"}},
		"no concurrency":                      {Concurrency: -1},
		"an AckWait too short to ping within": {AckWait: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Run(t.Context(), c); !errors.Is(err, errConfig) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// mutation: Kill without the group leaves the sleep, whose output keeps Wait from returning, and
// this times out.
func TestAProgramIsKilledWithWhatItStarted(t *testing.T) {
	t.Parallel()
	p := script(t, `echo begun; sleep 600; echo after`)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Output() != "begun\n" {
		t.Errorf("output %q", p.Output())
	}
}

func TestHowAProgramEndsIsTold(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script   string
		patience time.Duration
		fails    bool
	}{
		"in peace":                         {`trap 'exit 0' TERM; echo begun; while :; do sleep 0.01; done`, DefaultPatience, false},
		"with an exit code":                {`trap 'exit 3' TERM; echo begun; while :; do sleep 0.01; done`, DefaultPatience, true},
		"by the signal":                    {`echo begun; exec sleep 600`, DefaultPatience, true},
		"not, and is killed":               {`trap '' TERM; echo begun; while :; do sleep 0.01; done`, time.Second, true},
		"before it was asked to, in peace": {`echo begun`, DefaultPatience, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			defer cancel()
			if err := script(t, c.script).Terminate(ctx); (err != nil) != c.fails {
				t.Errorf("got %v", err)
			}
		})
	}
}

// script starts a shell and waits until it has said something.
func script(t *testing.T, text string) Process {
	t.Helper()
	p, err := Command{Args: []string{"sh", "-c", text}}.Start()
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(DefaultPatience)
	for p.Output() == "" {
		select {
		case <-deadline:
			t.Fatal("the shell says nothing")
		case <-time.After(look):
		}
	}
	return p
}
