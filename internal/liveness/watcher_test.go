// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
)

// mutation: rows = 1 makes this fail, and so does a State without its numbers.
func TestThatNobodyPullsIsToldAfterTwoQuestions(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.says(nobody)
		w.watcher.Watch("run", "a")
		w.until(millis(3209))
		same(t, "state before the second answer", w.watcher.State("a"), State{})
		w.until(millis(3210))
		same(t, "state after it", w.watcher.State("a"), State{Kind: NobodyPulls, Since: w.start.Add(millis(100)), Queued: 3})
		w.until(time.Minute)
		same(t, "wakes", w.wakes(), []event{{"run", millis(3300)}})
	})
}

// The bound of the package's documentation, for each moment between two questions at which the last
// worker may go. It did a job just then, which makes it look present for longest.
func TestThatTheLastWorkerWentIsToldInTime(t *testing.T) {
	const bound = time.Second + 2*(3100*time.Millisecond+tick) + answerIn // mutation: rows = 3 makes this fail
	for left := millis(20_000); left < millis(23_200); left += millis(50) {
		inWorld(t, Options{}, func(w *world) {
			w.watcher.Watch("run", "a")
			w.until(left)
			w.is("a", Pulling)
			w.wakes()
			gone := time.Now()
			w.says(func() Workers {
				return Workers{Exists: true, Queued: 1, Deliveries: 1, Reached: 1, LastSign: gone, LastAck: gone, AckWait: ackWait, At: time.Now()}
			})
			w.until(left + bound)
			w.is("a", NobodyPulls)
			w.until(left + bound + tick)
			if got := w.wakes(); len(got) != 1 {
				t.Errorf("it left at %s: %d wakes, want 1", left, len(got))
			}
		})
	}
}

// mutation: a hear that counts what is not in a row makes this fail.
func TestOneAnswerAloneChangesNothing(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		n := 0
		w.script(func(string) (Workers, error) {
			n++
			switch {
			case n <= 2:
				return pulls(), nil
			case n%3 == 0:
				return nobody(), nil
			case n%3 == 1:
				return Workers{}, errAway // is between two, so they are not in a row
			default:
				return full(), nil
			}
		})
		w.watcher.Watch("run", "a")
		w.until(10 * time.Minute)
		w.is("a", Pulling)
		same(t, "wakes", w.wakes(), []event{{"run", millis(3300)}}) // when it was Pulling first
	})
}

// mutation: a memory that outlives a failed question makes this fail: what was queued before counts
// as waiting since then.
func TestAFailedQuestionSaysNothingAndForgets(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		behind := func() Workers {
			return Workers{Exists: true, Queued: 1, Busy: 1, Deliveries: 1, Reached: 1, LastSign: time.Now(), AckWait: ackWait, At: time.Now()}
		}
		w.says(behind)
		w.watcher.Watch("run", "a")
		w.until(millis(27_000))
		w.is("a", Pulling)
		w.fails()
		w.until(millis(28_020)) // one question failed
		w.is("a", Pulling)
		w.until(millis(32_000)) // and another one
		same(t, "state while NATS is away", w.watcher.State("a"), State{Kind: Unknown, Since: w.start.Add(millis(28_000))})
		w.says(behind)
		w.until(time.Minute)
		w.is("a", Pulling)
		w.until(millis(75_000))
		w.is("a", Stuck)
		same(t, "since", w.watcher.State("a").Since, w.start.Add(millis(34_200)))
	})
}

// mutation: a question per run, or a queue without a due time, makes this fail; waking all at once,
// or in the order of a map, too.
func TestManyRunsOfATopicAreOneQuestionAndAreWokenInOrder(t *testing.T) {
	const runs = 20_000
	inWorld(t, Options{}, func(w *world) {
		w.says(nobody)
		var names []string
		for i := range runs {
			names = append(names, fmt.Sprintf("run-%d", i))
			w.watcher.Watch(names[i], "a")
		}
		w.until(time.Minute)
		same(t, "questions in a minute", len(w.questions()), 20)
		var woken []string
		perTick := map[time.Duration]int{}
		for _, e := range w.wakes() {
			woken = append(woken, e.What)
			perTick[e.At]++
		}
		if !slices.Equal(woken, names) {
			t.Errorf("%d runs woken, want each of %d once and in order", len(woken), runs)
		}
		for at, n := range perTick {
			if at%tick != 0 || n != 50 {
				t.Errorf("%d woken at %s, want 50 at a tick", n, at)
			}
		}
	})
}

// mutation: forgetting a topic with its last run makes this fail: each that comes
// causes a question.
func TestRunsThatComeAndGoCauseNoMoreQuestions(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		for i := range 300 { // one at a time, for 100 ms each
			w.watcher.Watch("run", "a")
			w.until(time.Duration(i+1) * millis(100))
			w.watcher.Forget("run")
		}
		asked := w.questions()
		for i := 1; i < len(asked); i++ {
			if gap := asked[i].At - asked[i-1].At; gap < 3*time.Second {
				t.Errorf("asked after %s", gap)
			}
		}
		if len(asked) == 0 {
			t.Error("never asked")
		}
	})
}

// mutation: a takeDue that forgets no topic makes this fail; so does Forget that leaves the key
// in its topic.
func TestWhatNobodyWatchesIsForgotten(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.says(nobody)
		w.watcher.Watch("one", "a", "b")
		w.watcher.Watch("two", "b")
		w.until(millis(2000))
		w.watcher.Forget("one")
		w.until(millis(4000))
		same(t, "state of a", w.watcher.State("a"), State{})
		w.is("b", NobodyPulls)
		w.watcher.Forget("two")
		w.until(millis(7000))
		w.questions()
		same(t, "wakes", w.wakes(), []event{{"two", millis(3300)}})
		w.until(time.Minute)
		same(t, "questions afterwards", w.questions(), []event(nil))
		c := w.watcher
		if len(c.topics)+len(c.queue)+len(c.watches)+len(c.waking) != 0 {
			t.Errorf("left behind: %d topics, %d in line, %d watches, %d to wake", len(c.topics), len(c.queue), len(c.watches), len(c.waking))
		}
	})
}

// mutation: a Watch that only adds makes this fail.
func TestWatchReplacesWhatWasWatched(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.says(nobody)
		w.watcher.Watch("run", "a", "b", "b")
		w.watcher.Watch("run", "b", "c")
		w.until(millis(200))
		same(t, "topics asked about", w.questions(), []event{{"b", millis(100)}, {"c", millis(100)}}, sorted)
	})
}

// A run that looks again keeps its place. mutation: a join that numbers again makes this fail.
func TestARunKeepsItsPlace(t *testing.T) {
	inWorld(t, Options{WakeBatch: 1}, func(w *world) {
		w.says(nobody)
		for _, key := range []string{"one", "two", "one"} {
			w.watcher.Watch(key, "a")
		}
		w.until(millis(5000))
		same(t, "wakes", w.wakes(), []event{{"one", millis(3300)}, {"two", millis(3400)}})
	})
}

// mutation: wakeLater that does not look at waking makes this fail: those that wait are in
// the queue twice.
func TestARunThatWaitsForItsWakeIsWokenOnce(t *testing.T) {
	const runs = 100
	inWorld(t, Options{WakeBatch: 1}, func(w *world) {
		w.says(nobody)
		for i := range runs {
			w.watcher.Watch(fmt.Sprint(i), "a")
		}
		w.until(millis(5000)) // told at 3.2 s, and 18 were woken
		w.says(pulls)
		w.until(millis(9450)) // told at 9.4 s, when 38 wait
		if n := w.inQueue(); n != runs {
			t.Errorf("%d in the line of those to wake, want %d", n, runs)
		}
		w.until(time.Minute)
		w.is("a", Pulling)
		times := map[string]int{}
		for _, e := range w.wakes() {
			times[e.What]++
		}
		for i := range runs {
			want := 1
			if i < 62 { // woken at 3.3 s to 9.4 s: once for each state
				want = 2
			}
			if got := times[fmt.Sprint(i)]; got != want {
				t.Errorf("run %d was woken %d times, want %d", i, got, want)
			}
		}
	})
}

// mutation: takeWaking that does not look at watches makes this fail.
func TestARunThatForgotIsNotWoken(t *testing.T) {
	inWorld(t, Options{WakeBatch: 1}, func(w *world) {
		w.says(nobody)
		for _, key := range []string{"one", "two", "three"} {
			w.watcher.Watch(key, "a")
		}
		w.until(millis(3350)) // told, and the first one is woken
		w.watcher.Forget("two")
		w.until(millis(9000))
		same(t, "wakes", w.wakes(), []event{{"one", millis(3300)}, {"three", millis(3400)}})
	})
}

// mutation: one asker makes this fail; so does a question without AskTimeout.
func TestQuestionsThatHangDelayNoOthers(t *testing.T) {
	inWorld(t, Options{Width: 4}, func(w *world) {
		w.hang("h1", "h2", "h3")
		w.watcher.Watch("run", "h1", "h2", "h3")
		for i := range 100 {
			w.watcher.Watch(fmt.Sprint(i), fmt.Sprint("topic-", i))
		}
		w.until(millis(1500)) // 100 answers of 10 ms, one after the other
		for i := range 100 {
			same(t, "questions", len(w.questionsOf(fmt.Sprint("topic-", i))), 1)
		}
		w.until(time.Minute)
		if n := len(w.questionsOf("h1")); n < 10 {
			t.Errorf("a topic that hangs was asked about %d times in a minute", n)
		}
		w.is("topic-99", Pulling)
		same(t, "questions at the same time", w.most, 4)
	})
}

// mutation: join without MaxTopics makes this fail.
func TestTopicsAreBounded(t *testing.T) {
	inWorld(t, Options{MaxTopics: 2}, func(w *world) {
		w.watcher.Watch("one", "a", "b", "c")
		w.until(millis(4000))
		w.is("a", Pulling)
		w.is("c", Unknown)
		w.watcher.Watch("one", "c") // a and b are still there
		w.until(millis(7000))
		w.watcher.Watch("one", "c")
		w.until(millis(11_000))
		w.is("c", Pulling)
	})
}

// A Watch that fails each time must not fill the log.
// mutation: a line per Watch, or none, makes this fail.
func TestTopicsThatFindNoPlaceAreToldOnceAMinute(t *testing.T) {
	var said []string
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, "not watched") {
			said = append(said, args)
		}
	}, funcr.Options{})
	inWorld(t, Options{MaxTopics: 1, Log: log}, func(w *world) {
		told := func(lines int, last string) {
			t.Helper()
			w.watcher.Watch("one", "a", "b", "c")
			if len(said) != lines || !strings.Contains(said[lines-1], last) {
				t.Errorf("after %s the log says %q; want %d lines, the last of %s", time.Since(w.start), said, lines, last)
			}
		}
		told(1, `"topic"="b" "most"=1`)
		w.until(59 * time.Second)
		told(1, `"topic"="b"`)
		w.until(time.Minute)
		told(2, `"topic"="b"`)
	})
}

// inWorld looks at the end. mutation: a Run that does not wait for its askers makes this fail; so
// does a ctx without an end for ask.
func TestRunEndsWithAllItBegan(t *testing.T) {
	inWorld(t, Options{}, func(w *world) {
		w.hang("a")
		w.watcher.Watch("run", "a", "b")
		w.until(millis(105)) // both questions are under way
	})
}
