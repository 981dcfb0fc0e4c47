// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// lockFirst takes the lock of a run before it is known all what for, if many bytes of results wait
// and the lock may well be busy: it was, or another process wrote the run last. To find out all
// means to read them, and to store what is made of them, each time for nothing. It waits for its
// desk with the lock then.
func lockFirst(ctx context.Context, p *pass) error {
	if !shares.Large(p.batch.Bytes()) || wroteLast(p) && !p.lock.WasBusy() {
		return nil
	}
	in := outline(ctx, p, p.lock.Tentative(p.run))
	for i := range in.Results {
		in.Results[i].Result.Output, in.Results[i].Result.OutputRef = nil, nil
	}
	if d := lifecycle.Decide(in); !slices.ContainsFunc(d.Verdicts, counts) {
		return nil // they are of no use, and need no lock to be settled
	}
	if !p.lock.WasBusy() { // else its turn may have come, for a moment
		if err := p.desk.StepAside(); err != nil {
			return err
		}
	}
	if err := p.lock.TakeEarly(ctx, p.run, pathOf(p.batch)); err != nil {
		return err
	}
	p.desk.Stay()
	return nil
}

// restsWithMany is when a run may be written of which many bytes of results wait; zero: now, or it
// may go on before. It is asked before lock and desk are: each result that comes in the pause after
// a write has a pass made. Where the lock was busy before, its turn may have come for a moment.
func restsWithMany(p *pass) time.Time {
	if !shares.Large(p.batch.Bytes()) || p.lock.WasBusy() || p.ahead.Likely(wroteLast(p)) {
		return time.Time{}
	}
	return pauseEnds(p)
}

// deskFirst gives the pass a desk before it takes the lock: to read many bytes of results, or to
// render again what the pass before it left. That needs the lock, so a pass without a desk does not
// wait for one then. Where the lock was busy before, its turn may have come for a moment. A run
// that is given up is written without what would need a desk.
func deskFirst(ctx context.Context, p *pass) error {
	if p.ahead.Closes {
		return nil
	}
	if p.mem.toDesk && !p.lock.WasBusy() && p.effectsPending() && p.executable() {
		return p.desk.Need(ctx)
	}
	return p.desk.ForOutputs(ctx, p.batch.Bytes())
}

// deskForObject gives the pass a desk before it takes the lock, if its object is large. An owner
// that has not written the run yet measures it: else the write would find that out under the lock,
// and wait there.
func deskForObject(ctx context.Context, p *pass) error {
	if p.mem.lastWriteBytes == 0 {
		_, size, err := p.mem.sized(asStored(p, p.run))
		if err != nil {
			return err
		}
		p.mem.lastWriteBytes = size
	}
	return p.desk.ForObject(ctx, p.mem.lastWriteBytes)
}

// counts says whether a result is one that changes its run, or may.
func counts(v lifecycle.Verdict) bool { return v == lifecycle.Applied || v == lifecycle.Waiting }

// outline is what tells at little cost whether a run would change. Its results are copies.
func outline(ctx context.Context, p *pass, lock lifecycle.Lock) lifecycle.Input {
	in := p.input(ctx, lock)
	in.Glance = true
	return in
}

// deskForAnEnd makes sure that a run with many bytes of results, which is to end without the lock,
// may read them: they count in its end.
func deskForAnEnd(ctx context.Context, p *pass, lock lifecycle.Lock) error {
	if p.desk.Has() || !shares.Large(p.batch.Bytes()) {
		return nil
	}
	in := outline(ctx, p, lock)
	in.Results = nil
	if d := lifecycle.Decide(in); !d.Changed && !d.Needs.Any() {
		return nil
	}
	return p.desk.ForOutputs(ctx, p.batch.Bytes())
}

// pathOf says what the lock is wanted for.
func pathOf(batch *results.Batch) string {
	if batch.Empty() {
		return "reconcile"
	}
	return "result"
}
