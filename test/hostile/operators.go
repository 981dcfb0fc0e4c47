// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

const (
	// MemoryLimit is that of the shipped pod, in MiB. An operator that has more is killed, as the
	// kubelet would, and started again.
	MemoryLimit = 512

	readyLimit = time.Minute
	stopLimit  = 30 * time.Second
	watchEvery = 10 * time.Millisecond
)

// Operators are the processes of a scene: one, and for the moment of a change two. They share the
// runs, as they do by default.
type Operators struct {
	scene *Scene

	mu      sync.Mutex // of all below; held during a change
	current *devenv.Manager
	started int
	err     error // of a restart

	watch sync.WaitGroup
	quit  context.CancelFunc

	tally sync.Mutex
	peak  float64
	kills int
	ends  int
}

// start starts the first operator, and the watch over its memory.
func (o *Operators) start(ctx context.Context) error {
	watching, quit := context.WithCancel(context.WithoutCancel(ctx))
	o.quit = quit
	m, err := o.launch(ctx)
	if err != nil {
		return err
	}
	o.current = m
	o.watch.Go(func() { o.guard(watching) })
	return nil
}

// launch starts an operator with the environment of the shipped pod, and waits until it is ready.
func (o *Operators) launch(ctx context.Context) (*devenv.Manager, error) {
	o.started++
	s := o.scene
	m, err := s.Env.StartManager(ctx, s.Binary, fmt.Sprintf("%s-operator-%d", s.Name, o.started),
		"--nats-prefix", s.Name, "--leader-elect=true", "--ownership=shards")
	if err != nil {
		return nil, err
	}
	ready, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := m.Ready(ready); err != nil {
		return nil, errors.Join(err, m.Kill())
	}
	return m, nil
}

// Change has another process take over: it starts while the old one works, which then ends
// in good order.
func (o *Operators) Change(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	next, err := o.launch(ctx)
	if err != nil {
		return err
	}
	old := o.current
	o.current = next
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	o.terminate(ending, old)
	return nil
}

// terminate ends an operator in good order. One that cannot is no error of the play, but counts.
func (o *Operators) terminate(ctx context.Context, m *devenv.Manager) {
	o.note(m)
	if err := m.Terminate(ctx); err != nil {
		o.count(func() { o.ends++ })
	}
}

func (o *Operators) stop(ctx context.Context) error {
	o.quit()
	o.watch.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current == nil {
		return o.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
	defer cancel()
	o.terminate(ctx, o.current)
	return o.err
}

// guard does what the kubelet does: it ends an operator that has more memory than it may, and
// starts one that ended.
func (o *Operators) guard(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			o.look(ctx)
		}
	}
}

func (o *Operators) look(ctx context.Context) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := o.current
	select {
	case <-m.Done():
		o.count(func() { o.ends++ })
	default:
		if o.note(m) < MemoryLimit {
			return
		}
		o.count(func() { o.kills++ })
		o.err = errors.Join(o.err, m.Kill())
	}
	next, err := o.launch(ctx)
	if err != nil {
		if ctx.Err() == nil {
			o.err = errors.Join(o.err, err)
		}
		return
	}
	o.current = next
}

// note looks at the memory of a process, and returns the most that it had, in MiB.
func (o *Operators) note(m *devenv.Manager) float64 {
	most := PeakRSS(m.PID())
	o.count(func() { o.peak = max(o.peak, most) })
	return most
}

func (o *Operators) count(f func()) {
	o.tally.Lock()
	defer o.tally.Unlock()
	f()
}

// Peak is the most memory that an operator of this scene had in use (RSS), in MiB.
func (o *Operators) Peak() float64 {
	o.tally.Lock()
	defer o.tally.Unlock()
	return o.peak
}

// Deaths says how many operators were killed for their memory, and how many ended by themselves or
// not in good order.
func (o *Operators) Deaths() (killed, ended int) {
	o.tally.Lock()
	defer o.tally.Unlock()
	return o.kills, o.ends
}

// Started is how many operators were started so far: one, and one more for each change of owner, or
// for one that was killed.
func (o *Operators) Started() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.started
}

// Log is the path of the current operator's log.
func (o *Operators) Log() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current.Log
}

// PeakRSS is the most memory that a process ever had in use, in MiB; 0 if it is gone, or where
// there is no /proc.
func PeakRSS(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			if err != nil {
				return 0
			}
			return kib / 1024
		}
	}
	return 0
}
