// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// TestStories plays random stories of one key on a quota and on the model of it; all answers must
// be the same, whatever the strategy of each call. So the model's rules, which people can read, are
// those of the scripts.
//
// Invariant: a call that lets somebody in leaves no more slots than its limit says.
//
// mutation: rank <= free, no look at the slots, a release that frees nothing, an old place that is
// kept, a queue of which half was evicted, room() without reservations, and reservations without an
// end make this fail; so does a window that is not kept to.
func TestStories(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(rt *rapid.T) {
			must(t, client.FlushAll(t.Context()).Err(), "flush")
			ids := 0
			p := &player{
				t: t, rt: rt, client: client, model: newModel(rapid.IntRange(1, 3).Draw(rt, "window")),
				quota: testQuota(client, Options{NewID: func() string { ids++; return "id-" + strconv.Itoa(ids) }}),
			}
			p.quota.window = p.model.window
			p.rebuild()
			for range rapid.IntRange(20, 80).Draw(rt, "steps") {
				p.step()
			}
		})
	})
}

// player plays a story.
type player struct {
	t      *testing.T
	rt     *rapid.T
	client redis.UniversalClient
	quota  *Store
	model  *model
	tokens []string // of rebuilds that were begun
}

func (p *player) step() {
	does := map[string]func(){
		"admit": p.admit, "reserve": p.reserve, "free": p.free, "restore": p.restore, "rebuild": p.rebuild,
		"begin": p.begin, "finish": p.finish, "advance": p.advance, "flush": p.flush, "evict line": p.evictQueue, "book": p.snapshot,
	}
	often := []string{
		"admit", "admit", "admit", "admit", "admit", "admit", "reserve", "reserve", "free", "free", "free", "restore", "rebuild", "rebuild",
		"begin", "finish", "advance", "advance", "advance", "flush", "evict line", "book", "book",
	}
	does[rapid.SampledFrom(often).Draw(p.rt, "does")]()
}

func (p *player) uid() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(p.rt, "uid")
}

func (p *player) uids() []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 0, 3).Draw(p.rt, "uids")
}

func (p *player) limits() Limits {
	l := Limits{Max: rapid.IntRange(-1, 3).Draw(p.rt, "limit")}
	if rapid.Bool().Draw(p.rt, "lock") {
		l.Lock = bothStrategies()["Lock"]
	}
	return l
}

func (p *player) run() Run {
	return run(p.uid(), int32(rapid.IntRange(-1, 1).Draw(p.rt, "priority")), rapid.IntRange(0, 1).Draw(p.rt, "age"))
}

// same fails the story unless the quota did what the model did; closed: unless it refused because
// it is closed.
func (p *player) same(what string, want, got any, err error) {
	p.t.Helper()
	if !p.model.open {
		if !is[*RebuildingError](err) {
			p.rt.Fatalf("%s while it is closed: %v, %v", what, got, err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		p.rt.Fatalf("%s, %v (-model +gate):\n%s", what, err, diff)
	}
}

func (p *player) admit() {
	l, r := p.limits(), p.run()
	was := p.model.slots[r.UID]
	got, err := p.quota.Admit(p.t.Context(), acme(), l, r)
	var want Answer
	if p.model.open {
		want = p.model.admit(l.Max, r)
	}
	p.same(fmt.Sprintf("admit %s at %d", r.UID, l.Max), want, got, err)
	if got.Admitted && !was && l.Max >= 0 && got.Used > l.Max {
		p.rt.Fatalf("%d are in; the limit is %d", got.Used, l.Max)
	}
}

// Hours pass, and reservations stand for half hours, so that the time that the test takes
// does not matter.
func (p *player) reserve() {
	l, r := p.limits(), p.run()
	ttl := rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, 90 * time.Minute}).Draw(p.rt, "ttl")
	got, err := p.quota.Reserve(p.t.Context(), acme(), l, r, ttl)
	var want Answer
	if p.model.open {
		want = p.model.reserve(l.Max, r.UID, ttl)
	}
	p.same(fmt.Sprintf("reserve %s at %d for %s", r.UID, l.Max, ttl), want, got, err)
}

func (p *player) free() {
	l, uids := p.limits(), p.uids()
	got, err := p.quota.Drop(p.t.Context(), acme(), l, uids)
	want := p.model.free(l.Max, uids)
	p.same(fmt.Sprintf("free %v at %d", uids, l.Max), nextUp(want...), got, err)
}

func (p *player) restore() {
	uids := p.uids()
	err := p.quota.Restore(p.t.Context(), acme(), uids)
	if p.model.open {
		p.model.restore(uids)
	}
	p.same(fmt.Sprintf("restore %v", uids), nil, nil, err)
}

func (p *player) rebuild() {
	p.begin()
	p.finishWith(p.tokens[len(p.tokens)-1])
}

func (p *player) begin() {
	got, err := p.quota.BeginRebuild(p.t.Context(), acme())
	if want := p.model.begin(got); got != want || err != nil {
		p.rt.Fatalf("begin: %s, %v; want %s", got, err, want)
	}
	p.tokens = append(p.tokens, got)
}

func (p *player) finish() {
	p.finishWith(rapid.SampledFrom(p.tokens).Draw(p.rt, "token"))
}

func (p *player) finishWith(token string) {
	uids := p.uids()
	err := p.quota.FinishRebuild(p.t.Context(), acme(), token, uids)
	if ok := p.model.finish(token, uids); ok != (err == nil) || !ok && !errors.Is(err, ErrRebuildLost) {
		p.rt.Fatalf("finish %s: %v; want success %v", token, err, ok)
	}
}

func (p *player) advance() {
	const step = time.Hour
	p.model.now += step
	advance(p.t, p.client, p.quota, step)
}

// flush loses all data, or all but what is not in the slots.
func (p *player) flush() {
	if rapid.Bool().Draw(p.rt, "all") {
		must(p.t, p.client.FlushAll(p.t.Context()).Err(), "flush")
		p.model.flush()
		return
	}
	must(p.t, p.client.Del(p.t.Context(), p.quota.keys(acme())[0]).Err(), "evict slots")
	p.model.open, p.model.token = false, ""
	clear(p.model.slots)
}

func (p *player) evictQueue() {
	must(p.t, p.client.Del(p.t.Context(), p.quota.keys(acme())[rapid.IntRange(1, 2).Draw(p.rt, "half")]).Err(), "evict")
	p.model.queue = nil
}

func (p *player) snapshot() {
	b, err := p.quota.Snapshot(p.t.Context(), acme())
	got := map[string][]string{}
	for _, s := range b.Slots {
		got["slots"] = append(got["slots"], s.UID)
	}
	for _, r := range b.Queue {
		got["line"] = append(got["line"], r.UID)
	}
	for _, r := range b.Reserved {
		got["reserved"] = append(got["reserved"], r.UID)
	}
	slices.Sort(got["reserved"])
	want := map[string][]string{}
	if p.model.open {
		p.model.expire()
		for uid := range p.model.slots {
			want["slots"] = append(want["slots"], uid)
		}
		for _, r := range p.model.queue {
			want["line"] = append(want["line"], r.UID)
		}
		for uid := range p.model.reserved {
			want["reserved"] = append(want["reserved"], uid)
		}
		slices.Sort(want["slots"])
		slices.Sort(want["reserved"])
	}
	if len(got["reserved"]) == 0 {
		delete(got, "reserved")
	}
	if len(want["slots"]) == 0 {
		delete(want, "slots")
	}
	if len(want["reserved"]) == 0 {
		delete(want, "reserved")
	}
	p.same("book", want, got, err)
}

// mutation: a separator above what names may have, such as '/', makes this fail.
func TestMembersSortAsRunsInTheQueue(t *testing.T) {
	runs := rapid.Custom(func(rt *rapid.T) Run {
		return Run{
			UID:      rapid.StringMatching(`[0-9a-f-]{1,4}`).Draw(rt, "uid"),
			Name:     rapid.StringMatching(`[a-z0-9-]{1,3}/[a-z0-9.-]{1,3}`).Draw(rt, "name"),
			Priority: rapid.OneOf(rapid.Int32(), rapid.Int32Range(-1, 1)).Draw(rt, "priority"),
			Created:  time.Unix(rapid.OneOf(rapid.Int64Range(0, maxSeconds), rapid.Int64Range(0, 3)).Draw(rt, "created"), 0).UTC(),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		x, y := runs.Draw(rt, "x"), runs.Draw(rt, "y")
		mx, my := member(x), member(y)
		want := inOrder(x, y)
		if got := strings.Compare(mx, my); got != want {
			rt.Fatalf("%q and %q compare as %d; the runs as %d", mx, my, got, want)
		}
		if back, err := parseMember(mx); err != nil || back != x {
			rt.Fatalf("%q is %+v, %v; want %+v", mx, back, err, x)
		}
	})
}

func FuzzParseMember(f *testing.F) {
	f.Add(member(run("a", -7, 3)))
	f.Add("x y z u")
	f.Add("1 2 3")
	f.Fuzz(func(t *testing.T, m string) {
		r, err := parseMember(m)
		if err != nil {
			return
		}
		if again, err := parseMember(member(r)); r.Created.Unix() >= 0 && r.Created.Unix() <= maxSeconds && (err != nil || again != r) {
			t.Errorf("%q is %+v, and again %+v, %v", m, r, again, err)
		}
	})
}
