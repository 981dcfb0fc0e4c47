// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// wire is a message that notes what is sent about it.
type wire struct {
	jetstream.Msg
	name string
	sent *[]string
}

func (w wire) note(what string) error {
	*w.sent = append(*w.sent, w.name+" "+what)
	return nil
}

func (w wire) Nak() error                         { return w.note("nak") }
func (w wire) NakWithDelay(d time.Duration) error { return w.note("nak " + d.String()) }
func (w wire) DoubleAck(context.Context) error    { return w.note("double ack") }
func (w wire) Ack() error                         { return w.note("ack") }
func (w wire) InProgress() error                  { return w.note("in progress") }
func (w wire) TermWithReason(reason string) error { return w.note("term " + reason) }

func TestTheLedger(t *testing.T) {
	const first, second = "first", "second"
	now := time.Unix(1000, 0)
	noGap := func(string, time.Duration, time.Duration) {}
	for name, c := range map[string]struct {
		story func(t *testing.T, l *ledger, deliver func(string) *Delivery)
		want  []string
	}{
		// mutation: admit without the look at what is held makes this fail with two live deliveries
		// of one message
		"a redelivery of a held message renews it and is not handed out": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				d := deliver(first)
				_ = l.admit(d, now, noGap)
				if got := l.admit(deliver(second), now, noGap); got != renewed {
					t.Errorf("second admission: %d, want renewed", got)
				}
				_ = l.keepAlive(now)
				_, _ = l.claim(d)
				_ = l.giveBack(d, verdict{action: actionNak, delay: time.Second}, now)
			},
			want: []string{"second in progress", "second nak 1s"},
		},
		// mutation: no drop in settled makes this fail: InProgress would turn the
		// delay into AckWait
		"nothing is said about a message after its NAK": {
			story: func(_ *testing.T, l *ledger, deliver func(string) *Delivery) {
				d := deliver(first)
				_ = l.admit(d, now, noGap)
				_, _ = l.claim(d)
				_ = l.keepAlive(now)
				_ = l.giveBack(d, verdict{action: actionNak}, now)
				_ = l.keepAlive(now)
			},
			want: []string{"first in progress", "first nak 0s"},
		},
		// mutation: drop by key alone makes this fail: the redelivery would not be kept
		"a redelivery during an ack is a delivery of its own": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				d, again := deliver(first), deliver(second)
				_ = l.admit(d, now, noGap)
				_, _ = l.claim(d)
				_ = l.take(d)
				if got := l.admit(again, now, noGap); got != admitted {
					t.Errorf("admission: %d, want admitted", got)
				}
				l.finish(d)
				_ = l.keepAlive(now)
			},
			want: []string{"second in progress"},
		},
		// mutation: no look at the state in drain makes this fail: it would give back what
		// is being acknowledged
		"the drain leaves alone what is being settled, and waits for it": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				d := deliver(first)
				_ = l.admit(d, now, noGap)
				_, _ = l.claim(d)
				idle, err := l.drain(time.Unix(1000, 0))
				if err != nil || bustest.Closed(idle) {
					t.Errorf("drain: %v, idle %t", err, bustest.Closed(idle))
				}
				_ = l.terminate(d, "r")
				if !bustest.Closed(idle) { // mutation: no signalIdle in settled
					t.Error("the drain still waits")
				}
			},
			want: []string{"first term r"},
		},
		// mutation: no look at draining in admit makes this fail
		"what comes after the drain is given back at once": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				open := deliver(first)
				_ = l.admit(open, now, noGap)
				idle, _ := l.drain(time.Unix(1000, 0))
				late := deliver(second)
				if got := l.admit(late, now, noGap); got != refused || !bustest.Closed(idle) {
					t.Errorf("admission: %d, idle %t", got, bustest.Closed(idle))
				}
				if ok, err := l.claim(open); ok || !errors.Is(err, ErrDrained) {
					t.Errorf("claim: %t, %v", ok, err)
				}
			},
			want: []string{"first nak", "second nak"},
		},
		// mutation: no pace, or a drain in another order than that of the stream, makes this fail
		"of a backlog that is given back the first few bytes come at once, and the rest is spread": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				for i, size := range []int{freeReturn, returnBytes / 16, returnBytes / 8} {
					d := deliver(fmt.Sprint(i))
					d.key.sequence, d.Size = uint64(i), size
					_ = l.admit(d, now, noGap)
				}
				if _, err := l.drain(now); err != nil {
					t.Error(err)
				}
				late := deliver("late")
				late.Size = returnBytes / 16
				_ = l.admit(late, now, noGap)
			},
			want: []string{"0 nak", "1 nak 1.0625s", "2 nak 1.1875s", "late nak 1.25s"},
		},
		"a gap is measured once, with the class that was asked for": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				d := deliver(first)
				_ = l.admit(d, now, noGap)
				_, _ = l.claim(d)
				_ = l.giveBack(d, verdict{action: actionNak, delay: time.Second, class: bus.ClassLockBusy}, now)
				var measured []string
				note := func(class string, asked, gap time.Duration) {
					measured = append(measured, fmt.Sprintf("%s %s %s", class, asked, gap))
				}
				_ = l.admit(deliver(second), now.Add(1500*time.Millisecond), note)
				_ = l.admit(deliver(second), now.Add(3*time.Second), note)
				if diff := cmp.Diff([]string{"lock_busy 1s 1.5s"}, measured); diff != "" {
					t.Errorf("gaps (-want +got):\n%s", diff)
				}
			},
			want: []string{"first nak 1s"},
		},
		// mutation: failures of the delivery instead of the message, or a count of every class,
		// makes this fail
		"failures are counted over the deliveries of a message, and contention is not": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				for i, c := range []struct {
					class  string
					before int
				}{
					{bus.ClassPublishFailed, 0},
					{bus.ClassLockBusy, 1},
					{bus.ClassShutdown, 1},
					{bus.ClassAhead, 1},
					{bus.ClassInboxFull, 2},
					{bus.ClassStoreUnavailable, 2},
					{bus.ClassUnknown, 2},
					{bus.ClassUnknown, 3},
				} {
					d := deliver(first)
					if got := l.admit(d, now, noGap); got != admitted || d.Failures != c.before {
						t.Errorf("delivery %d: admission %d, %d failures before; want %d", i, got, d.Failures, c.before)
					}
					_, _ = l.claim(d)
					_ = l.giveBack(d, verdict{action: actionNak, delay: time.Second, class: c.class}, now)
				}
			},
			want: slices.Repeat([]string{"first nak 1s"}, 8),
		},
		// mutation: no bound, or none of its own for those that did not fail, makes this fail
		"of messages that did not fail so many gaps are kept, and they take no place of those that did": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				for i := range 2 * maxMeasured {
					l.remember(messageKey{sequence: uint64(i + 2)}, gap{class: bus.ClassLockBusy})
				}
				if len(l.gaps) != maxMeasured {
					t.Errorf("%d gaps are kept", len(l.gaps))
				}
				failsOnce(t, l, deliver(first), deliver(second), 1)
			},
			want: []string{"first nak 0s"},
		},
		// mutation: a bound that does not tell runs apart makes this fail: the neighbour's poison
		// is never put aside
		"a run whose messages all fail takes no place of another's": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				for i := range 2 * maxGaps {
					l.remember(messageKey{sequence: uint64(i + 2)}, gap{run: "hot", failures: 1})
				}
				if len(l.gaps) >= maxGaps {
					t.Errorf("one run has %d gaps", len(l.gaps))
				}
				failsOnce(t, l, deliver(first), deliver(second), 1)
			},
			want: []string{"first nak 0s"},
		},
		// mutation: no bound makes this fail
		"beyond the bound a message begins a new count": {
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				for i := range 2 * maxGaps {
					l.remember(messageKey{sequence: uint64(i + 2)}, gap{run: strconv.Itoa(i), failures: 1})
				}
				failsOnce(t, l, deliver(first), deliver(second), 0)
				if len(l.gaps) != maxGaps {
					t.Errorf("%d in memory", len(l.gaps))
				}
				l.keepAlive(now.Add(24 * time.Hour)) //nolint:errcheck // nothing is held but the second, which notes it
				if l.failed.Used() != 0 {
					t.Errorf("%d places are taken after all is forgotten", l.failed.Used())
				}
			},
			want: []string{"first nak 0s", "second in progress"},
		},
		"gaps that nobody closes are forgotten": { // mutation: no clean-up in keepAlive
			story: func(t *testing.T, l *ledger, deliver func(string) *Delivery) {
				d := deliver(first)
				_ = l.admit(d, now, noGap)
				_, _ = l.claim(d)
				_ = l.giveBack(d, verdict{action: actionNak, delay: time.Hour}, now)
				_ = l.keepAlive(now.Add(time.Hour))
				if len(l.gaps) != 1 {
					t.Error("forgotten too early")
				}
				_ = l.keepAlive(now.Add(time.Hour + gapMemory + time.Second))
				if len(l.gaps) != 0 {
					t.Error("not forgotten")
				}
			},
			want: []string{"first nak 1h0m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sent []string
			l := newLedger(newReturns())
			c.story(t, l, func(name string) *Delivery {
				return &Delivery{ledger: l, ID: protocol.JobID{RunUID: "r"}, key: messageKey{sequence: 1, storedAt: 1}, receipt: wire{name: name, sent: &sent}}
			})
			if diff := cmp.Diff(c.want, sent); diff != "" {
				t.Errorf("on the wire (-want +got):\n%s", diff)
			}
		})
	}
}

// mutation: runs that have no backlog and count as owners of a part of the rate, or runs that are
// never forgotten, make this fail.
func TestAHandOverSpreadsBacklogsAndNothingElse(t *testing.T) {
	r, now := newReturns(), time.Unix(1000, 0)
	after := func(run string, size int, at time.Time) time.Duration {
		return r.after(&Delivery{ID: protocol.JobID{RunUID: run}, Size: size}, at)
	}
	for i := range 2000 {
		if wait := after(fmt.Sprint("small-", i), 100, now); wait != 0 {
			t.Fatalf("a small one waits %s", wait)
		}
	}
	if wait := after("single", freeReturn+1, now); wait >= firstReturn {
		t.Errorf("a single result waits %s", wait)
	}
	due := map[time.Duration]int{} // bytes by second
	for _, run := range []string{"one", "other"} {
		for range 128 {
			due[after(run, returnBytes/64, now).Truncate(time.Second)] += returnBytes / 64
		}
	}
	for second, bytes := range due {
		if bytes > 2*returnBytes {
			t.Errorf("after %s come %d bytes", second, bytes)
		}
	}
	if wait := after("one", freeReturn, now.Add(longestReturn)); wait != 0 || len(r.runs) != 1 {
		t.Errorf("a while later it waits %s, %d runs are remembered", wait, len(r.runs))
	}
}

// failsOnce has a delivery fail; the next one of the same message is to know of so many failures.
func failsOnce(t *testing.T, l *ledger, d, next *Delivery, want int) {
	t.Helper()
	noGap := func(string, time.Duration, time.Duration) {}
	_ = l.admit(d, time.Unix(1000, 0), noGap)
	_, _ = l.claim(d)
	_ = l.giveBack(d, verdict{action: actionNak, class: bus.ClassUnknown}, time.Unix(1000, 0))
	if _ = l.admit(next, time.Unix(1000, 0), noGap); next.Failures != want {
		t.Errorf("%d failures are known, want %d", next.Failures, want)
	}
}

// mutation: Ack for DoubleAck makes this fail: a lost ack would go unnoticed.
func TestSettleSendsWhatTheContractSays(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"success":          {nil, "m double ack"},
		"a delay":          {&otherError{delay: 350 * time.Millisecond}, "m nak 350ms"},
		"at once":          {&otherError{}, "m nak 0s"},
		"an unknown error": {errors.New("x"), "m nak 2s"},
	} {
		t.Run(name, func(t *testing.T) {
			b := offline(t, bus.Config{Rand: func() float64 { return 0.5 }}, Options{})
			var sent []string
			d := &Delivery{consumer: b, ledger: newLedger(newReturns()), receipt: wire{name: "m", sent: &sent}}
			_ = d.ledger.admit(d, time.Now(), func(string, time.Duration, time.Duration) {})
			settle(t, d, c.err)
			if diff := cmp.Diff([]string{c.want}, sent); diff != "" {
				t.Errorf("on the wire (-want +got):\n%s", diff)
			}
		})
	}
}
