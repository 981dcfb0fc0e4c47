// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/syncopate-dev/syncopate/internal/shares"
	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// poolModel is what a pool is meant to be, in plain words of Go. It looks at all tenants each time.
type poolModel struct {
	open     bool
	limits   *shares.Limits // the newest that it was told
	slots    map[string]string
	queue    map[string]waiting
	given    int            // how many slots
	since    map[string]int // of tenants that wait: twice given when it got a slot, or began to wait
	reserved map[string]reservation
	now      time.Duration
}

type waiting struct {
	tenant string
	Run
}

type reservation struct {
	tenant string
	end    time.Duration
}

func newPoolModel() *poolModel {
	return &poolModel{slots: map[string]string{}, queue: map[string]waiting{}, since: map[string]int{}, reserved: map[string]reservation{}}
}

func (m *poolModel) expire() {
	maps.DeleteFunc(m.reserved, func(_ string, r reservation) bool { return r.end <= m.now })
}

func (m *poolModel) used(tenant string) (slots, reserved int) {
	for _, t := range m.slots {
		if t == tenant {
			slots++
		}
	}
	for _, r := range m.reserved {
		if r.tenant == tenant {
			reserved++
		}
	}
	return slots, reserved
}

func (m *poolModel) line(tenant string) (all []Run) {
	for _, w := range m.queue {
		if w.tenant == tenant {
			all = append(all, w.Run)
		}
	}
	slices.SortFunc(all, inOrder)
	return all
}

func poolTenants() []string { return []string{"acme", "beta", "gamma"} }

func (m *poolModel) next() (waiting, bool) {
	var all []shares.Tenant
	var heads []Run
	for _, name := range poolTenants() {
		slots, reserved := m.used(name)
		t, head := shares.Tenant{Name: name, Used: slots + reserved}, Run{}
		if line := m.line(name); len(line) > 0 {
			head = line[0]
			t.First, t.Since = member(head), m.since[name]
		}
		all, heads = append(all, t), append(heads, head)
	}
	i := m.limits.Next(all)
	if i < 0 {
		return waiting{}, false
	}
	return waiting{all[i].Name, heads[i]}, true
}

// take gives a slot.
func (m *poolModel) take(uid, tenant string) {
	m.slots[uid] = tenant
	m.given++
	m.since[tenant] = 2*m.given + 1
}

// wait has a run stand in the queue. A tenant that has nothing begins to wait right before the one
// that got the last slot.
func (m *poolModel) wait(tenant string, r Run) {
	if len(m.line(tenant)) == 0 {
		slots, reserved := m.used(tenant)
		m.since[tenant] = 2*m.given + min(1, slots+reserved)
	}
	m.queue[r.UID] = waiting{tenant, r}
}

func (m *poolModel) fill() (given []Next) {
	for {
		w, ok := m.next()
		if !ok {
			return given
		}
		delete(m.queue, w.UID)
		m.take(w.UID, w.tenant)
		given = append(given, Next{UID: w.UID, Name: w.Name})
	}
}

func (m *poolModel) tell(l shares.Limits) {
	if m.limits == nil || m.limits.Version < l.Version {
		m.limits = &l
	}
}

func (m *poolModel) answer(tenant string) Answer {
	a := Answer{All: len(m.slots) + len(m.reserved), Total: m.limits.Total, Waiting: len(m.line(tenant))}
	a.Used, a.Reserved = m.used(tenant)
	return a
}

func (m *poolModel) admit(tenant string, r Run) Answer {
	m.expire()
	var given []Next
	if _, in := m.slots[r.UID]; !in {
		_, reserved := m.reserved[r.UID]
		delete(m.reserved, r.UID)
		s, v := m.used(tenant)
		if reserved && len(m.slots)+len(m.reserved) < m.limits.Total && s+v < m.limits.Of(tenant).Max {
			delete(m.queue, r.UID)
			m.take(r.UID, tenant)
		} else {
			m.wait(tenant, r)
			given = m.fill()
		}
	} else {
		delete(m.queue, r.UID)
		delete(m.reserved, r.UID)
	}
	a := m.answer(tenant)
	a.AllReserved = len(m.reserved)
	for _, g := range given {
		if g.UID != r.UID {
			a.Given = append(a.Given, g)
		}
	}
	if _, a.Admitted = m.slots[r.UID]; !a.Admitted {
		line := m.line(tenant)
		i := slices.IndexFunc(line, func(w Run) bool { return w.UID == r.UID })
		a.Position = i + 1
		if i > 0 {
			a.Ahead = line[i-1].Name
		}
	}
	return a
}

func (m *poolModel) reserve(tenant, uid string, ttl time.Duration) Answer {
	m.expire()
	_, in := m.slots[uid]
	ok := in
	if !in {
		s, v := m.used(tenant)
		n, all, line := s+v, len(m.slots)+len(m.reserved), len(m.line(tenant))
		if _, mine := m.reserved[uid]; mine {
			n, all = n-1, all-1
		}
		if _, mine := m.queue[uid]; mine {
			line--
		}
		kept := 0
		for _, other := range poolTenants() {
			s, v := m.used(other)
			kept += max(0, m.limits.Of(other).Guaranteed-s-v)
		}
		share := m.limits.Of(tenant)
		_, someone := m.next()
		ok = n+line < share.Max && all < m.limits.Total && !someone && (n < share.Guaranteed || m.limits.Total-all > kept)
		switch {
		case ok && ttl > 0:
			m.reserved[uid] = reservation{tenant, m.now + ttl}
		case ttl > 0:
			delete(m.reserved, uid)
		}
	}
	a := m.answer(tenant)
	a.Admitted = ok
	return a
}

func (m *poolModel) free(known bool, uids []string) (given []Next) {
	m.expire()
	for _, uid := range uids {
		delete(m.slots, uid)
		delete(m.queue, uid)
		delete(m.reserved, uid)
	}
	if known && m.open {
		given = m.fill()
	}
	return given
}

func (m *poolModel) restore(all []Member) {
	m.expire()
	for _, one := range all {
		delete(m.queue, one.UID)
		delete(m.reserved, one.UID)
		if _, in := m.slots[one.UID]; !in {
			m.take(one.UID, one.Tenant)
		}
	}
}

// TestPoolStories plays random stories of a pool on Redis and on the model of it, which decides by
// shares.Limits.Next; all answers must be the same, whatever the strategy of each call.
//
// Invariant: a call that gives slots leaves no more than the total, and no tenant with more than
// its own limit. Nobody is given a slot beyond its guarantee while another waits for its own.
func TestPoolStories(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		rapid.Check(t, func(rt *rapid.T) {
			must(t, client.FlushAll(t.Context()).Err(), "flush")
			ids := 0
			p := &poolPlayer{
				t: t, rt: rt, client: client, model: newPoolModel(), key: PoolOf("batch"),
				quota: testQuota(client, Options{NewID: func() string { ids++; return "id-" + strconv.Itoa(ids) }}).Pools(),
			}
			p.edit()
			p.rebuild()
			for range rapid.IntRange(20, 80).Draw(rt, "steps") {
				p.step()
			}
		})
	})
}

type poolPlayer struct {
	t      *testing.T
	rt     *rapid.T
	client redis.UniversalClient
	quota  Pools
	model  *poolModel
	key    Key
	edits  []shares.Limits
}

func (p *poolPlayer) step() {
	does := map[string]func(){
		"admit": p.admit, "reserve": p.reserve, "free": p.free, "restore": p.restore, "rebuild": p.rebuild, "edit": p.edit,
		"advance": p.advance, "flush": p.flush, "evict": p.evict, "snapshot": p.snapshot,
	}
	often := []string{
		"admit", "admit", "admit", "admit", "admit", "admit", "admit", "admit", "reserve", "reserve", "free", "free", "free", "restore", "rebuild", "edit",
		"advance", "flush", "evict", "snapshot",
	}
	does[rapid.SampledFrom(often).Draw(p.rt, "does")]()
	if !p.model.open && rapid.Bool().Draw(p.rt, "open again") {
		p.rebuild()
	}
}

// who is a run with its tenant, which stays the same.
func (p *poolPlayer) who() (string, Run) {
	n := rapid.IntRange(0, 11).Draw(p.rt, "run")
	r := run(string(rune('a'+n)), int32(rapid.IntRange(-1, 1).Draw(p.rt, "priority")), n%4)
	return poolTenants()[n%3], r
}

func (p *poolPlayer) edit() {
	l := shares.Limits{
		Version: int64(len(p.edits)), Total: rapid.IntRange(0, 6).Draw(p.rt, "total"), Max: rapid.IntRange(-1, 4).Draw(p.rt, "max"),
		Tenants: map[string]shares.Share{},
	}
	for _, tenant := range poolTenants() {
		if rapid.Bool().Draw(p.rt, "has limits of its own") {
			l.Tenants[tenant] = shares.Share{
				Max: rapid.IntRange(0, 5).Draw(p.rt, "max of it"), Guaranteed: rapid.IntRange(0, 3).Draw(p.rt, "guaranteed"),
				Weight: rapid.IntRange(1, 4).Draw(p.rt, "weight"),
			}
		}
	}
	p.edits = append(p.edits, l)
}

// asks are limits as a process knows them: mostly the newest.
func (p *poolPlayer) asks() Limits {
	l := p.edits[max(0, len(p.edits)-1-rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(p.rt, "behind by"))]
	asked := Limits{Shares: &l}
	if rapid.Bool().Draw(p.rt, "lock") {
		asked.Lock = bothStrategies()["Lock"]
	}
	return asked
}

func (p *poolPlayer) same(what string, want, got any, err error) {
	p.t.Helper()
	if !p.model.open {
		if !is[*RebuildingError](err) {
			p.rt.Fatalf("%s while it is closed: %v, %v", what, got, err)
		}
		return
	}
	if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
		p.rt.Fatalf("%s, %v (-model +pool):\n%s", what, err, diff)
	}
}

// holds checks the invariant after slots were given.
func (p *poolPlayer) holds(given int) {
	if given == 0 {
		return
	}
	all := 0
	for _, tenant := range poolTenants() {
		s, v := p.model.used(tenant)
		all += s + v
	}
	if all > p.model.limits.Total {
		p.rt.Fatalf("%d are in; the total is %d", all, p.model.limits.Total)
	}
	for _, tenant := range poolTenants() {
		s, v := p.model.used(tenant)
		if share := p.model.limits.Of(tenant); len(p.model.line(tenant)) > 0 && s+v < share.Guaranteed && all < p.model.limits.Total {
			p.rt.Fatalf("%s has %d of %d that it is guaranteed, waits, and there is room", tenant, s+v, share.Guaranteed)
		}
	}
}

func (p *poolPlayer) admit() {
	l := p.asks()
	tenant, r := p.who()
	got, err := p.quota.Admit(p.t.Context(), p.key, l, tenant, r)
	var want Answer
	if p.model.open {
		p.model.tell(*l.Shares)
		want = p.model.admit(tenant, r)
	}
	p.same(fmt.Sprintf("admit %s of %s", r.UID, tenant), want, got, err)
	p.holds(len(got.Given))
}

func (p *poolPlayer) reserve() {
	l := p.asks()
	tenant, r := p.who()
	ttl := rapid.SampledFrom([]time.Duration{0, 30 * time.Minute, 90 * time.Minute}).Draw(p.rt, "ttl")
	got, err := p.quota.Reserve(p.t.Context(), p.key, l, tenant, r, ttl)
	var want Answer
	if p.model.open {
		p.model.tell(*l.Shares)
		want = p.model.reserve(tenant, r.UID, ttl)
	}
	p.same(fmt.Sprintf("reserve %s of %s", r.UID, tenant), want, got, err)
}

func (p *poolPlayer) members() (all []Member) {
	for range rapid.IntRange(0, 3).Draw(p.rt, "members") {
		tenant, r := p.who()
		all = append(all, Member{UID: r.UID, Tenant: tenant, Name: r.Name})
	}
	return all
}

func (p *poolPlayer) free() {
	l := p.asks()
	known := rapid.SampledFrom([]bool{true, true, true, false}).Draw(p.rt, "policy exists")
	if !known {
		l.Shares = nil
	} else if p.model.open {
		p.model.tell(*l.Shares)
	}
	var uids []string
	for _, m := range p.members() {
		uids = append(uids, m.UID)
	}
	got, err := p.quota.Drop(p.t.Context(), p.key, l, uids)
	p.same(fmt.Sprintf("free %v", uids), p.model.free(known, uids), got, err)
	p.holds(len(got))
}

func (p *poolPlayer) restore() {
	all := p.members()
	err := p.quota.Restore(p.t.Context(), p.key, all)
	if p.model.open {
		p.model.restore(all)
	}
	p.same(fmt.Sprintf("restore %v", all), nil, nil, err)
}

func (p *poolPlayer) rebuild() {
	token, err := p.quota.BeginRebuild(p.t.Context(), p.key)
	must(p.t, err, "begin")
	all := p.members()
	was := p.model.open
	err = p.quota.FinishRebuild(p.t.Context(), p.key, token, all)
	if err != nil {
		p.rt.Fatalf("finish: %v", err)
	}
	p.model.open = true
	p.model.restore(all)
	if other := p.quota.FinishRebuild(p.t.Context(), p.key, "unknown", nil); other != nil {
		p.rt.Fatalf("somebody else finished, was %v: %v", was, other)
	}
}

func (p *poolPlayer) advance() {
	const step = time.Hour
	p.model.now += step
	keys := p.quota.poolKeys(p.key)
	uids, err := p.client.ZRange(p.t.Context(), keys[3], 0, -1).Result()
	for _, uid := range uids {
		err = errors.Join(err, p.client.ZIncrBy(p.t.Context(), keys[3], -float64(step.Milliseconds()), uid).Err())
	}
	must(p.t, err, "let %s pass", step)
}

// flush loses all data, or only the slots.
func (p *poolPlayer) flush() {
	p.model.open = false
	clear(p.model.slots)
	clear(p.model.reserved)
	if rapid.Bool().Draw(p.rt, "all") {
		must(p.t, p.client.FlushAll(p.t.Context()).Err(), "flush")
		now := p.model.now
		*p.model = *newPoolModel()
		p.model.now = now
		return
	}
	must(p.t, p.client.Del(p.t.Context(), p.quota.poolKeys(p.key)[0]).Err(), "evict slots")
}

// evict loses one key that is not the slots.
func (p *poolPlayer) evict() {
	keys := p.quota.poolKeys(p.key)
	switch i := rapid.SampledFrom([]int{1, 2, 3, 5, 6}).Draw(p.rt, "key"); i {
	case 3:
		clear(p.model.reserved)
		must(p.t, p.client.Del(p.t.Context(), keys[i]).Err(), "evict")
	case 5:
		p.model.limits = nil
		must(p.t, p.client.Del(p.t.Context(), keys[i]).Err(), "evict")
	default:
		clear(p.model.queue)
		must(p.t, p.client.Del(p.t.Context(), keys[i]).Err(), "evict")
	}
}

func (p *poolPlayer) snapshot() {
	b, err := p.quota.Snapshot(p.t.Context(), p.key)
	got, want := map[string]string{}, map[string]string{}
	for _, s := range b.Slots {
		got[s.UID] = "slot of " + s.Tenant
	}
	for _, r := range b.Queue {
		got[r.UID] = r.Tenant + " waits as " + r.Name
	}
	for _, r := range b.Reserved {
		got[r.UID] = "reserved"
	}
	if p.model.open {
		p.model.expire()
		for uid := range p.model.reserved {
			want[uid] = "reserved"
		}
		for uid, w := range p.model.queue {
			want[uid] = w.tenant + " waits as " + w.Name
		}
		for uid, tenant := range p.model.slots {
			want[uid] = "slot of " + tenant
		}
	}
	p.same("snapshot", want, got, err)
}

// A tenant that waits for what it is guaranteed gets the next slots, and then shares
// are as weights.
//
// mutation: a turn without the weight, or without `first`, makes this fail.
func TestPoolSharesByWeight(t *testing.T) {
	norace.Only(t)
	onEach(t, func(t *testing.T, client *redis.Client) {
		const admissions, total = 1000, 40
		must(t, client.FlushAll(t.Context()).Err(), "flush")
		weights := map[string]int{"acme": 5, "beta": 3, "gamma": 2}
		l := shares.Limits{Total: total, Max: -1, Tenants: map[string]shares.Share{}}
		for tenant, w := range weights {
			l.Tenants[tenant] = shares.Share{Max: total, Weight: w}
		}
		l.Tenants["late"] = shares.Share{Max: total, Guaranteed: 10, Weight: 1}
		s := newPoolScene(t, client, l)
		var in []string
		given := map[string]int{}
		add := func(all []Next) {
			for _, g := range all {
				given[g.UID[:4]]++
				in = append(in, g.UID)
			}
		}
		for i := range admissions {
			for _, tenant := range []string{"acme", "beta", "gamma"} {
				r := run(fmt.Sprintf("%.4s-%d", tenant, i), 0, 0)
				a, err := s.quota.Admit(t.Context(), s.key, s.limits, tenant, r)
				must(t, err, "admit")
				if a.Admitted {
					add([]Next{{UID: r.UID}})
				}
				add(a.Given)
			}
		}
		for range admissions { // the oldest ends
			all, err := s.quota.Release(t.Context(), s.key, s.limits, in[0])
			must(t, err, "release")
			in = in[1:]
			add(all)
		}
		sum := 0
		for tenant := range weights {
			sum += given[tenant[:4]]
		}
		for tenant, w := range weights {
			if got, want := float64(given[tenant[:4]])/float64(sum), float64(w)/10; got < want*0.95 || got > want*1.05 {
				t.Errorf("%s got %.3f of all; want %.1f (%v)", tenant, got, want, given)
			}
		}
		late := 0
		for i := range 20 {
			a, err := s.quota.Admit(t.Context(), s.key, s.limits, "late", run("late-"+strconv.Itoa(i), -1, 0))
			must(t, err, "admit")
			if a.Admitted || len(a.Given) > 0 {
				t.Fatalf("there is no room, and %+v", a)
			}
		}
		for range 10 {
			all, err := s.quota.Release(t.Context(), s.key, s.limits, in[0])
			must(t, err, "release")
			in = in[1:]
			late += len(slices.DeleteFunc(all, func(g Next) bool { return g.UID[:4] != "late" }))
		}
		if late != 10 {
			t.Errorf("10 slots came back; %d of them went to who is guaranteed 10", late)
		}
	})
}

type poolScene struct {
	t      testing.TB
	quota  Pools
	key    Key
	limits Limits
}

func newPoolScene(t testing.TB, client redis.UniversalClient, l shares.Limits) *poolScene {
	t.Helper()
	s := &poolScene{t: t, quota: testQuota(client, Options{}).Pools(), key: PoolOf("batch"), limits: Limits{Max: l.Max, Shares: &l}}
	token, err := s.quota.BeginRebuild(t.Context(), s.key)
	must(t, errors.Join(err, s.quota.FinishRebuild(t.Context(), s.key, token, nil)), "open the pool")
	return s
}
