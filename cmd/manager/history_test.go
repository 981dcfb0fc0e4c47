// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/internal/timeline"
)

// away is what a line answers that cannot be asked.
const away = "away"

// line is an API server of which only the revision counts.
type line struct {
	client.Reader

	stale     []string // what it answers before revision; away: an error
	revision  string
	err       error
	meanwhile func() // happens between the answer and its arrival; nil: nothing does
	asked     int
	kind      string // that was asked for
}

// List implements client.Reader.
func (l *line) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	l.asked++
	l.kind = list.GetObjectKind().GroupVersionKind().String()
	if len(l.stale) > 0 {
		now := l.stale[0]
		l.stale = l.stale[1:]
		if now == away {
			return errDown
		}
		list.SetResourceVersion(now)
		return nil
	}
	list.SetResourceVersion(l.revision)
	if l.meanwhile != nil {
		l.meanwhile()
	}
	return l.err
}

// eager is a clock on which timers are over when they are made.
type eager struct{ *clocktesting.FakeClock }

func newEager() eager { return eager{clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))} }

// NewTimer implements clock.Clock.
func (c eager) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	return timer
}

// past is a Redis that outlives API servers.
type past struct {
	t      *testing.T
	server *miniredis.Miniredis
	client *redis.Client
}

func newPast(t *testing.T) *past {
	p := &past{t: t, server: miniredis.RunT(t)}
	p.client = redis.NewClient(&redis.Options{Addr: p.server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = p.client.Close() })
	return p
}

// replica is a process of an installation.
func (p *past) replica(l client.Reader, installation string) *history {
	return &history{
		api: l, redis: store.New(p.client, store.Options{Installation: installation}), clock: newEager(), log: logr.Discard(),
	}
}

// mark is how far history went, as Redis says; 0: it does not.
func (p *past) mark() uint64 {
	p.t.Helper()
	text, err := p.client.Get(p.t.Context(), "{adm-installation}:revision").Result()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	_, text, _ = strings.Cut(text, " ")
	n, bad := strconv.ParseUint(text, 10, 64)
	if err = errors.Join(err, bad); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// passes fails the test unless a look finds nothing, and Redis has that mark then.
func (p *past) passes(h *history, mark uint64) {
	p.t.Helper()
	if err := h.look(p.t.Context()); err != nil || p.mark() != mark {
		p.t.Fatalf("a look says %v, and Redis %d; want %d", err, p.mark(), mark)
	}
}

// refuses fails the test unless a look finds that history went back.
func (p *past) refuses(h *history, now, seen uint64) {
	p.t.Helper()
	found, ok := errors.AsType[*timeline.BackError](h.look(p.t.Context()))
	if !ok || *found != (timeline.BackError{Now: now, Seen: seen}) {
		p.t.Fatalf("a look says %v; want that %d is below %d", found, now, seen)
	}
}

// unsure fails the test unless a look was below, and cannot tell for that cause.
func (p *past) unsure(ctx context.Context, h *history, cause error) {
	p.t.Helper()
	if err := h.look(ctx); !errors.Is(err, timeline.ErrUnsure) || !errors.Is(err, cause) {
		p.t.Errorf("a look says %v; want that it is unsure for %v", err, cause)
	}
}

// mutation: look without its comparison, or without RaiseRevision, makes this fail, and so does one
// that compares texts, or that raises the mark before it compares.
func TestAnAPIServerThatIsBehindItsInstallationIsNoticed(t *testing.T) {
	p := newPast(t)
	l := &line{revision: "998"}
	p.passes(p.replica(l, "a"), 998)
	l.revision = "1002"
	p.passes(p.replica(l, "a"), 1002)
	p.passes(p.replica(l, "a"), 1002) // nothing was written since

	l.revision = "999" // another process, of a restored cluster or of a copy
	p.refuses(p.replica(l, "a"), 999, 1002)
	if p.mark() != 1002 {
		t.Errorf("the mark is %d after it was refused", p.mark())
	}
	p.server.FlushAll()
	p.passes(p.replica(l, "a"), 999)
}

// mutation: look that reads the mark after the list makes this fail.
func TestReplicasThatLookAtTheSameTimeFindNothing(t *testing.T) {
	p := newPast(t)
	p.passes(p.replica(&line{revision: "10"}, "a"), 10)
	other := p.replica(&line{revision: "30"}, "a")
	one := &line{revision: "20", meanwhile: func() { p.passes(other, 30) }}
	p.passes(p.replica(one, "a"), 30)
	one.revision, one.meanwhile = "31", nil
	p.passes(p.replica(one, "a"), 31)
}

// A server of k3s with its data in SQL learns a moment later what others wrote, and an API server
// may lag behind others.
//
// mutation: a verdict from one answer makes this fail, and so does a list that may be empty.
func TestAnAPIServerThatLagsIsAskedAgain(t *testing.T) {
	p := newPast(t)
	p.passes(p.replica(&line{revision: "30"}, "a"), 30)
	l := &line{stale: []string{"28", "29"}, revision: "31"}
	h := p.replica(l, "a")
	began := h.clock.Now()
	p.passes(h, 31)
	if l.asked != 3 || h.clock.Since(began) != 2*time.Second {
		t.Errorf("it was asked %d times in %s", l.asked, h.clock.Since(began))
	}
	if l.kind != "/v1, Kind=NamespaceList" {
		t.Errorf("it was asked for a %s: of others there may be none", l.kind)
	}

	l = &line{stale: []string{"28", "29", "30"}, revision: "30"}
	p.refuses(p.replica(l, "a"), 30, 31)
	if l.asked != 5 {
		t.Errorf("a verdict after %d answers", l.asked)
	}
	l = &line{stale: []string{"28", away, "31"}, revision: "28"}
	p.passes(p.replica(l, "a"), 31)
}

// An API server flaps while etcd is restored.
//
// mutations: Reach that ends with the first error; one that takes an error for a low answer, or
// that counts anew after it; one that asks for ever; look that says nothing of what is unsure.
func TestAnAPIServerThatFlapsBelowWhatWasSeenIsNotPassed(t *testing.T) {
	p := newPast(t)
	p.passes(p.replica(&line{revision: "30"}, "a"), 30)
	l := &line{stale: []string{"28", away, "28", "28", "28", "28"}, revision: "30"}
	p.refuses(p.replica(l, "a"), 28, 30)
	if l.asked != 6 {
		t.Errorf("a verdict after %d questions", l.asked)
	}

	l = &line{stale: []string{"28", "29"}, err: errDown}
	h := p.replica(l, "a")
	began := h.clock.Now()
	p.unsure(t.Context(), h, errDown)
	if waited := h.clock.Since(began); waited < 30*time.Second || waited > 32*time.Second {
		t.Errorf("it gives up after %s", waited)
	}
	p.unsure(t.Context(), p.replica(&line{stale: []string{"28"}, revision: "text"}, "a"), timeline.ErrOpaque)

	ctx, cancel := context.WithCancel(t.Context())
	h = p.replica(&line{revision: "28", meanwhile: cancel}, "a")
	h.clock = clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0)) // its timers never end
	p.unsure(ctx, h, context.Canceled)
}

// mutation: Start that ends for what is unsure, or does not tell it.
func TestARunningProcessGoesOnWhereABackwardHistoryIsUnsure(t *testing.T) {
	p := newPast(t)
	p.passes(p.replica(&line{revision: "30"}, "a"), 30)
	h := p.replica(&line{stale: []string{"28"}, err: errDown}, "a")
	var told atomic.Int32
	h.log = funcr.New(func(_, text string) {
		if strings.Contains(text, timeline.ErrUnsure.Error()) {
			told.Add(1)
		}
	}, funcr.Options{})
	if err := h.lookAgain(t.Context()); err != nil || told.Load() != 1 {
		t.Errorf("a look says %v, and the log %d times", err, told.Load())
	}
	h.api = &line{revision: "28"}
	if _, ok := errors.AsType[*timeline.BackError](h.lookAgain(t.Context())); !ok {
		t.Error("the next look does not notice it")
	}
}

// mutation: look that compares with the mark alone makes this fail.
func TestAProcessNoticesItAlsoWithoutRedis(t *testing.T) {
	p := newPast(t)
	l := &line{revision: "20"}
	h := p.replica(l, "a")
	p.server.SetError("LOADING Redis is loading the dataset in memory")
	if err := h.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.revision = "19"
	p.refuses(h, 19, 20)
}

// mutation: look that ends for an error of either makes this fail, and so does one that takes what
// it was not told for 0.
func TestWhereOneOfTheTwoIsAwayThereIsNoVerdict(t *testing.T) {
	p := newPast(t)
	l := &line{revision: "20"}
	h := p.replica(l, "a")
	p.passes(h, 20)
	l.err = errDown
	l.revision = ""
	p.passes(h, 20)
	l.revision = "5" // an answer that was cut off
	p.passes(h, 20)

	l.revision, l.err = "5", nil
	p.server.SetError("LOADING Redis is loading the dataset in memory")
	if err := p.replica(l, "a").look(t.Context()); err != nil {
		t.Errorf("a process that begins while Redis is away: %v", err)
	}
	p.server.SetError("")
	p.refuses(p.replica(l, "a"), 5, 20)
}

func TestTheHistoryOfAnotherInstallationIsNotOurs(t *testing.T) {
	p := newPast(t)
	p.passes(p.replica(&line{revision: "1000"}, "a"), 1000)
	p.passes(p.replica(&line{revision: "5"}, "b"), 1000)
	p.passes(p.replica(&line{revision: "2000"}, "b"), 1000)
}

// mutation: a revision that is no number, and is taken for 0, makes this fail.
func TestRevisionsThatAreNoNumbersAreNotCompared(t *testing.T) {
	p := newPast(t)
	l := &line{revision: "20"}
	h := p.replica(l, "a")
	p.passes(h, 20)
	lines := 0
	h.log = funcr.New(func(_, text string) {
		if strings.Contains(text, "no numbers") {
			lines++
		}
	}, funcr.Options{})
	for _, text := range []string{"", "a19", "0", "-3", "1.5", "18446744073709551616", "0x9"} {
		l.revision = text
		p.passes(h, 20)
	}
	if lines != 1 {
		t.Errorf("the log says it %d times", lines)
	}
}

// mutation: Start that looks once only, or goes on after it found it, makes this fail.
func TestHistoryIsLookedAtAgainAndAgain(t *testing.T) {
	p := newPast(t)
	ticks := newEager()
	var revision, looks atomic.Int64
	looked := make(chan struct{})
	h := p.replica(readerFunc(func(list client.ObjectList) {
		list.SetResourceVersion(strconv.FormatInt(revision.Load(), 10))
		looks.Add(1)
		looked <- struct{}{}
	}), "a")
	h.clock = ticks
	if h.NeedLeaderElection() {
		t.Error("standbys let runs in, too")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- h.Start(ctx) }()
	step := func(to int64) {
		revision.Store(to)
		for !ticks.HasWaiters() {
			select {
			case err := <-ended:
				t.Fatalf("it ended: %v", err)
			default:
			}
		}
		ticks.Step(historyPause)
		<-looked
	}
	step(5)
	step(6)
	step(4)
	for range 4 { // until it is sure
		<-looked
	}
	if _, ok := errors.AsType[*timeline.BackError](<-ended); !ok || looks.Load() != 7 {
		t.Errorf("it ended otherwise, after %d looks", looks.Load())
	}

	revision.Store(9)
	again := make(chan error)
	go func() { again <- h.Start(ctx) }()
	cancel()
	if err := <-again; err != nil {
		t.Errorf("asked to end: %v", err)
	}
}

// readerFunc is a client.Reader that lists.
type readerFunc func(list client.ObjectList)

// List implements client.Reader.
func (f readerFunc) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	f(list)
	return nil
}

// Get implements client.Reader.
func (readerFunc) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errDown
}

// mutation: a list that is answered from a cache of the API server, or of a kind that it does not
// have, makes this fail.
func TestARealAPIServerSaysItsRevision(t *testing.T) {
	server := testenv.APIServer(t, testenv.CRDs())
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	before := uint64(0)
	for i := range 20 { // none, then one after the other
		now, err := timeline.Reach(t.Context(), c, clock.RealClock{}, 1)
		if err != nil || now < before || now == 0 {
			t.Fatalf("the revision is %d, %v, after %d", now, err, before)
		}
		policy := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "policy-" + strconv.Itoa(i)}}
		policy.Spec.WorkloadClasses = []string{policy.Name}
		if err := c.Create(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		if before, err = strconv.ParseUint(policy.ResourceVersion, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
}

// mutation: work that does not look before it begins, or does not add history to the manager, makes
// this fail.
func TestAnOperatorEndsWhereHistoryWentBack(t *testing.T) {
	s := newSite(t)
	locks := redis.NewClient(&redis.Options{Addr: s.env.Redis.Addr})
	defer func() { _ = locks.Close() }()
	const mark = "{adm-installation}:revision"
	first := s.operator("first")
	s.eventually("there is a mark", func() bool { return locks.Get(t.Context(), mark).Err() == nil })
	self, err := locks.Get(t.Context(), "{adm-installation}").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := locks.Set(t.Context(), mark, self+" 999999999999", 0).Err(); err != nil {
		t.Fatal(err)
	}
	ends := func(m *devenv.Manager) {
		t.Helper()
		s.eventually("it ends", func() bool {
			select {
			case <-m.Done():
				return true
			default:
				return false
			}
		})
		if text, err := os.ReadFile(m.Log); err != nil || !strings.Contains(string(text), "manager: the API server is at revision ") {
			t.Errorf("its log does not say why (%v):\n%s", err, text)
		}
	}
	ends(first)
	second, err := s.env.StartManager(t.Context(), s.binary, "second")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Kill(); err != nil {
			t.Error(err)
		}
	})
	ends(second)
	if text, err := os.ReadFile(second.Log); err != nil || strings.Contains(string(text), "Starting Controller") {
		t.Errorf("it began before it ended (%v):\n%s", err, text)
	}
}
