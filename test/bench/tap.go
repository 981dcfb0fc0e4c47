// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// moments are when things of one step were seen.
type moments struct{ job, started, result, written time.Time }

// gap is the way from the result of one step to the start of the next one.
type gap struct{ result, written, job, started time.Time }

// tap hears all jobs and results of a world, and sees all status writes.
type tap struct {
	names protocol.Names
	nc    *nats.Conn
	watch watch.Interface
	done  sync.WaitGroup

	mu    sync.Mutex
	steps map[[2]string]*moments // by uid of the run and name of the step
	runs  map[string]bool
}

func (w *world) listen(ctx context.Context) (*tap, error) {
	t := &tap{names: protocol.Names{Prefix: w.name}, steps: map[[2]string]*moments{}, runs: map[string]bool{}}
	var err error
	if t.nc, err = nats.Connect(w.env.NATS.URL()); err != nil {
		return nil, fmt.Errorf("listen to NATS: %w", err)
	}
	if _, err := t.nc.Subscribe(w.name+".>", t.hear); err != nil {
		return nil, fmt.Errorf("listen to NATS: %w", err)
	}
	if t.watch, err = w.k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, client.InNamespace(w.name)); err != nil {
		return nil, fmt.Errorf("watch runs: %w", err)
	}
	t.done.Go(t.see)
	return t, t.nc.Flush()
}

// close ends listening. What is there stays.
func (t *tap) close() error {
	t.watch.Stop()
	t.done.Wait()
	err := t.nc.Drain()
	if errors.Is(err, nats.ErrConnectionClosed) {
		return nil
	}
	return err
}

func (t *tap) of(run, step string) *moments {
	key := [2]string{run, step}
	if t.steps[key] == nil {
		t.steps[key] = &moments{}
		t.runs[run] = true
	}
	return t.steps[key]
}

// hear notes jobs and results.
func (t *tap) hear(m *nats.Msg) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, id, err := t.names.ParseJob(m.Subject); err == nil {
		first(&t.of(id.RunUID, id.Step).job, now)
		return
	}
	id, err := t.names.ParseResult(m.Subject)
	if err != nil {
		return // control
	}
	r, err := protocol.DecodeResult(m.Data)
	if err != nil {
		return
	}
	if r.Status == protocol.StatusStarted {
		first(&t.of(id.RunUID, id.Step).started, now)
		return
	}
	first(&t.of(id.RunUID, id.Step).result, now)
}

// see notes when status has that a step succeeded.
func (t *tap) see() {
	for e := range t.watch.ResultChan() {
		run, ok := e.Object.(*v1alpha1.WorkflowRun)
		if !ok || run.Unwritten() {
			continue
		}
		now := time.Now()
		t.mu.Lock()
		for _, s := range run.Status.Steps {
			if s.Phase == v1alpha1.StepSucceeded {
				first(&t.of(string(run.UID), s.Name).written, now)
			}
		}
		t.mu.Unlock()
	}
}

func first(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}

// gaps are those of all chains that were seen from end to end.
func (t *tap) gaps() []gap {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []gap
	for run := range t.runs {
		for i := range chainLength - 1 {
			a, b := t.steps[[2]string{run, stepName(i)}], t.steps[[2]string{run, stepName(i + 1)}]
			if a == nil || b == nil || a.result.IsZero() || b.started.IsZero() || b.job.IsZero() {
				continue
			}
			written := a.written
			if written.IsZero() || written.After(b.job) {
				written = b.job // the watch was slower than the operator
			}
			all = append(all, gap{result: a.result, written: written, job: b.job, started: b.started})
		}
	}
	return all
}
