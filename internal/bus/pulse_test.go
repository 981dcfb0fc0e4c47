package bus

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

// outageKnown is how soon an outage has to be known, with room for a machine under load.
const outageKnown = 5 * time.Second

func watch(t *testing.T, b *Bus) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() { b.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
}

// The server is stopped, not closed: its connections stay open, and nothing answers.
func TestAStoppedServerIsKnownSoon(t *testing.T) {
	t.Parallel()
	s := natstest.StartProcess(t)
	c := Config{URL: s.URL(), Keys: Keyring{Current: testKey}, Log: testLog(t)}
	b, err := Connect(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(context.WithoutCancel(t.Context())) })
	eventually(t, "the bus is connected", b.connected)
	if err := b.repairStreams(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), testJob(1)); err != nil {
		t.Fatal(err)
	}
	watch(t, b)
	if at := b.Outage(); !at.IsZero() || !b.Connected() {
		t.Fatalf("an outage since %s", at)
	}

	s.Pause()
	stopped := time.Now()
	err = b.Publish(t.Context(), testJob(2)) // under way when the outage is noticed
	if took := time.Since(stopped); !errors.Is(err, ErrUnreachable) || took > outageKnown-time.Second {
		t.Errorf("a publish fails after %s with %v", took, err)
	}
	if b.Outage().IsZero() || b.Connected() {
		t.Error("the outage is not known")
	}
	if err := b.Ready(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("ready: %v", err)
	}
	at := time.Now()
	if err := b.Publish(t.Context(), testJob(3)); !errors.Is(err, ErrUnreachable) || time.Since(at) > time.Second/2 {
		t.Errorf("the next publish fails after %s with %v", time.Since(at), err)
	}
	receive(t, "the news of the outage", b.OutageChanged(), 1)

	s.Resume()
	receive(t, "the news of its end", b.OutageChanged(), 1)
	if at := b.Outage(); !at.IsZero() {
		t.Errorf("an outage since %s, though it is over", at)
	}
	eventually(t, "the bus works again", func() bool { return b.Publish(t.Context(), testJob(3)) == nil })
}

// mutation: one miss that counts, a miss that does not begin the row, or an answer that does not end it makes this fail.
func TestAnOutageIsTwoQuestionsInARow(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newPulse()
	for i, step := range []struct{ ok, changed, down bool }{
		{false, false, false},
		{true, false, false},
		{false, false, false},
		{false, true, true},
		{false, false, true},
		{true, true, false},
		{true, false, false},
		{false, false, false},
		{false, true, true},
	} {
		now := begin.Add(time.Duration(i) * time.Second)
		if changed := p.note(step.ok, now); changed != step.changed || p.known() != step.down {
			t.Errorf("step %d: changed %t, down %t", i, changed, p.known())
		}
		if i == 4 && !p.since.Equal(begin.Add(2*time.Second)) {
			t.Errorf("since %s", p.since)
		}
	}
}
