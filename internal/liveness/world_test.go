// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	ackWait  = 30 * time.Second
	answerIn = 10 * time.Millisecond // so that an answer comes between two ticks, and times are exact
)

var errAway = errors.New("away")

// event is something that happened, with its time since the start.
type event struct {
	What string
	At   time.Duration
}

// world is a Watcher in a synctest bubble, with the server and the runs played by the test. The
// time stands still while anything runs.
type world struct {
	t       *testing.T
	start   time.Time
	watcher *Watcher[string]

	mu     sync.Mutex
	answer func(topic string) (Workers, error) // of all topics; At is filled in
	asked  []event
	woken  []event
	asking int
	most   int // questions under way at the same time
	hangs  map[string]bool
}

// inWorld runs a test with a Watcher that runs from the start of the bubble's time until the test
// ends. Ticks are at 100 ms, 200 ms and so on, so what is watched from the start is asked about at
// 100 ms, 3.2 s, 6.3 s.
func inWorld(t *testing.T, o Options, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now(), hangs: map[string]bool{}}
		w.says(pulls)
		w.watcher = New(w.ask, w.wake, o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.watcher.Run(ctx)
		}()
		defer func() { // a Run that does not return is a deadlock of the bubble
			cancelled := time.Now()
			cancel()
			<-done
			w.mu.Lock()
			defer w.mu.Unlock()
			if took := time.Since(cancelled); took > answerIn || w.asking > 0 {
				t.Errorf("Run returned after %s with %d questions under way", took, w.asking)
			}
		}()
		synctest.Wait()
		test(w)
	})
}

// ownerOf is "a" of the key a/b. Other keys are nobody's.
func ownerOf(key string) string {
	owner, _, of := strings.Cut(key, "/")
	if !of {
		return ""
	}
	return owner
}

func (w *world) ask(ctx context.Context, topic string) (Workers, error) {
	w.mu.Lock()
	w.asked = append(w.asked, event{topic, time.Since(w.start)})
	w.asking++
	w.most = max(w.most, w.asking)
	hangs := w.hangs[topic]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asking--
	}()
	if hangs {
		<-ctx.Done()
		return Workers{}, ctx.Err()
	}
	time.Sleep(answerIn)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.answer(topic)
}

func (w *world) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = append(w.woken, event{key, time.Since(w.start)})
}

// says makes all questions from now on have this answer.
func (w *world) says(answer func() Workers) {
	w.script(func(string) (Workers, error) { return answer(), nil })
}

func (w *world) fails() { w.script(func(string) (Workers, error) { return Workers{}, errAway }) }

func (w *world) script(answer func(topic string) (Workers, error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) hang(topics ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.hangs)
	for _, topic := range topics {
		w.hangs[topic] = true
	}
}

// until lets the time pass until that since the start, and everything run that is due then.
func (w *world) until(d time.Duration) {
	time.Sleep(d - time.Since(w.start))
	synctest.Wait()
}

// questions takes the questions that were asked since the last call.
func (w *world) questions() []event { return take(w, &w.asked) }

// wakes takes the wakes that came since the last call.
func (w *world) wakes() []event { return take(w, &w.woken) }

// questionsOf gives the questions about a topic so far.
func (w *world) questionsOf(topic string) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	var of []event
	for _, e := range w.asked {
		if e.What == topic {
			of = append(of, e)
		}
	}
	return of
}

// inQueue is how many wakes are in the queue.
func (w *world) inQueue() int {
	w.watcher.mu.Lock()
	defer w.watcher.mu.Unlock()
	n := 0
	for _, keys := range w.watcher.waking {
		n += len(keys)
	}
	return n
}

func take(w *world, from *[]event) []event {
	w.mu.Lock()
	defer w.mu.Unlock()
	events := *from
	*from = nil
	return events
}

func (w *world) is(topic string, kind Kind) {
	w.t.Helper()
	if got := w.watcher.State(topic).Kind; got != kind {
		w.t.Errorf("after %s, %s is %s, want %s", time.Since(w.start), topic, got, kind)
	}
}

// sorted is for questions of the same moment, which come in any order.
var sorted = cmpopts.SortSlices(func(a, b event) bool { return a.What < b.What })

func same(t *testing.T, what string, got, want any, options ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// pulls: one idle worker.
func pulls() Workers {
	return Workers{Exists: true, Pulling: 1, AckWait: ackWait, At: time.Now()}
}

// nobody: jobs wait, and nobody pulls.
func nobody() Workers {
	return Workers{Exists: true, Queued: 3, AckWait: ackWait, At: time.Now()}
}

// full: as many jobs as the consumer allows are unanswered.
func full() Workers {
	return Workers{Exists: true, Pulling: 2, Queued: 5, Busy: 4, Deliveries: 4, Reached: 4, LastSign: time.Now(), AckWait: ackWait, At: time.Now()}
}
