// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kinds "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning

var resource = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}

func status(code int32) error {
	return fmt.Errorf("wrapped: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "no"}})
}

func answering(code int32) func(context.Context, *eventsv1.Event) error {
	return func(context.Context, *eventsv1.Event) error { return status(code) }
}

// mutation: one line for all namespaces, or a line that keeps its turn until it is empty,
// makes this fail.
func TestAFloodOfOneNamespaceLeavesOthersTheirTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		next := make(chan struct{})
		w.answers(func(context.Context, *eventsv1.Event) error { <-next; return nil })
		w.flood(normal, "a", 10, 40)
		w.begin()
		w.say(normal, "b", "b", "Admitted")
		w.say(normal, "c", "c", "Admitted")
		w.say(normal, "b", "b", "Succeeded")
		for range 7 {
			next <- struct{}{}
			synctest.Wait()
		}
		w.wants("a/Flood0", "b/Admitted", "c/Admitted", "a/Flood0", "b/Succeeded", "a/Flood0", "a/Flood0")
		close(next)
		synctest.Wait()
		if n := len(w.said()); n != 403 {
			t.Errorf("%d events are written at last", n)
		}
	})
}

// mutation: one room for both types, a room without namespaces or without runs, or one that counts
// nothing, makes this fail; so does one that counts what it takes.
func TestAFloodLeavesRoomToOthers(t *testing.T) {
	for name, c := range map[string]struct {
		runs, held int // of 1,000 places
	}{
		"one run gets a third":                     {1, 333},
		"one namespace with many runs gets a half": {100, 500},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				const all = 3000
				w.flood(normal, "a", c.runs, all/c.runs)
				if n := w.held(normal); n < c.held-2 || n > c.held+2 {
					t.Errorf("%d events of the flood are held, want %d", n, c.held)
				}
				if n := w.count("full"); n != all-w.held(normal) {
					t.Errorf("%d are counted, and %d of %d held", n, w.held(normal), all)
				}
				before := w.count("full")
				w.flood(normal, "b", 1, 100)
				w.flood(warning, "a", 1, 100)
				if n := w.count("full") - before; n != 0 || w.held(warning) != 100 {
					t.Errorf("%d events of others, or warnings, find no room; %d warnings are held", n, w.held(warning))
				}
				flood := w.held(normal) - 100
				w.begin()
				if n := len(w.said()); n != flood+200 {
					t.Errorf("%d are written, want %d of the flood and 200 others", n, flood)
				}
			})
		})
	}
}

// mutation: an Eventf that starts a goroutine, a place that is not given back, or a line that is
// kept when it is empty, makes this fail.
func TestNothingGrowsWithEventsWhileTheAPIServerHangs(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(hang)
		w.begin()
		w.say(normal, "first", "run", "Admitted")
		synctest.Wait()
		before := runtime.NumGoroutine()
		for n := range 40 {
			w.flood(normal, fmt.Sprint("ns", n), 5, 100)
			w.flood(warning, fmt.Sprint("ns", n), 5, 100)
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines before, %d with all events", before, n)
		}
		if events, lines := w.lined(); events > 2*places || events != w.held(normal)+w.held(warning) || lines > 41 {
			t.Errorf("%d events wait in %d lines, %d and %d are held", events, lines, w.held(normal), w.held(warning))
		}
		settle(time.Hour)
		w.answers(nil)
		settle(time.Minute)
		if events, lines := w.lined(); events+lines+w.held(normal)+w.held(warning) != 0 {
			t.Errorf("at last %d events wait in %d lines, %d and %d are held", events, lines, w.held(normal), w.held(warning))
		}
		if got := len(w.said()) + w.count("full"); got != 1+40*5*100*2 {
			t.Errorf("%d are written or counted", got)
		}
	})
}

// mutation: words without one of these, an event that is remembered though it found no room, or
// that is remembered for ever, makes a case fail; so does a writer that remembers nothing.
func TestWhatWasSaidIsNotSaidAgain(t *testing.T) {
	one, other := run("a", "run"), run("a", "other")
	later := run("a", "run")
	later.ResourceVersion = "2"
	for name, c := range map[string]struct {
		again func(w *world)
		want  int
	}{
		"the same":            {func(w *world) { w.Eventf(one, other, normal, "Told", "Advance", "%s", "note") }, 1},
		"another version":     {func(w *world) { w.Eventf(later, other, normal, "Told", "Advance", "note") }, 2},
		"another type":        {func(w *world) { w.Eventf(one, other, warning, "Told", "Advance", "note") }, 2},
		"another reason":      {func(w *world) { w.Eventf(one, other, normal, "Tell", "Advance", "note") }, 2},
		"another action":      {func(w *world) { w.Eventf(one, other, normal, "Told", "Decide", "note") }, 2},
		"another note":        {func(w *world) { w.Eventf(one, other, normal, "Told", "Advance", "notes") }, 2},
		"another run":         {func(w *world) { w.Eventf(other, other, normal, "Told", "Advance", "note") }, 2},
		"another related one": {func(w *world) { w.Eventf(one, nil, normal, "Told", "Advance", "note") }, 2},
		"after a while": {func(w *world) {
			settle(sayAgain)
			w.Eventf(one, other, normal, "Told", "Advance", "note")
		}, 2},
		"when there is room again": {func(w *world) {
			w.flood(normal, "b", 1, 1000)
			w.say(normal, "b", "0", "No room")
			settle(time.Second)
			w.say(normal, "b", "0", "No room")
		}, 335}, // this one, a third of the room, and the one that found none at first
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.begin()
				w.Eventf(one, other, normal, "Told", "Advance", "note")
				w.answers(func(context.Context, *eventsv1.Event) error { time.Sleep(time.Millisecond); return nil })
				c.again(w)
				settle(time.Minute)
				if n := len(w.said()); n != c.want {
					t.Errorf("said %d times, want %d", n, c.want)
				}
			})
		})
	}
}

// mutation: writes in goroutines of their own make this fail; so does a line that takes its
// last event first.
func TestEventsAreWrittenOneAtATimeAndInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(func(context.Context, *eventsv1.Event) error { time.Sleep(time.Second); return nil })
		w.begin()
		var want []string
		for i := range 50 {
			w.say([]string{normal, warning}[i%2], "a", "run", fmt.Sprint("Said", i))
			w.say(normal, "b", "run", fmt.Sprint("Said", i))
			want = append(want, fmt.Sprint("a/Said", i), fmt.Sprint("b/Said", i))
		}
		settle(time.Hour)
		w.wants(want...)
		if w.most != 1 {
			t.Errorf("%d were written at a time", w.most)
		}
	})
}

// mutation: an event that is dropped after some tries, or goes behind others though nobody
// answered, makes this fail; so does a namespace that is tried again without a rest, a rest after
// each success, or a log line for each try.
func TestAnAPIServerThatIsAwayForAWhileLosesNothing(t *testing.T) {
	for name, answer := range map[string]func(context.Context, *eventsv1.Event) error{"refuses connections": away, "answers nothing": hang} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.answers(answer)
				w.begin()
				const namespaces, outage = 50, 20 * time.Minute
				for i := range 10 {
					for ns := range namespaces {
						w.say(normal, fmt.Sprint(ns), "run", fmt.Sprint("Said", i))
					}
				}
				settle(outage)
				if n := len(w.tries); n > namespaces+1+int(outage/leastRest) || n < 20 {
					t.Errorf("%d tries in %s", n, outage)
				}
				w.answers(nil)
				settle(restPart*writeTimeout + writeTimeout)
				said := w.said()
				for ns := range namespaces {
					mine := slices.DeleteFunc(slices.Clone(said), func(s string) bool { return !strings.HasPrefix(s, fmt.Sprint(ns, "/")) })
					if len(mine) != 10 || !slices.IsSorted(mine) {
						t.Errorf("of namespace %d: %v", ns, mine)
					}
				}
				if n := w.count("full") + w.count("deleted") + w.count("refused"); n != 0 || w.logged.Load() != namespaces {
					t.Errorf("%d were left out; %d lines in the log, want one of each namespace", n, w.logged.Load())
				}
			})
		})
	}
}

// mutation: a namespace that is tried again in each turn, or after a rest that does not grow with
// what a try took, makes this fail; so does a write without a time-out.
func TestANamespaceWhoseWritesHangDelaysOthersLittle(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(in("bad", hang))
		w.begin()
		for i := range 5 {
			w.flood(normal, "bad", 5, 10)
			w.say(normal, fmt.Sprint("good", i), "run", "Begun")
		}
		longest, begin := time.Duration(0), time.Now()
		for i := range 600 {
			said := len(w.said())
			at := time.Now()
			w.say(normal, "good", "run", fmt.Sprint("Said", i))
			for len(w.said()) == said {
				settle(100 * time.Millisecond)
			}
			longest = max(longest, time.Since(at))
			settle(time.Second)
		}
		passed := time.Since(begin)
		tries := len(w.tries) - len(w.said())
		if longest > writeTimeout+time.Second || time.Duration(tries)*writeTimeout > passed/(restPart+1)+2*writeTimeout {
			t.Errorf("others wait for %s at most, %d tries that hang in %s", longest, tries, passed)
		}
	})
}

// mutation: a refused event that is tried again, or not counted, or keeps its place, makes a case
// fail; so does one that is dropped for what may pass.
func TestWhatIsRefusedIsLeftOutAndWhatMayPassIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		again   bool
		refused int
	}{
		"invalid":                 {status(http.StatusUnprocessableEntity), false, 1},
		"forbidden":               {status(http.StatusForbidden), false, 1},
		"no such namespace":       {status(http.StatusNotFound), false, 1},
		"bad request":             {status(http.StatusBadRequest), false, 1},
		"it is there":             {apierrors.NewAlreadyExists(resource, "x"), false, 0},
		"a token that is too old": {status(http.StatusUnauthorized), true, 0},
		"a quota that is written": {apierrors.NewConflict(resource, "x", errors.New("quota")), true, 0},
		"too many requests":       {status(http.StatusTooManyRequests), true, 0},
		"request timeout":         {status(http.StatusRequestTimeout), true, 0},
		"internal error":          {status(http.StatusInternalServerError), true, 0},
		"unavailable":             {status(http.StatusServiceUnavailable), true, 0},
		"no answer":               {errors.New("EOF"), true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := true
				w.answers(func(context.Context, *eventsv1.Event) error {
					defer func() { first = false }()
					if first {
						return c.err
					}
					return nil
				})
				w.begin()
				w.say(normal, "a", "run", "First")
				w.say(normal, "a", "run", "Second")
				settle(time.Minute)
				said := w.said()
				if !slices.Contains(said, "a/Second") || slices.Contains(said, "a/First") != c.again || w.count("refused") != c.refused || w.held(normal) != 0 {
					t.Errorf("written: %v, %d refused, %d held", said, w.count("refused"), w.held(normal))
				}
			})
		})
	}
}

// mutation: an event that stays first though the API server answers, that is tried for ever or only
// once, or that is not counted, makes this fail.
func TestAnEventThatIsAnsweredWithErrorsIsInNobodysWay(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(func(_ context.Context, e *eventsv1.Event) error {
			if e.Reason == "Poison" {
				return status(http.StatusInternalServerError)
			}
			return nil
		})
		w.begin()
		w.say(normal, "a", "run", "Poison")
		w.say(normal, "a", "run", "First")
		w.say(normal, "a", "run", "Second")
		settle(5 * time.Second)
		w.wants("a/First", "a/Second")
		settle(keepTime - time.Minute)
		if n := w.held(normal); n != 1 || w.count("refused") != 0 {
			t.Errorf("%d wait after almost an hour, %d are left out", n, w.count("refused"))
		}
		settle(2 * time.Minute)
		if n := w.held(normal); n != 0 || w.count("refused") != 1 {
			t.Errorf("%d wait after an hour, %d are left out", n, w.count("refused"))
		}
	})
}

// mutation: a Gone that is asked when the event comes, or only at its first try, makes this fail;
// so does a dropped event that is not counted, or keeps its place.
func TestNothingIsWrittenOfWhatIsGone(t *testing.T) {
	inWorld(t, func(w *world) {
		w.answers(answering(http.StatusServiceUnavailable))
		w.begin()
		w.say(normal, "a", "kept", "Told")
		w.say(normal, "a", "deleted", "Tried")
		settle(time.Minute)
		w.say(normal, "a", "deleted", "Told")
		w.mu.Lock()
		w.gone["a-deleted"] = true
		w.mu.Unlock()
		w.answers(nil)
		settle(time.Minute)
		w.wants("a/Told")
		if w.count("deleted") != 2 || w.held(normal) != 0 || w.taken[0].Regarding.Name != "kept" {
			t.Errorf("%d were dropped, %d are held", w.count("deleted"), w.held(normal))
		}
	})
}

// mutation: a Run that waits for the API server, or for the next event, hangs.
func TestTheEndWaitsForNothing(t *testing.T) {
	for name, before := range map[string]func(w *world){
		"nothing waits":       func(*world) {},
		"a write hangs":       func(w *world) { w.answers(hang); w.say(normal, "a", "run", "Told") },
		"the server is away":  func(w *world) { w.answers(away); w.say(normal, "a", "run", "Told") },
		"thousands wait":      func(w *world) { w.answers(hang); w.flood(normal, "a", 100, 100) },
		"a server that fails": func(w *world) { w.answers(answering(500)); w.flood(normal, "a", 100, 100) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.begin()
				before(w)
				settle(100 * time.Millisecond)
				at := time.Now()
				w.end()
				if d := time.Since(at); d > 0 {
					t.Errorf("the end takes %s", d)
				}
				w.say(normal, "a", "run", "After the end")
			})
		})
	}
}

// mutation: another name or time for two events of one moment, a namespace for what has none, or a
// reference that is the caller's, each make this fail.
func TestAnEventSaysWhatItIsAbout(t *testing.T) {
	inWorld(t, func(w *world) {
		about := run("a", "run")
		caller := &corev1.ObjectReference{Kind: "ConfigMap", Namespace: "a", Name: "map", UID: "map"}
		w.Eventf(about, caller, normal, "Told", "Advance", "%d of %d", 1, 2)
		w.Eventf(about, nil, warning, "Told", "Advance", "100 %%")
		w.Eventf(&v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}}, nil, normal, "InForce", "Rollout", "note")
		caller.Name = "changed"
		w.begin()
		if len(w.taken) != 3 {
			t.Fatalf("%d are written", len(w.taken))
		}
		first, second, policy := w.taken[0], w.taken[1], w.taken[2]
		if second.Regarding.Kind == "LockPolicy" {
			second, policy = policy, second
		}
		if first.Name == second.Name || !strings.HasPrefix(first.Name, "run.") || first.Namespace != "a" || second.EventTime.Time.Sub(first.EventTime.Time) != 1 {
			t.Errorf("two of one moment are %s/%s and %s", first.Namespace, first.Name, second.Name)
		}
		if first.Note != "1 of 2" || first.Related == nil || first.Related.Name != "map" || second.Related != nil || second.Type != warning || second.Note != "100 %" {
			t.Errorf("notes %q and %q; related %v and %v", first.Note, second.Note, first.Related, second.Related)
		}
		if r := first.Regarding; r.Kind != "WorkflowRun" || r.APIVersion != "syncopate.dev/v1alpha1" || r.UID != "a-run" || r.ResourceVersion != "1" {
			t.Errorf("it is about %v", r)
		}
		if first.ReportingController != "syncopate" || first.ReportingInstance != "syncopate-a" || first.Action != "Advance" {
			t.Errorf("it is said by %s, %s", first.ReportingController, first.ReportingInstance)
		}
		if policy.Namespace != metav1.NamespaceDefault || policy.Regarding.Namespace != "" || policy.Regarding.Kind != "LockPolicy" {
			t.Errorf("what is in no namespace is told in %q about %v", policy.Namespace, policy.Regarding)
		}
	})
}

// mutation: what is in no namespace waits behind a flood of the namespace that has its events.
func TestPoliciesDoNotWaitBehindTheDefaultNamespace(t *testing.T) {
	inWorld(t, func(w *world) {
		w.flood(normal, metav1.NamespaceDefault, 10, 100)
		w.Eventf(&v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy", UID: "policy"}}, nil, normal, "InForce", "Rollout", "note")
		w.begin()
		if said := w.said(); len(said) < 2 || said[1] != "/InForce" {
			t.Errorf("a policy's is none of the first of %d", len(said))
		}
	})
}

// mutation: without a check of the type, or of the error of a reference, this panics, or
// something is written.
func TestWhatIsNoEventIsNotWritten(t *testing.T) {
	inWorld(t, func(w *world) {
		w.begin()
		w.Eventf(run("a", "run"), nil, "Error", "Told", "Advance", "note")
		w.Eventf(nil, nil, normal, "Told", "Advance", "note")
		w.Eventf(&unknown{}, nil, normal, "Told", "Advance", "note")
		w.Eventf(run("a", "run"), &unknown{}, normal, "Told", "Advance", "note")
		settle(time.Second)
		w.wants()
	})
}

// unknown is no kind of the scheme.
type unknown struct{ v1alpha1.WorkflowRun }

// DeepCopyObject implements runtime.Object.
func (u *unknown) DeepCopyObject() kinds.Object { return u }

// mutation: a note of any length, or a cut within a character, makes a case fail.
func TestANoteIsCutToWhatTheAPIServerTakes(t *testing.T) {
	for name, c := range map[string]struct{ note, want string }{
		"short":                    {"note", "note"},
		"as long as may be":        {strings.Repeat("x", 1024), strings.Repeat("x", 1024)},
		"too long":                 {strings.Repeat("x", 1025), strings.Repeat("x", 1024)},
		"a character at the bound": {strings.Repeat("x", 1023) + "é", strings.Repeat("x", 1023)},
		"long characters":          {strings.Repeat("€", 1000), strings.Repeat("€", 341)},
		"no text":                  {"a\xffb", "a?b"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.Eventf(run("a", "run"), nil, normal, "Told", "Advance", "%s", c.note)
				w.begin()
				if got := w.taken[0].Note; got != c.want {
					t.Errorf("%d bytes, want %d: %q", len(got), len(c.want), got)
				}
			})
		})
	}
}
