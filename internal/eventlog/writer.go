// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/share"
)

const (
	// places is how many events of one type wait at most: with all that belongs to them 2 MiB.
	places = 1000
	// writeTimeout is how long one write may take.
	writeTimeout = 10 * time.Second
	// leastRest is for how long no namespace whose writes fail is tried, at least.
	leastRest = time.Second
	// restPart is how many times as long as a try that failed took is for the namespaces whose
	// writes do not fail.
	restPart = 3
	// logPause is for how long the log does not say again that events of a namespace are refused,
	// or cannot be written: whoever can have one refused can have thousands. Metrics count them.
	logPause = 10 * time.Minute
	// keepTime is for how long an event is tried that the API server answers with errors.
	keepTime = time.Hour
)

// Options are what a writer needs.
type Options struct {
	Scheme *runtime.Scheme
	// Controller and Instance are who says what events say.
	Controller, Instance string
	// Create writes an event once. It must not wait to try again.
	Create func(context.Context, *eventsv1.Event) error
	// Gone says whether what an event is about was deleted: nobody could find the event.
	Gone func(*corev1.ObjectReference) bool
	// Dropped counts events that were left out, by cause.
	Dropped *prometheus.CounterVec
	Clock   clock.Clock
	Log     logr.Logger
}

// Writer writes events, see the package's documentation.
type Writer struct {
	o                      Options
	full, deleted, refused prometheus.Counter
	came                   chan struct{} // an event did

	mu    sync.Mutex
	rooms map[string]*share.Room // by type
	said  *said
	lines *lines
	named time.Time // what the last event is named after

	logged map[told]time.Time // what the log said last of a namespace, for Run only
}

// told is what the log says of a namespace at most once in logPause.
type told struct {
	namespace string
	outcome   outcome
}

var _ events.EventRecorder = (*Writer)(nil)

// New makes a writer, which writes while Run does.
func New(o Options) *Writer {
	return &Writer{
		o: o, came: make(chan struct{}, 1), said: newSaid(), lines: newLines(), logged: map[told]time.Time{},
		full: o.Dropped.WithLabelValues("full"), deleted: o.Dropped.WithLabelValues("deleted"), refused: o.Dropped.WithLabelValues("refused"),
		rooms: map[string]*share.Room{corev1.EventTypeNormal: share.NewRoom(places), corev1.EventTypeWarning: share.NewRoom(places)},
	}
}

// Eventf implements events.EventRecorder. It waits for nothing.
func (w *Writer) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	e, err := w.newEvent(regarding, related, kind, reason, action, fmt.Sprintf(note, args...))
	if err != nil {
		w.o.Log.Error(err, "Cannot make an event", "reason", reason)
		return
	}
	if w.add(e) {
		select {
		case w.came <- struct{}{}:
		default:
		}
	}
}

// add puts an event into the line of its namespace, if it was not said before and finds room.
func (w *Writer) add(e *eventsv1.Event) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, same, room := w.o.Clock.Now(), wordsOf(e), w.rooms[e.Type]
	if w.said.before(&same, now) {
		return false
	}
	namespace, run := ownerOf(&e.Regarding)
	if !room.Take(namespace, run, 1) {
		w.full.Inc()
		return false
	}
	w.said.remember(&same, now)
	w.name(e, now)
	w.lines.add(namespace, &entry{event: e, room: room, run: run})
	return true
}

// Run writes one event after the other until ctx ends. What waits then is lost.
func (w *Writer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		at, e, rest := w.next()
		if at == nil {
			w.wait(ctx, rest)
			continue
		}
		began := w.o.Clock.Now()
		out, err := w.write(ctx, e)
		if ctx.Err() != nil {
			return
		}
		w.note(at, e, out, err, w.o.Clock.Since(began))
	}
}

// next is whose turn it is, and what is written then.
func (w *Writer) next() (*line, *entry, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, rest := w.lines.take(w.o.Clock.Now())
	if at == nil {
		return nil, nil, rest
	}
	return at, at.waiting[0], 0
}

// wait ends when an event comes, or a rest is over if there is one.
func (w *Writer) wait(ctx context.Context, rest time.Duration) {
	var over <-chan time.Time
	if rest > 0 {
		timer := w.o.Clock.NewTimer(rest)
		defer timer.Stop()
		over = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-w.came:
	case <-over:
	}
}

// outcome is what became of an event.
type outcome int

const (
	written    outcome = iota
	gone               // what it is about was deleted
	declined           // the API server refused it
	failed             // the API server could not take it, and said so
	unanswered         // the API server said nothing
)

// write tries to write an event once.
func (w *Writer) write(ctx context.Context, e *entry) (outcome, error) {
	if w.o.Gone(&e.event.Regarding) {
		return gone, nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := w.o.Create(ctx, e.event)
	out := outcomeOf(err)
	if out == failed && w.failsLong(e) {
		out = declined
	}
	return out, err
}

// failsLong says whether the API server has answered an event with errors for as long as it is
// tried.
func (w *Writer) failsLong(e *entry) bool {
	now := w.o.Clock.Now()
	if e.failedAt.IsZero() {
		e.failedAt = now
	}
	return now.Sub(e.failedAt) >= keepTime
}

// outcomeOf reads the answer of the API server.
func outcomeOf(err error) outcome {
	var answer apierrors.APIStatus
	switch {
	case err == nil, apierrors.IsAlreadyExists(err): // a write of which the answer was lost
		return written
	case !errors.As(err, &answer):
		return unanswered
	}
	switch code := answer.Status().Code; code {
	case http.StatusUnauthorized, // a token that is about to be replaced
		http.StatusRequestTimeout, http.StatusTooManyRequests,
		http.StatusConflict: // of two writes that count in one quota
		return failed
	default:
		if code >= http.StatusInternalServerError {
			return failed
		}
		return declined
	}
}

// note remembers what became of an event, and ends the turn of its namespace.
func (w *Writer) note(at *line, e *entry, out outcome, err error, took time.Duration) {
	w.tell(at, e, out, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if out == failed || out == unanswered {
		// An answer may be about this event alone, so others of its namespace go first. No answer
		// is about the API server, and the order stays.
		w.lines.failed(at, out == failed, w.o.Clock.Now().Add(max(leastRest, restPart*took)))
		return
	}
	e.room.Free(at.namespace, e.run, 1)
	w.lines.over(at, out != gone)
}

// tell counts what is left out, and logs what an administrator may mend: the first event of a
// namespace that is refused, or whose write fails, and then one now and then.
func (w *Writer) tell(at *line, e *entry, out outcome, err error) {
	switch out {
	case gone:
		w.deleted.Inc()
	case declined:
		w.refused.Inc()
		if w.mayLog(told{at.namespace, declined}) {
			w.log(e.event, err).Info("The API server refused an event, which is left out; others of its namespace are not logged for a while", "pause", logPause)
		}
	case failed, unanswered:
		if !at.failing && w.mayLog(told{at.namespace, failed}) {
			w.log(e.event, err).Info("An event cannot be written now, and is kept; others of its namespace are not logged for a while", "pause", logPause)
		}
	case written:
	}
}

// mayLog says whether the log may say something of a namespace now, and remembers that it does.
// What was said long ago is forgotten, so that namespaces that are gone take no memory.
func (w *Writer) mayLog(what told) bool {
	now := w.o.Clock.Now()
	if at, known := w.logged[what]; known && now.Sub(at) < logPause {
		return false
	}
	maps.DeleteFunc(w.logged, func(_ told, at time.Time) bool { return now.Sub(at) >= logPause })
	w.logged[what] = now
	return true
}

func (w *Writer) log(e *eventsv1.Event, cause error) logr.Logger {
	about := &e.Regarding
	return w.o.Log.WithValues("kind", about.Kind, "namespace", about.Namespace, "name", about.Name, "reason", e.Reason, "note", e.Note, "cause", cause.Error())
}
