// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// crowd is a cache, and an API server, with a run of any name, of which the name is the UID, too.
// In a bubble of time each patch takes as long as it says.
type crowd struct {
	client.Client // none: nothing else may be asked
	takes         time.Duration
	answers       func(name string, dry bool) error

	mu        sync.Mutex
	dry       int             // dry runs that were begun
	under     int             // patches that are under way
	most      int             // of them at once
	cancelled map[string]bool // runs
}

func (c *crowd) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.SetName(key.Name)
	into.SetUID(types.UID(key.Name))
	return nil
}

func (c *crowd) Patch(ctx context.Context, o client.Object, _ client.Patch, opts ...client.PatchOption) error {
	all := &client.PatchOptions{}
	dry := len(all.ApplyOptions(opts).DryRun) > 0
	c.enter(dry)
	defer c.leave()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(c.takes):
	}
	if c.answers != nil {
		if err := c.answers(o.GetName(), dry); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancelled[o.GetName()] = c.cancelled[o.GetName()] || !dry
	return nil
}

func (c *crowd) enter(dry bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under++
	c.most = max(c.most, c.under)
	if dry {
		c.dry++
	}
}

func (c *crowd) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
}

// names are the runs that are cancelled.
func (c *crowd) names() (all []string) {
	for name, is := range c.cancelled {
		if is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// A limit was lowered from 500 to 1: very many have to end. The decision that asks has 8 seconds,
// and the API server may be slow: what the time lets is cancelled, and nobody asks for a
// look at all locks at once, which would have the same run ask again.
//
// mutations: cancelAll that does one after the other, whose dry runs take all of the time that is
// left, or that ends where they have no time; one without a bound of those that are under way; and
// follow that asks for a resync where its time is over.
func TestOfVeryManySomeAreCancelledEachTime(t *testing.T) {
	const most = 400
	limited := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	for name, c := range map[string]struct {
		takes, left time.Duration
		dry         error
		least       int // are cancelled
	}{
		"the server is quick":            {10 * time.Millisecond, 8 * time.Second, nil, most},
		"the server is slow":             {100 * time.Millisecond, 8 * time.Second, nil, most},
		"the server is very slow":        {time.Second, 8 * time.Second, nil, 60},
		"hardly any time is left":        {100 * time.Millisecond, time.Second, nil, 60},
		"requests of this process queue": {10 * time.Millisecond, 8 * time.Second, limited, most},
		"there is no bound":              {time.Second, time.Hour, nil, most},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), c.left)
				defer stop()
				server := &crowd{takes: c.takes, cancelled: map[string]bool{}, answers: func(_ string, dry bool) error {
					if dry {
						return c.dry
					}
					return nil
				}}
				asker := New(Options{Client: server, Live: server})
				asker.follow(ctx, "ns/other", crowded(most))
				if n := len(server.names()); n < c.least || len(asker.kicks.News()) > 0 {
					t.Errorf("%d are cancelled, want at least %d, and %d resyncs are asked for", n, c.least, len(asker.kicks.News()))
				}
				if server.most > 16 || server.dry == 0 {
					t.Errorf("%d patches at once, %d dry runs", server.most, server.dry)
				}
			})
		})
	}
}

// Each of many is asked by the dry run, as far as there is time.
//
// mutations: cancelAll that takes a refusal of a dry run for one that had no time; one that takes
// an answer of the server for none; and one that cancels others at once with the largest, of which
// only etcd says that it has no room.
func TestOfVeryManyOneThatIsRefusedLeavesAll(t *testing.T) {
	away, full := apierrors.NewServiceUnavailable("away"), apierrors.NewRequestEntityTooLargeError("it has no room")
	for name, c := range map[string]struct {
		who  string
		dry  bool // it is found out by a dry run
		err  error
		asks int // resyncs
	}{
		"a policy says so":            {"run-399", true, full, 0},
		"a webhook is away":           {"run-200", true, away, 1},
		"the largest has no room":     {"run-1000000", false, full, 0},
		"the largest is not answered": {"run-1000000", false, away, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &crowd{takes: 10 * time.Millisecond, cancelled: map[string]bool{}, answers: func(name string, dry bool) error {
					if name == c.who && dry == c.dry {
						return c.err
					}
					return nil
				}}
				asker := New(Options{Client: server, Live: server})
				a := crowded(400)
				a.Cancel = append(a.Cancel, store.Cancel{Wake: store.Wake{Ticket: "run-1000000", Run: "ns/run-1000000"}})
				asker.follow(t.Context(), "ns/other", a)
				if asks := len(asker.kicks.News()); len(server.names()) > 0 || asks != c.asks {
					t.Errorf("%d are cancelled, and %d resyncs asked for", len(server.names()), asks)
				}
			})
		})
	}
}

// Few are cancelled only if the API server answered that each of them may be: else one ends for
// nobody, and the next one half a minute later.
//
// mutations: tryEach that takes no answer for a consent where there are few, or an error of the
// connection where there are many; and one that asks for a resync at once where it had no time.
func TestOfFewNobodyIsCancelledWithoutAnAnswer(t *testing.T) {
	broken := errors.New("http2: server sent GOAWAY")
	limited := errors.New("client rate limiter Wait returned an error: rate: Wait(n=1) would exceed context deadline")
	for name, c := range map[string]struct {
		n         int
		takes     time.Duration
		dry       error
		cancelled int
		asks      int // resyncs
	}{
		"a webhook is slow":                   {2, 2500 * time.Millisecond, nil, 2, 0},
		"a webhook is too slow":               {2, 3 * time.Second, nil, 0, 0},
		"a connection ends":                   {2, time.Millisecond, broken, 0, 1},
		"a connection ends, and there many":   {17, time.Millisecond, broken, 0, 1},
		"requests of this process queue":      {16, time.Millisecond, limited, 0, 0},
		"one alone is not asked beforehand":   {1, 3 * time.Second, nil, 1, 0},
		"as many as are cancelled at a time":  {16, 2 * time.Second, nil, 16, 0},
		"one more, of which nothing is known": {17, 2500 * time.Millisecond, nil, 17, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithTimeout(t.Context(), 8*time.Second)
				defer stop()
				server := &crowd{takes: c.takes, cancelled: map[string]bool{}, answers: func(_ string, dry bool) error {
					if dry {
						return c.dry
					}
					return nil
				}}
				asker := New(Options{Client: server, Live: server})
				asker.follow(ctx, "ns/other", crowded(c.n))
				if n, asks := len(server.names()), len(asker.kicks.News()); n != c.cancelled || asks != c.asks {
					t.Errorf("%d are cancelled, want %d, and %d resyncs are asked for, want %d", n, c.cancelled, asks, c.asks)
				}
			})
		})
	}
}

// crowded is an answer that names so many to cancel.
func crowded(n int) store.LocksAnswer {
	a := store.LocksAnswer{Lock: "gpus"}
	for i := range n {
		name := fmt.Sprintf("run-%03d", i)
		a.Cancel = append(a.Cancel, store.Cancel{Wake: store.Wake{Ticket: name, Run: "ns/" + name}, Lock: "gpus"})
	}
	return a
}
