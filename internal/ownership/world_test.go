// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// patience ends a hung test; it is no expectation about speed.
const patience = time.Minute

// quick are the waits of the tests: a quarter of those of production.
var quick = Timing{Lease: 1500 * time.Millisecond}

// server is the API server that all tests share; each has a namespace of its own.
var server testenv.Shared

func TestMain(m *testing.M) { server.Main(m) }

// world is a namespace with members in it.
type world struct {
	t      *testing.T
	client client.WithWatch
	ns     string
	timing Timing

	mu      sync.Mutex
	members []*fellow
	// actors says who began to work on a partition under a term.
	actors map[[2]int64]string
	// ended is when the work of a partition last began to end, and gaps how long
	// nobody worked then.
	ended map[int]time.Time
	gaps  []time.Duration
}

// fellow is a member of the tests: a Keeper, and a Handler that notes what it is asked for.
type fellow struct {
	*Keeper
	w       *world
	name    string
	cut     atomic.Bool  // its calls fail
	blind   atomic.Bool  // it cannot read the owners
	deaf    atomic.Int64 // so many lists of the members fail
	unfit   atomic.Bool
	writes  atomic.Int64
	stop    context.CancelFunc
	ended   chan error
	working sync.Map // partition -> true
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, ns := server.Namespace(t, "own-")
	w := &world{t: t, client: c, ns: ns, timing: quick, actors: map[[2]int64]string{}, ended: map[int]time.Time{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() { w.watch(ctx) })
	t.Cleanup(func() {
		for _, f := range w.all() {
			f.stop()
		}
		for _, f := range w.all() {
			if err := <-f.ended; err != nil {
				t.Errorf("%s ended: %v", f.name, err)
			}
		}
		stop()
		watching.Wait()
	})
	return w
}

var errCut = errors.New("cut off")

// unowned makes the object before any member does, as one that is not young: the first member owns
// all at once.
func (w *world) unowned() {
	w.t.Helper()
	e := rules.Effective{Origin: "before"}
	for range Partitions {
		e.Claims = append(e.Claims, Claim{Term: 1})
	}
	o, err := encode(w.ns, scope{"here", "syncopate"}, e)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.client.Create(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}

// there waits until members have a Lease and know that a owns something.
func (w *world) there(members ...*fellow) {
	w.t.Helper()
	for _, f := range members {
		w.eventually(f.name+" is there", func() bool { return f.until.Load().session > 0 && f.OwnerOf(7) == "a" })
	}
}

// OwnerOf is the owner of a partition as this member last read it; empty: none.
func (f *fellow) OwnerOf(p int) string { return f.claim(p).Owner }

// Term is the term of a partition as this member last read it.
func (f *fellow) Term(p int) int64 { return f.claim(p).Term }

func (f *fellow) claim(p int) Claim {
	if e := f.known.Load(); p < len(e.Claims) {
		return e.Claims[p]
	}
	return Claim{}
}

// Gone says whether the Lease of a member ended, as this one observed it.
func (f *fellow) Gone(member string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.member.Gone(member)
}

// newFellow makes a member that is not started.
func (w *world) newFellow(name string, change func(*Options)) *fellow {
	f := &fellow{w: w, name: name, ended: make(chan error, 1), stop: func() {}}
	cut := func() error {
		if f.cut.Load() {
			return errCut
		}
		return nil
	}
	c := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if key.Name == ObjectName && f.blind.Load() {
				return errCut
			}
			return errors.Join(cut(), c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			if f.deaf.Add(-1) >= 0 {
				return errCut
			}
			return errors.Join(cut(), c.List(ctx, l, opts...))
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			f.writes.Add(1)
			if err := cut(); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			f.writes.Add(1)
			if err := cut(); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			f.writes.Add(1)
			if err := cut(); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		Watch: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			if err := cut(); err != nil {
				return nil, err
			}
			return c.Watch(ctx, l, opts...)
		},
	})
	o := Options{
		Client: c, Namespace: w.ns, Installation: "here", Prefix: "syncopate", Member: name, Handler: f,
		Clock: clock.RealClock{}, Spread: rand.Float64, Log: testr.New(w.t).WithName(name), Timing: w.timing,
		Fit: func(context.Context) error {
			if f.unfit.Load() {
				return errors.New("no Redis")
			}
			return nil
		},
	}
	if change != nil {
		change(&o)
	}
	f.Keeper = New(o)
	return f
}

// join starts a member.
func (w *world) join(name string) *fellow {
	f := w.newFellow(name, nil)
	f.run()
	return f
}

func (f *fellow) run() {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.w.t.Context()))
	f.stop = stop
	f.w.mu.Lock()
	f.w.members = append(f.w.members, f)
	f.w.mu.Unlock()
	go func() { f.ended <- f.Start(ctx) }()
}

// end stops a member in good order.
func (f *fellow) end() {
	f.w.t.Helper()
	f.stop()
	select {
	case err := <-f.ended:
		f.ended <- err
		if err != nil {
			f.w.t.Errorf("%s ended: %v", f.name, err)
		}
	case <-time.After(patience):
		f.w.t.Fatalf("%s does not end", f.name)
	}
}

func (w *world) all() []*fellow {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.members)
}

// TakeOver implements Handler.
func (f *fellow) TakeOver(ctx context.Context, partitions []int) { f.Gain(ctx, partitions) }

// Gain implements Handler.
func (f *fellow) Gain(_ context.Context, partitions []int) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	for _, p := range partitions {
		f.working.Store(p, true)
		if at, ok := f.w.ended[p]; ok {
			f.w.gaps = append(f.w.gaps, time.Since(at))
			delete(f.w.ended, p)
		}
		if f.OwnerOf(p) != f.name {
			continue // lost again meanwhile
		}
		key := [2]int64{int64(p), f.Term(p)}
		if other := f.w.actors[key]; other != "" && other != f.name {
			f.w.t.Errorf("%s and %s work on %d under term %d", other, f.name, p, key[1])
		}
		f.w.actors[key] = f.name
	}
}

// Lose implements Handler: the work takes a moment to end, and a moment more for half of it.
func (f *fellow) Lose(ctx context.Context, partitions []int, ended func([]int)) {
	f.w.mu.Lock()
	for _, p := range partitions {
		f.w.ended[p] = time.Now()
		if f.Owns(p) {
			f.w.t.Errorf("%s owns %d while its work ends", f.name, p)
		}
	}
	f.w.mu.Unlock()
	half := len(partitions) / 2
	for _, part := range [][]int{partitions[:half], partitions[half:]} {
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Millisecond):
		}
		for _, p := range part {
			f.working.Delete(p)
		}
		ended(part)
	}
}

// watch looks for partitions that two members own, until ctx ends: the one before and after the
// other was looked at, under the same term.
func (w *world) watch(ctx context.Context) {
	for ctx.Err() == nil {
		all := w.all()
		for p := range Partitions {
			for _, a := range all {
				term := a.Term(p)
				if !a.Owns(p) {
					continue
				}
				for _, b := range all {
					if b != a && b.Owns(p) && a.Owns(p) && a.Term(p) == term {
						w.t.Errorf("%s and %s own %d", a.name, b.name, p)
					}
				}
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// eventually waits until what is true.
func (w *world) eventually(what string, is func() bool) time.Duration {
	w.t.Helper()
	began := time.Now()
	for !is() {
		if time.Since(began) > patience {
			for _, f := range w.all() {
				w.t.Logf("%s owns %d", f.name, f.count())
			}
			w.t.Fatalf("not within %v: %s", patience, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
	return time.Since(began)
}

// divided says whether these members own all partitions, each a fair part.
func divided(members ...*fellow) func() bool {
	return func() bool {
		sum := 0
		for _, f := range members {
			n := f.count()
			if n < Partitions/(3*len(members)) {
				return false
			}
			sum += n
		}
		return sum == Partitions
	}
}

// owned says whether these members own all partitions, however many each has.
func owned(members ...*fellow) func() bool {
	return func() bool {
		sum := 0
		for _, f := range members {
			sum += f.count()
		}
		return sum == Partitions
	}
}

// moves is what two Leases change in who owns what, once that is as it should be; empty: nothing.
// They begin again where a member loses its session, which a slow machine does: then others rightly
// have its partitions.
func (w *world) moves(ready func() bool, members ...*fellow) (moved string) {
	w.t.Helper()
	var sessions []int64
	var owners string
	var began time.Time
	w.eventually("two Leases in which no session ends", func() bool {
		now := members[0].owners()
		var in []int64
		for _, f := range members {
			in = append(in, f.until.Load().session)
		}
		if !slices.Equal(in, sessions) {
			sessions, owners = in, ""
		}
		if owners == "" && !slices.Contains(in, 0) && ready() {
			owners, began = members[0].owners(), time.Now()
		}
		if owners == "" || time.Since(began) < 2*w.timing.Lease {
			return false
		}
		if now != owners {
			moved = now
		}
		return true
	})
	return moved
}

// owners is OwnerOf and Term of all partitions, as text.
func (f *fellow) owners() (text string) {
	for p := range Partitions {
		text += fmt.Sprintf("%s@%d ", f.OwnerOf(p), f.Term(p))
	}
	return text
}
