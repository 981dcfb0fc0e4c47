package workflowrun

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// maxDesks bounds the desks of a process, and so what all passes together hold of large outputs: some 100 MiB each at most.
	maxDesks = 2
	// largeObject is from how many bytes on a run is written from a desk: of 200 steps a status write takes some six times as long as of
	// five.
	largeObject = 64 << 10
	// maxRest bounds how long a desk stays empty after its use.
	maxRest = time.Second
)

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
	begin := p.clock.Now()
	p.desk = func() { p.rest(begin, done) }
	return true
}

// rest gives a desk back that was had since then: if others want passes, after as long as it was had. What is done at desks, here and at
// the API server, takes half of the time at most then, and leaves the other half to them.
func (p *pass) rest(begin time.Time, done func()) {
	pause := min(p.clock.Since(begin), maxRest)
	if p.turns == nil || !p.turns.others(p.key.Namespace, begin.Add(-maxRest)) {
		pause = 0
	}
	if pause <= 0 {
		done()
		return
	}
	p.clock.AfterFunc(pause, done)
}

// sitDownForSize gives a desk to a pass that is about to write a large object. It is asked before the lock is taken: who waits then is in
// nobody's way. The size is that of the last write; of the first one it is known too late for that.
func (p *pass) sitDownForSize(ctx context.Context) error {
	if p.mem.lastWriteBytes <= largeObject {
		return nil
	}
	return p.needDesk(ctx)
}

func bytesOfLetters(letters []*letter) (bytes int64) {
	for _, l := range letters {
		bytes += l.bytes()
	}
	return bytes
}

// deskFor makes sure that outputs of so many bytes may be in memory, or be read.
func (p *pass) deskFor(ctx context.Context, bytes int64) error {
	if bytes <= deskBytes {
		return nil
	}
	return p.needDesk(ctx)
}

func (p *pass) needDesk(ctx context.Context) error {
	if p.desks == nil || p.desk != nil || p.sitDown(ctx) {
		return nil
	}
	return fmt.Errorf("wait for a desk: %w", context.Cause(ctx))
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
