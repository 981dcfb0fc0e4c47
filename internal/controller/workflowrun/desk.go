package workflowrun

import (
	"context"
	"fmt"
	"runtime"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxDesks bounds the desks of a process, and so what all passes together hold of large outputs: some 100 MiB each at most.
const maxDesks = 2

// desksOf is how many passes may do what takes long, or much memory, on so many cores at the same time: one core at least is left to the
// others, if there are two.
func desksOf(cores int) int { return max(1, min(maxDesks, cores-1)) }

func coresOfProcess() int { return runtime.GOMAXPROCS(0) }

// sitDown gives the pass a desk: a place among the few that evaluate costly expressions, or have large outputs in memory. All others go
// past them. It waits, off the run's lock as a rule, until it is its tenant's turn, and keeps the desk to the end of the pass. False: it
// has one already, or the context ended.
func (p *pass) sitDown(ctx context.Context) bool {
	if p.desks == nil || p.desk != nil {
		return false
	}
	done, err := p.desks.wait(ctx, p.key.Namespace)
	if err != nil {
		return false // what the decision began is good; the rest is for the next pass
	}
	p.desk = done
	return true
}

// deskFor makes sure that outputs of so many bytes may be in memory.
func (p *pass) deskFor(ctx context.Context, bytes int64) error {
	if bytes <= deskBytes || p.desks == nil || p.desk != nil || p.sitDown(ctx) {
		return nil
	}
	return fmt.Errorf("outputs of %d bytes: wait for a desk: %w", bytes, context.Cause(ctx))
}

// suppliedAtOnce is how many outputs of so many bytes together are stored or read at the same time.
func suppliedAtOnce(bytes int64) int {
	if bytes > loadedBytes {
		return loadedBytes / protocol.MaxPayloadBytes
	}
	return supplyParallel
}

// standUp gives the desk back.
func (p *pass) standUp() {
	if p.desk != nil {
		p.desk()
		p.desk = nil
	}
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
