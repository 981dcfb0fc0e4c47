// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// chain is a tenant whose runs ask only when they come, and when they are woken.
type chain struct {
	t     *testing.T
	quota *Store
	limit Limits
	runs  map[string]Run
	awake []string // in the order in which they were woken
	in    []string
	gone  map[string]bool // deleted while they slept: nobody has released them yet
	named int             // how often a run was named as next
	most  int             // names in one answer
}

func newChain(t *testing.T, client *redis.Client, limit, window int) *chain {
	t.Helper()
	must(t, client.FlushAll(t.Context()).Err(), "flush")
	c := &chain{t: t, quota: testQuota(client, Options{}), limit: Limits{Max: limit}, runs: map[string]Run{}, gone: map[string]bool{}}
	c.quota.window = window
	token, err := c.quota.BeginRebuild(t.Context(), acme())
	must(t, err, "begin")
	must(t, c.quota.FinishRebuild(t.Context(), acme(), token, nil), "finish")
	return c
}

// comes makes the next run: it asks as soon as its turn comes in the story.
func (c *chain) comes(priority int32) {
	uid := fmt.Sprintf("run-%05d", len(c.runs))
	c.runs[uid] = run(uid, priority, 100_000-len(c.runs))
	c.awake = append(c.awake, uid)
}

// wakes does what the controller does with an answer.
func (c *chain) wakes(next []Next) {
	c.named, c.most = c.named+len(next), max(c.most, len(next))
	for _, n := range next {
		switch {
		case c.gone[n.UID]:
			delete(c.gone, n.UID)
			c.releases(n.UID)
		case !slices.Contains(c.awake, n.UID):
			c.awake = append(c.awake, n.UID)
		}
	}
}

func (c *chain) releases(uid string) {
	c.t.Helper()
	next, err := c.quota.Release(c.t.Context(), acme(), c.limit, uid)
	must(c.t, err, "release")
	c.wakes(next)
}

// asks has one that is awake ask.
func (c *chain) asks(i int) { c.t.Helper(); c.tries(i, false) }

// tries is asks; where the answer that lets it in is lost, the run asks again later.
func (c *chain) tries(i int, lost bool) {
	c.t.Helper()
	uid := c.awake[i]
	c.awake = slices.Delete(c.awake, i, i+1)
	a, err := c.quota.Admit(c.t.Context(), acme(), c.limit, c.runs[uid])
	must(c.t, err, "admit")
	if a.Admitted && lost {
		c.awake = append(c.awake, uid)
		return
	}
	if a.Admitted && !slices.Contains(c.in, uid) {
		c.in = append(c.in, uid)
	}
	c.wakes(a.Next)
}

func (c *chain) sleeping() (uids []string) {
	c.t.Helper()
	b, err := c.quota.Snapshot(c.t.Context(), acme())
	must(c.t, err, "snapshot")
	for _, r := range b.Queue {
		if !slices.Contains(c.awake, r.UID) && !c.gone[r.UID] {
			uids = append(uids, r.UID)
		}
	}
	return uids
}

// settles lets all who are awake ask, and ends the test if anybody sleeps who could be admitted.
func (c *chain) settles(rt *rapid.T) {
	for len(c.awake) > 0 {
		c.asks(0)
	}
	b, err := c.quota.Snapshot(c.t.Context(), acme())
	must(c.t, err, "snapshot")
	if len(b.Queue) > 0 && (c.limit.Max < 0 || len(b.Slots) < c.limit.Max) {
		rt.Fatalf("%d of %d slots are taken, and %v sleep", len(b.Slots), c.limit.Max, uidsOf(asNext(b.Queue)))
	}
}

func asNext(all []Run) (next []Next) {
	for _, r := range all {
		next = append(next, Next{UID: r.UID})
	}
	return next
}

func (c *chain) step(rt *rapid.T) {
	pick := func(from []string) (uid string, ok bool) {
		if len(from) == 0 {
			return "", false
		}
		return rapid.SampledFrom(from).Draw(rt, "run"), true
	}
	switch what := rapid.SampledFrom([]string{"comes", "comes", "asks", "asks", "asks", "ends", "ends", "burst", "gone", "moves", "lost"}).Draw(rt, "step"); what {
	case "comes":
		c.comes(int32(rapid.IntRange(0, 1).Draw(rt, "priority")))
	case "asks", "lost":
		if len(c.awake) > 0 {
			c.tries(rapid.IntRange(0, len(c.awake)-1).Draw(rt, "who"), what == "lost")
		}
	case "ends":
		if uid, ok := pick(c.in); ok {
			c.in = slices.DeleteFunc(c.in, func(other string) bool { return other == uid })
			c.releases(uid)
		}
	case "burst": // many end before anybody who is woken asks
		in := c.in
		c.in = nil
		for _, uid := range in {
			c.releases(uid)
		}
	case "gone":
		if uid, ok := pick(c.sleeping()); ok {
			c.gone[uid] = true
		}
	case "moves":
		if uid, ok := pick(c.sleeping()); ok {
			r := c.runs[uid]
			r.Priority = int32(rapid.IntRange(-1, 2).Draw(rt, "priority"))
			c.runs[uid] = r
			c.awake = append(c.awake, uid)
		}
	}
}

// A release names a few of those who can be admitted. Each of them names the next when it is
// admitted. So whatever ends, moves, is deleted, or does not hear that it was let in, and
// in whatever order those who were woken ask: once all of them have, nobody sleeps who
// can be admitted.
//
// mutations: admit.lua that names nobody, the one behind the window, or nobody where one moved, and
// free.lua that leaves out the first, or names only as many as it freed slots, make this fail.
// Names that are lost with an answer are found by TestWhoIsInAlreadyNamesTheNextAgain.
func TestNobodySleepsWhoCanBeAdmitted(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(rt *rapid.T) {
			c := newChain(t, client, rapid.IntRange(1, 6).Draw(rt, "limit"), rapid.IntRange(1, 3).Draw(rt, "window"))
			for range rapid.IntRange(10, 60).Draw(rt, "steps") {
				c.step(rt)
			}
			c.settles(rt)
		})
	})
}

// Three hundred wait, and the limit is taken away. A call names 32 at most, and all names together
// are about as many as runs; yet all are let in, in their order.
//
// mutations: free.lua that names all makes this fail, as does admit.lua that names a whole window.
func TestWhoIsNextIsNamedFewAtATime(t *testing.T) {
	const runs = 300
	onEach(t, func(t *testing.T, client *redis.Client) {
		c := newChain(t, client, 0, window)
		var want []string
		for i := range runs {
			c.comes(0)
			want = append(want, fmt.Sprintf("run-%05d", i))
			c.asks(0)
		}
		c.limit.Max = -1
		c.releases("somebody")
		for len(c.awake) > 0 {
			c.asks(0)
		}
		if !slices.Equal(c.in, want) {
			t.Errorf("%d are let in, or not in their order: %v", len(c.in), c.in)
		}
		if c.most > window || c.named > runs+window {
			t.Errorf("%d are named, in one answer up to %d", c.named, c.most)
		}
	})
}

// An answer that let a run in may be lost, and with it the name of the next. The run asks again,
// also when another was let in since.
//
// mutations: admit.lua that names nobody to who is in already makes this fail, as does one that
// names the last of the window only.
func TestWhoIsInAlreadyNamesTheNextAgain(t *testing.T) {
	onEach(t, func(t *testing.T, client *redis.Client) {
		c := newChain(t, client, 0, 2)
		for range 4 {
			c.comes(0)
			c.asks(0)
		}
		for i, step := range []struct {
			asks  string
			names []string
		}{
			{"run-00000", []string{"run-00002"}}, // lost
			{"run-00001", []string{"run-00003"}},
			{"run-00000", []string{"run-00002", "run-00003"}},
		} {
			a, err := c.quota.Admit(t.Context(), acme(), Limits{Max: 4}, c.runs[step.asks])
			if err != nil || !a.Admitted || !slices.Equal(uidsOf(a.Next), step.names) {
				t.Errorf("question %d: %+v, %v", i+1, a, err)
			}
		}
		a, err := c.quota.Admit(t.Context(), acme(), Limits{Max: 2}, c.runs["run-00001"])
		if err != nil || !a.Admitted || len(a.Next) > 0 {
			t.Errorf("when nobody else can be admitted: %+v, %v", a, err)
		}
	})
}

// What a script is given is bounded, and so is the time for which all of Redis waits for it. A
// rebuild of many runs stays closed until the last of them is entered.
//
// mutations: inPortions that takes all at once, or leaves out the last, makes this fail; so does a
// restoreAll whose first portion opens the slots, or that forgets 'more', pools likewise, and keys.
func TestManyRunsAreEnteredAndReleasedInPortions(t *testing.T) {
	const many = 2*mostUIDs + 7
	uids := make([]string, many)
	members, owners := make([]Member, many), map[string]Claim{}
	for i := range many {
		uids[i] = "u" + strconv.Itoa(i)
		members[i] = Member{UID: uids[i], Tenant: "acme", Name: "team/" + uids[i]}
		owners[uids[i]] = Claim{UID: uids[i], Name: "team/" + uids[i], SpecHash: "h"}
	}
	pool := PoolOf("batch")
	for name, c := range map[string]portioned{
		"slots": {
			begin:  func(g *Store) (string, error) { return g.BeginRebuild(t.Context(), acme()) },
			finish: func(g *Store, token string) error { return g.FinishRebuild(t.Context(), acme(), token, uids) },
			count:  func(g *Store) (int, error) { b, err := g.Snapshot(t.Context(), acme()); return len(b.Slots), err },
			drop:   func(g *Store) error { _, err := g.Drop(t.Context(), acme(), Limits{}, uids); return err },
		},
		"pool": {
			begin:  func(g *Store) (string, error) { return g.BeginRebuild(t.Context(), pool) },
			finish: func(g *Store, token string) error { return g.Pools().FinishRebuild(t.Context(), pool, token, members) },
			count:  func(g *Store) (int, error) { b, err := g.Pools().Snapshot(t.Context(), pool); return len(b.Slots), err },
			drop:   func(g *Store) error { _, err := g.Pools().Drop(t.Context(), pool, Limits{}, uids); return err },
		},
		"keys": {
			begin:  func(g *Store) (string, error) { return g.BeginRebuildKeys(t.Context(), "acme") },
			finish: func(g *Store, token string) error { return g.FinishRebuildKeys(t.Context(), "acme", token, owners) },
			count:  func(g *Store) (int, error) { all, err := g.Claims(t.Context(), "acme"); return len(all), err },
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, client *redis.Client) { c.play(t, client, many) })
		})
	}
}

// portioned is what is entered, and dropped, in portions.
type portioned struct {
	begin  func(*Store) (string, error)
	finish func(*Store, string) error
	count  func(*Store) (int, error)
	drop   func(*Store) error // nil: keys are dropped one by one
}

func (c portioned) play(t *testing.T, client *redis.Client, many int) {
	t.Helper()
	s := &scene{t: t, client: client, quota: testQuota(client, Options{})}
	s.flush()
	other := testQuota(client, Options{})
	token, err := c.begin(s.quota)
	must(t, err, "begin")
	h, asked := s.hooked(), 0
	h.set(func(command string) {
		if !isScript(command) {
			return
		}
		if _, err := c.count(other); !is[*RebuildingError](err) {
			t.Errorf("before call %d it is open: %v", asked, err)
		}
		asked++
	}, nil)
	must(t, c.finish(s.quota, token), "finish")
	if n, err := c.count(other); n != many || err != nil {
		t.Errorf("%d are entered, %v; want %d", n, err, many)
	}
	if asked != 3 {
		t.Errorf("entered by %d calls, want 3", asked)
	}
	if c.drop == nil {
		return
	}
	asked = 0
	h.set(func(command string) {
		if isScript(command) {
			asked++
		}
	}, nil)
	must(t, c.drop(s.quota), "drop")
	if n, err := c.count(other); n != 0 || err != nil || asked != 3 {
		t.Errorf("%d are left after %d calls, %v; want none after 3", n, asked, err)
	}
}
