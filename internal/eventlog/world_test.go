// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// world is a writer in a bubble of time, and what the API server does with what it writes.
type world struct {
	t *testing.T
	*Writer
	dropped *prometheus.CounterVec
	end     func() // ends Run, and waits for that
	logged  atomic.Int64

	mu     sync.Mutex
	answer func(context.Context, *eventsv1.Event) error // nil: takes all
	gone   map[types.UID]bool
	tries  []*eventsv1.Event
	taken  []*eventsv1.Event
	during int // writes under way
	most   int
}

// inWorld runs a test in a bubble. The writer runs when begin is called.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme, err := testenv.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		w := &world{t: t, gone: map[types.UID]bool{}, end: func() {}}
		w.dropped = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "dropped_total", Help: "Left out."}, []string{"cause"})
		w.Writer = New(Options{
			Scheme: scheme, Controller: "syncopate", Instance: "syncopate-a", Create: w.create, Gone: w.isGone, Dropped: w.dropped,
			Clock: clock.RealClock{}, Log: funcr.New(func(string, string) { w.logged.Add(1) }, funcr.Options{}),
		})
		defer func() { w.end() }()
		test(w)
	})
}

func (w *world) begin() {
	ctx, stop := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	w.end = func() {
		stop()
		<-ended
	}
	synctest.Wait()
}

func (w *world) isGone(about *corev1.ObjectReference) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gone[about.UID]
}

func (w *world) create(ctx context.Context, e *eventsv1.Event) error {
	w.mu.Lock()
	w.tries = append(w.tries, e)
	w.during++
	w.most = max(w.most, w.during)
	answer := w.answer
	w.mu.Unlock()
	var err error
	if answer != nil {
		err = answer(ctx, e)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.during--
	if err == nil {
		w.taken = append(w.taken, e)
	}
	return err
}

// answers has the API server answer like this from now on.
func (w *world) answers(answer func(context.Context, *eventsv1.Event) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// away is an API server to which there is no connection.
func away(context.Context, *eventsv1.Event) error { return errors.New("connection refused") }

// hang is an API server that takes connections, and answers nothing.
func hang(ctx context.Context, _ *eventsv1.Event) error {
	<-ctx.Done()
	return ctx.Err()
}

// in has an answer for one namespace only.
func in(namespace string, answer func(context.Context, *eventsv1.Event) error) func(context.Context, *eventsv1.Event) error {
	return func(ctx context.Context, e *eventsv1.Event) error {
		if e.Namespace != namespace {
			return nil
		}
		return answer(ctx, e)
	}
}

// said are the reasons of what was written.
func (w *world) said() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.taken {
		all = append(all, e.Regarding.Namespace+"/"+e.Reason)
	}
	return all
}

func (w *world) count(cause string) int {
	return int(testutil.ToFloat64(w.dropped.WithLabelValues(cause)))
}

// held is how many events of a type wait.
func (w *world) held(kind string) int {
	w.Writer.mu.Lock()
	defer w.Writer.mu.Unlock()
	return int(w.rooms[kind].Used())
}

// lined is how many events wait in lines, and in how many.
func (w *world) lined() (events, lines int) {
	w.Writer.mu.Lock()
	defer w.Writer.mu.Unlock()
	for _, l := range w.lines.of {
		events += len(l.waiting)
	}
	return events, len(w.lines.of)
}

func run(namespace, name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name), ResourceVersion: "1"}}
}

// say tells something about a run, as a type of event.
func (w *world) say(kind, namespace, name, reason string) {
	w.Eventf(run(namespace, name), nil, kind, reason, "Advance", "%s", "note")
}

// flood tells n things about each of some runs of a namespace.
func (w *world) flood(kind, namespace string, runs, n int) {
	for i := range n {
		for r := range runs {
			w.say(kind, namespace, fmt.Sprint(r), fmt.Sprint("Flood", i))
		}
	}
}

// settle waits until nothing happens before time passes, and lets some pass.
func settle(d time.Duration) {
	synctest.Wait()
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func (w *world) wants(want ...string) {
	w.t.Helper()
	if got := w.said(); !slices.Equal(got, want) {
		w.t.Errorf("written: %v, want %v", got, want)
	}
}
