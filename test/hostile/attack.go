// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// underWayLimit bounds how long an attack may take to become one.
	underWayLimit = 5 * time.Minute
	// lastRound bounds how long Stop waits for the end of the round under way.
	lastRound = 15 * time.Second
	// apartLimit bounds how long the process of an Apart may take to end, with all it has to undo.
	apartLimit = 5 * time.Minute
)

// Kind is one way to do harm.
type Kind struct {
	// Name is for namespaces and tables.
	Name string
	// About says what the tenant does, in one sentence without its end.
	About string

	play func(context.Context, *Attack) error // until ctx ends
}

// Kinds are all ways, in the order in which the review listed them.
func Kinds() []Kind {
	return []Kind{
		{"late-results", "results are stored in time, and delivered after the time-out", lateResults},
		{"large-outputs", "outputs of 8 MiB of small objects are read by expressions", largeOutputs},
		{"costly-specs", "200 steps, each with the costliest condition and input that is valid", costlySpecs},
		{"parked-results", "1,000 results of one run wait with delays; another run has no room left in its object", parkedResults},
		{"backlog", "results of 60 KiB wait by the thousand", backlog},
		{"refused-results", "writes are refused until results are dead letters, then the owner changes", refusedResults},
		{"late-publishes", "the publishes of an owner arrive after a take-over, beyond any deduplication window", latePublishes},
	}
}

// Size is how many runs of a kind are under way at a time.
type Size string

const (
	// Many is a tenant who does all that he can.
	Many Size = "many"
	// One is one run of the kind after the other, each with all of its harm.
	One Size = "one"
	// Few is for tests: some runs, with less in each.
	Few Size = "few"
)

// Calm is what a kind is compared with if its play changes owners, which neighbours feel whoever is
// to blame: about as many changes, beside a tenant who does no harm. false: it changes none.
func (k Kind) Calm() (calm Kind, changes bool) {
	every, changes := changesEvery[k.Name]
	return Kind{"changes", fmt.Sprintf("one owner gives way to another each %s, and nobody does harm", every), func(ctx context.Context, a *Attack) error {
		return changesOfOwner(ctx, a, every)
	}}, changes
}

// Attack is a kind at work in its namespace.
type Attack struct {
	*tenant
	kind Kind
	size Size

	stop     context.CancelFunc
	ending   chan struct{} // no round begins any more
	over     chan struct{} // play has returned
	ready    chan struct{}
	isReady  sync.Once
	stopping sync.Once

	mu      sync.Mutex
	err     error
	finding Finding
}

// Finding is what came of an attack.
type Finding struct {
	// Rounds is how often the harm was done.
	Rounds int
	// Lost results were stored in time and counted as time-outs.
	Lost []string
	// Twice are jobs that were stored a second time after a worker had had them.
	Twice []string
}

// With adds what another attack found.
func (f Finding) With(other Finding) Finding {
	return Finding{f.Rounds + other.Rounds, slices.Concat(f.Lost, other.Lost), slices.Concat(f.Twice, other.Twice)}
}

// Attacks begins kinds, all at a time, and returns when each is under way. Those that are returned
// have to be stopped, also with an error.
func (s *Scene) Attacks(ctx context.Context, size Size, kinds ...Kind) ([]*Attack, error) {
	var all []*Attack
	for _, k := range kinds {
		a, err := s.attack(ctx, k, size)
		if err != nil {
			return all, err
		}
		all = append(all, a)
	}
	waiting, cancel := context.WithTimeout(ctx, underWayLimit)
	defer cancel()
	for _, a := range all {
		if err := a.await(waiting); err != nil {
			return all, err
		}
	}
	return all, nil
}

func (s *Scene) attack(ctx context.Context, k Kind, size Size) (*Attack, error) {
	t, err := s.tenant(ctx, k.Name)
	if err != nil {
		return nil, err
	}
	playing, stop := context.WithCancel(context.WithoutCancel(ctx))
	a := &Attack{tenant: t, kind: k, size: size, stop: stop, ready: make(chan struct{}), ending: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(a.over)
		if err := k.play(playing, a); err != nil && playing.Err() == nil {
			a.note(func(*Finding) { a.err = fmt.Errorf("%s: %w", k.Name, err) })
		}
	}()
	return a, nil
}

// await waits until the attack is under way.
func (a *Attack) await(ctx context.Context) error {
	select {
	case <-a.ready:
		return nil
	case <-a.over:
		return fmt.Errorf("%s ended before it was under way", a.kind.Name)
	case <-ctx.Done():
		return fmt.Errorf("%s is not under way: %w", a.kind.Name, context.Cause(ctx))
	}
}

// Kind is what is played.
func (a *Attack) Kind() Kind { return a.kind }

// Stop ends the attack, after the round under way if that ends soon, undoes what it did, and says
// what it found. Once is enough.
func (a *Attack) Stop(ctx context.Context) (Finding, error) {
	a.stopping.Do(func() { a.end(ctx) })
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.finding, a.err
}

func (a *Attack) end(ctx context.Context) {
	close(a.ending)
	patience := time.NewTimer(lastRound)
	defer patience.Stop()
	select {
	case <-a.over:
	case <-patience.C:
	case <-ctx.Done():
	}
	a.stop()
	<-a.over
	err := a.close(context.WithoutCancel(ctx))
	a.note(func(f *Finding) {
		f.Twice = a.log.twice()
		a.err = errors.Join(a.err, err)
	})
}

// underWay says that the attack is one.
func (a *Attack) underWay() { a.isReady.Do(func() { close(a.ready) }) }

func (a *Attack) note(f func(*Finding)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.finding)
}

// runs is how many runs the attack has under way at a time, by its size.
func (a *Attack) runs(many, few int) int {
	switch a.size {
	case One:
		return 1
	case Few:
		return few
	case Many:
	}
	return many
}

// all is how much of something there is in a run, or for it: all of it but in tests.
func (a *Attack) all(all, few int) int {
	if a.size == Few {
		return few
	}
	return all
}

// rounds plays one round after the other, each bounded, until ctx ends. A round that is not over in
// time is no error: what hinders the operator hinders the attack, too.
func (a *Attack) rounds(ctx context.Context, atMost time.Duration, round func(ctx context.Context, n int) error) error {
	for n := 0; !a.isEnding(); n++ {
		bounded, cancel := context.WithTimeout(ctx, atMost)
		err := round(bounded, n)
		cancel()
		if ctx.Err() != nil || err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		a.note(func(f *Finding) { f.Rounds++ })
	}
	return nil
}

func (a *Attack) isEnding() bool {
	select {
	case <-a.ending:
		return true
	default:
		return false
	}
}

// gate holds workers back until it opens.
type gate struct {
	open chan struct{}
	once sync.Once
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

// pass opens the gate, if it was closed.
func (g *gate) pass() { g.once.Do(func() { close(g.open) }) }

func (g *gate) wait(ctx context.Context) error {
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("held back: %w", context.Cause(ctx))
	}
}
