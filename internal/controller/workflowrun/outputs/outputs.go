// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// supplyParallel bounds the outputs that one pass stores or reads at the same time; so many of
	// the largest that they take loadedBytes.
	supplyParallel = 8
	// loadedBytes bounds what a pass keeps of outputs that a decision reads: as much as the core
	// asks for at once, for expressions and results on the one hand, and for outputs of items that
	// are made one on the other.
	loadedBytes = 2 * protocol.MaxPayloadBytes
	// keptBytes bounds what a pass keeps of the outputs that it only had to check or to store: the
	// next step reads them as a rule, and to read them again takes as long as the first time.
	keptBytes = protocol.MaxPayloadBytes
)

var errNoRoom = errors.New("what the pass keeps in memory leaves no room for it")

// Store is where outputs are that are too large for status; *payloads.Store has them.
type Store interface {
	Put(ctx context.Context, ref protocol.OutputRef, data []byte) error
	Get(ctx context.Context, ref protocol.OutputRef) ([]byte, error)
	Drop(ctx context.Context, names []string) error
}

// desk says whether outputs of so many bytes may be in memory, and waits for that, and whether
// costly expressions may be evaluated; it has what takes long rest now and then. *shares.Desk does.
type desk interface {
	Rest(ctx context.Context)
	ForOutputs(ctx context.Context, bytes int64) error
	// May says whether ForOutputs would not wait.
	May(bytes int64) bool
	Has() bool
}

// Session is what one pass does with the outputs of its run.
type Session struct {
	store  Store
	desk   desk
	found  *found
	unused []string // names of outputs to which the last write does not refer any more
	// Lacking is why outputs that are needed could not be stored or read; nil: they could.
	Lacking error
	tries   *Tries // the last ones; nil: there were none
	// Stored says that NATS had room for outputs in this pass.
	Stored bool
	// Enough says that Jobs or Child left something for the next pass, which is to be at a desk: it
	// was more than this one may render.
	Enough bool
}

// New begins a pass that remembers what was found out before.
func New(store Store, d desk, before lifecycle.Payloads) *Session {
	return &Session{store: store, desk: d, found: newFound(before)}
}

// Payloads are what was found in the object store.
func (s *Session) Payloads() lifecycle.Payloads { return s.found.payloads }

// Facts are the findings without the bytes.
func (s *Session) Facts() lifecycle.Payloads { return s.found.facts() }

// With is how many bytes of outputs are in memory once what a decision lacks is stored and read.
func (s *Session) With(n lifecycle.Needs) int64 { return s.found.held() + bytesOf(n) }

// Supply stores and reads what a decision lacks. What it finds out is a fact about the output; its
// error is not.
func (s *Session) Supply(ctx context.Context, n lifecycle.Needs) error {
	_, err := s.supply(ctx, n)
	return err
}

// supply says of which outputs it found nothing out, too, by name.
func (s *Session) supply(ctx context.Context, n lifecycle.Needs) (failed map[string]bool, err error) {
	failed = map[string]bool{}
	bytes := bytesOf(n)
	if err := s.desk.ForOutputs(ctx, bytes); err != nil {
		each(n, func(ref protocol.OutputRef) { failed[ref.Name] = true })
		return failed, err
	}
	var (
		mu    sync.Mutex
		group errgroup.Group
	)
	group.SetLimit(suppliedAtOnce(bytes))
	do := func(name string, task func() error) {
		group.Go(func() error {
			if e := task(); e != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[name], err = true, errors.Join(err, e)
			}
			return nil
		})
	}
	for _, p := range n.Store {
		do(p.Ref.Name, func() error { return s.put(ctx, &p) })
	}
	for _, ref := range n.Check {
		do(ref.Name, func() error { return s.check(ctx, ref) })
	}
	for _, ref := range n.Load {
		do(ref.Name, func() error { return s.load(ctx, ref) })
	}
	_ = group.Wait() // err has all of them
	s.Stored = s.Stored || len(n.Store) > 0 && err == nil
	return failed, err
}

// put stores an output, and keeps its bytes if there is room.
func (s *Session) put(ctx context.Context, p *lifecycle.StoredOutput) error {
	if err := s.store.Put(ctx, p.Ref, p.Data); err != nil {
		return err
	}
	s.found.keep(p.Ref.Name, lifecycle.Payload{Data: p.Data}, keptBytes)
	if p.Of != "" {
		s.found.noteStored(p.Of, p.Ref)
	}
	return nil
}

// check notes what is to be said of an output, with its bytes if there is room.
func (s *Session) check(ctx context.Context, ref protocol.OutputRef) error {
	_, err := s.read(ctx, ref, keptBytes)
	return err
}

// load notes an output with its bytes. Another decision would ask again for one that finds no room:
// the next pass begins with all the room.
func (s *Session) load(ctx context.Context, ref protocol.OutputRef) error {
	there, err := s.read(ctx, ref, loadedBytes+keptBytes)
	if err == nil && !there {
		err = fmt.Errorf("output %s: %w", ref.Name, errNoRoom)
	}
	return err
}

// read notes what is to be said of an output, with its bytes if all that is kept stays
// within a bound, and says whether it is known now.
func (s *Session) read(ctx context.Context, ref protocol.OutputRef, bound int) (there bool, err error) {
	data, err := s.store.Get(ctx, ref)
	switch {
	case errors.Is(err, payloads.ErrUnusable):
		s.found.note(ref.Name, lifecycle.Payload{Problem: err.Error()})
		return true, nil
	case err != nil:
		return false, fmt.Errorf("output %s: %w", ref.Name, err)
	}
	payload := render.PayloadOf(ref, data, s.resting(ctx))
	if payload.Problem != "" {
		s.found.note(ref.Name, payload)
		return true, nil
	}
	return s.found.keep(ref.Name, payload, bound), nil
}

// resting is what is called now and then by what takes long.
func (s *Session) resting(ctx context.Context) func() { return func() { s.desk.Rest(ctx) } }

// suppliedAtOnce is how many outputs of so many bytes together are stored or read at the same time.
func suppliedAtOnce(bytes int64) int {
	if bytes > loadedBytes {
		return loadedBytes / protocol.MaxPayloadBytes
	}
	return supplyParallel
}

// bytesOf is how much memory it takes to store or read what a decision lacks.
func bytesOf(n lifecycle.Needs) (bytes int64) {
	each(n, func(ref protocol.OutputRef) { bytes += ref.Size })
	return bytes
}

// each calls what looks at an output for all that a decision lacks.
func each(n lifecycle.Needs, do func(protocol.OutputRef)) {
	for _, s := range n.Store {
		do(s.Ref)
	}
	for _, ref := range n.Check {
		do(ref)
	}
	for _, ref := range n.Load {
		do(ref)
	}
}

// Jobs renders jobs of a run again, with the outputs that their inputs are made of: as much as the
// decisions of a pass may. It does not wait for a desk, as its pass has the run's lock. It may be
// used concurrently, and renders one after the other.
type Jobs struct {
	outputs   *Session
	mu        sync.Mutex
	rendering *render.Rendering
	some      bool  // one was rendered
	away      error // why outputs cannot be read: the object store is not asked for each job
}

// Jobs begins to render, with the lists of steps that are known.
func (s *Session) Jobs(run *v1alpha1.WorkflowRun, lists map[string][]any) *Jobs {
	j := &Jobs{outputs: s, rendering: render.New(run, s.found.payloads, lists)}
	j.rendering.Budget(!s.desk.Has())
	return j
}

// Input is that of an attempt in flight. Its error wraps render.ErrEnough where the rest is for the
// next pass, and a *render.LostError where no pass can render it; else it may be tried again.
func (j *Jobs) Input(ctx context.Context, id protocol.JobID) (json.RawMessage, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(ctx, id); err != nil {
		return nil, j.outputs.leave(err)
	}
	j.rendering.Pause(j.outputs.resting(ctx))
	job, err := j.rendering.Job(id)
	j.some = j.some || err == nil
	return job.Input, j.outputs.leave(err)
}

// leave notes whether an error says that something is left for the next pass.
func (s *Session) leave(err error) error {
	s.Enough = s.Enough || errors.Is(err, render.ErrEnough)
	return err
}

// load reads what the input of an attempt is made of.
func (j *Jobs) load(ctx context.Context, id protocol.JobID) error {
	needs := j.rendering.Needs(id)
	switch {
	case len(needs) == 0:
		return ctx.Err()
	case j.away != nil:
		return j.away
	}
	err := j.outputs.loadAll(ctx, needs)
	switch {
	case errors.Is(err, render.ErrEnough):
		return err
	case errors.Is(err, errNoRoom) && j.some:
		return fmt.Errorf("%w: %w", render.ErrEnough, err) // what others read takes it
	}
	j.away = err
	return err
}

// Child renders the child run of a step again, with the outputs that its inputs are made of. As
// with Jobs, its error wraps render.ErrEnough where that is for the next pass.
func (s *Session) Child(ctx context.Context, run *v1alpha1.WorkflowRun, step string) (lifecycle.ChildToCreate, error) {
	if err := s.loadAll(ctx, render.ChildInputs(run, step)); err != nil {
		return lifecycle.ChildToCreate{}, s.leave(err)
	}
	return render.ChildOf(run, step, s.found.payloads, s.resting(ctx))
}

// loadAll reads outputs that are not in memory, as far as it is not known that they cannot be used.
// What would take a desk that the pass does not have is not read.
func (s *Session) loadAll(ctx context.Context, refs []protocol.OutputRef) error {
	var lack lifecycle.Needs
	for _, ref := range refs {
		if p := s.found.payloads[ref.Name]; p.Data == nil && p.Problem == "" {
			lack.Load = append(lack.Load, ref)
		}
	}
	if bytes := bytesOf(lack); !s.desk.May(bytes) {
		return fmt.Errorf("outputs of %d bytes take a desk: %w", bytes, render.ErrEnough)
	}
	return s.Supply(ctx, lack)
}

// Wrote notes the objects to which the status does not refer any more: those of the status before,
// and those of items' workers whose bytes are with those of other items now. A status may refer
// again to what the one before did not.
func (s *Session) Wrote(was, now *v1alpha1.WorkflowRun, takenOver []string) {
	s.unused = missingFrom(lifecycle.OutputNames(now), slices.Concat(s.unused, lifecycle.OutputNames(was), takenOver))
}

// DropUnused drops the objects that the status does not refer to any more. What fails here, and
// what is left then, is dropped with the run.
func (s *Session) DropUnused(ctx context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(supplyParallel)
	for _, name := range s.unused {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return s.store.Drop(ctx, []string{name})
		})
	}
	if err := group.Wait(); err != nil {
		log.FromContext(ctx).Info("Outputs that are not needed any more stay until the run is deleted", "cause", err.Error())
	}
	s.unused = nil
}
