package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// supplyParallel bounds the outputs that one pass stores or reads at the same time; so many of the largest that they take loadedBytes.
	supplyParallel = 8
	// loadedBytes bounds what a pass keeps of outputs that a decision reads: as much as the core asks for at once, for expressions and
	// results on the one hand, and for outputs of items that are made one on the other.
	loadedBytes = 2 * protocol.MaxPayloadBytes
	// keptBytes bounds what a pass keeps of the outputs that it only had to check, in case the next step reads them.
	keptBytes = 1 << 20
)

// outputs is where outputs are that are too large for status; *payloads.Store has them.
type outputs interface {
	Put(ctx context.Context, ref protocol.OutputRef, data []byte) error
	Get(ctx context.Context, ref protocol.OutputRef) ([]byte, error)
	Drop(ctx context.Context, names []string) error
}

// decide decides, finds out what the decision lacks, and decides again until it lacks nothing. If the object store or the stream cannot be
// asked, what the decision lacks is left undone, to be tried again soon: the rest of it is good, a cancel above all.
func (p *pass) decide(ctx context.Context, lock lifecycle.Lock) lifecycle.Decision {
	for {
		d := lifecycle.Decide(p.input(lock))
		p.evaluated = d.Evaluated
		p.lists.keep(p.run.UID, d.Lists)
		asked := p.askAbout(ctx, d.Needs)
		switch {
		case d.Cut && p.desk.SitDown(ctx):
			continue // with time for what takes long
		case !d.Needs.Outputs() && !asked:
			return d
		case !d.Needs.Outputs():
			continue
		}
		if err := p.supply(ctx, d.Needs); err != nil {
			p.outputsMissing(ctx, d, err)
			return d
		}
	}
}

// askAbout asks what a decision lacks beside outputs, and says whether another one knows more.
func (p *pass) askAbout(ctx context.Context, n lifecycle.Needs) bool {
	if n.Claim {
		claim, err := p.slots.Claim(ctx, p.run, p.tenantName())
		p.claim = claim
		p.lookAgainAfter(ctx, err, "Idempotency key not claimed")
	}
	if n.Admission {
		slot, err := p.slots.Ask(ctx, &p.mem.slot, p.run, p.tenantName(), p.policy)
		p.slot = slot
		p.lookAgainAfter(ctx, err, "No answer about a slot")
	}
	answered := n.Answers && p.ask(ctx)
	return n.Claim || n.Admission || answered
}

// outputsMissing has what a decision lacks of the object store tried again.
func (p *pass) outputsMissing(ctx context.Context, d lifecycle.Decision, cause error) {
	if ctx.Err() == nil {
		log.FromContext(ctx).Info("Outputs in the object store wait", "delay", retryDelay(cause), "cause", cause.Error())
	}
	p.lacking = cause
	p.later = pacing.Earliest(p.later, p.clock.Now().Add(retryDelay(cause)))
	if d.Deferred {
		p.answersMissing(retryDelay(cause), cause.Error())
	}
}

// supply stores and reads what a decision lacks. What it finds out is a fact about the output; its error is not.
func (p *pass) supply(ctx context.Context, n lifecycle.Needs) error {
	bytes := bytesOf(n)
	if err := p.desk.ForOutputs(ctx, bytes); err != nil {
		return err
	}
	var tasks []func() error
	for _, s := range n.Store {
		tasks = append(tasks, func() error {
			if err := p.outputs.Put(ctx, s.Ref, s.Data); err != nil {
				return err
			}
			p.found.note(s.Ref.Name, lifecycle.Payload{Data: s.Data})
			return nil
		})
	}
	for _, ref := range n.Check {
		tasks = append(tasks, func() error { return p.read(ctx, ref, keptBytes) })
	}
	for _, ref := range n.Load {
		tasks = append(tasks, func() error { return p.read(ctx, ref, loadedBytes) })
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, suppliedAtOnce(bytes))
	for _, task := range tasks {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := task(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, err)
			}
		})
	}
	wg.Wait()
	return failed
}

// suppliedAtOnce is how many outputs of so many bytes together are stored or read at the same time.
func suppliedAtOnce(bytes int64) int {
	if bytes > loadedBytes {
		return loadedBytes / protocol.MaxPayloadBytes
	}
	return supplyParallel
}

func bytesOfLetters(letters []*results.Pending) (bytes int64) {
	for _, l := range letters {
		bytes += l.Bytes()
	}
	return bytes
}

// bytesOf is how much memory it takes to store or read what a decision lacks.
func bytesOf(n lifecycle.Needs) (bytes int64) {
	for _, s := range n.Store {
		bytes += s.Ref.Size
	}
	for _, ref := range n.Check {
		bytes += ref.Size
	}
	for _, ref := range n.Load {
		bytes += ref.Size
	}
	return bytes
}

// tired gives a result back that has waited too long for the object store.
func (p *pass) tired(l *results.Pending) []results.Settlement {
	if p.lacking == nil || p.clock.Since(l.Since) < resultPatience {
		return nil
	}
	return []results.Settlement{p.giveBack(l, p.retryWait(bus.ClassStoreUnavailable), bus.ClassStoreUnavailable, p.lacking)}
}

// read notes what is to be said of an output, with its bytes if all that is kept stays within a bound.
func (p *pass) read(ctx context.Context, ref protocol.OutputRef, bound int) error {
	data, err := p.outputs.Get(ctx, ref)
	switch {
	case errors.Is(err, payloads.ErrUnusable):
		p.found.note(ref.Name, lifecycle.Payload{Problem: err.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("output %s: %w", ref.Name, err)
	}
	if problem := render.PayloadProblem(ref, data); problem != "" {
		p.found.note(ref.Name, lifecycle.Payload{Problem: problem})
		return nil
	}
	p.found.keep(ref.Name, data, bound)
	return nil
}

// found is what a pass found in the object store. Between passes only what is to be said of outputs is remembered, not their bytes.
type found struct {
	mu       sync.Mutex
	payloads lifecycle.Payloads
	bytes    int
}

func newFound(before lifecycle.Payloads) *found {
	f := &found{payloads: lifecycle.Payloads{}}
	maps.Copy(f.payloads, before)
	return f
}

func (f *found) note(name string, payload lifecycle.Payload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.payloads[name] = payload
}

func (f *found) keep(name string, data []byte, bound int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+len(data) > bound {
		f.payloads[name] = lifecycle.Payload{}
		return
	}
	f.bytes += len(data)
	f.payloads[name] = lifecycle.Payload{Data: data}
}

// facts are the findings without the bytes.
func (f *found) facts() lifecycle.Payloads {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := make(lifecycle.Payloads, len(f.payloads))
	for name, payload := range f.payloads {
		facts[name] = lifecycle.Payload{Problem: payload.Problem}
	}
	return facts
}

// renderedJobs renders the jobs of attempts again, with the outputs that their inputs are made of.
func (p *pass) renderedJobs(ctx context.Context, ids []protocol.JobID) ([]lifecycle.Job, error) {
	rendering := render.New(p.run, p.found.payloads, p.lists.of(p.run.UID))
	all := make([]lifecycle.Job, 0, len(ids))
	for _, id := range ids {
		var lack lifecycle.Needs
		for _, ref := range rendering.Needs(id) {
			if p.found.payloads[ref.Name].Data == nil {
				lack.Load = append(lack.Load, ref)
			}
		}
		if err := p.supply(ctx, lack); err != nil {
			return all, err
		}
		j, err := rendering.Job(id)
		if err != nil {
			return all, fmt.Errorf("render job %s: %w", id, err)
		}
		all = append(all, j)
	}
	return all, nil
}

// renderedChild renders the child run of a step again, with the outputs that its inputs are made of.
func (p *pass) renderedChild(ctx context.Context, step string) (lifecycle.ChildToCreate, error) {
	var lack lifecycle.Needs
	for _, ref := range render.ChildInputs(p.run, step) {
		if p.found.payloads[ref.Name].Data == nil {
			lack.Load = append(lack.Load, ref)
		}
	}
	if err := p.supply(ctx, lack); err != nil {
		return lifecycle.ChildToCreate{}, err
	}
	return render.ChildOf(p.run, step, p.found.payloads)
}
