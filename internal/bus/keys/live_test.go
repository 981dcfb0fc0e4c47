package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var (
	nextKey    = Key{ID: "k2", Secret: []byte("the key after the first rotation")}
	foreignKey = Key{ID: "k9", Secret: []byte("a key that nobody ever configured")}

	errAway   = errors.New("the keys are out of reach")
	errNoKeys = fmt.Errorf("%w: an entry is missing", ErrConfig)
)

// safe is where the keys are kept.
type safe struct {
	mu    sync.Mutex
	ring  Keyring
	err   error
	reads int
	shut  chan struct{} // while it is open, a read hangs; nil: none does
}

func newSafe(ring Keyring) *safe { return &safe{ring: ring} }

func (s *safe) put(ring Keyring, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ring, s.err = ring, err
}

func (s *safe) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads
}

func (s *safe) load(ctx context.Context) (Keyring, error) {
	s.mu.Lock()
	ring, err, shut := s.ring, s.err, s.shut
	s.reads++
	s.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-ctx.Done():
			return Keyring{}, ctx.Err()
		}
	}
	return ring, err
}

func (s *safe) use(c *Config) { c.LoadKeys = s.load }

// sign answers a job with the token of a key.
func answerWith(t testing.TB, b *Bus, k Key, id protocol.JobID) {
	t.Helper()
	token := Keyring{Current: k}.Sign(id)
	publishRaw(t, b, b.names.Result(id), succeeded, protocol.HeaderToken, token, protocol.HeaderMsgID, protocol.ResultMsgID(id, token))
}

// inGroup are n jobs whose results come from one group.
func inGroup(n int) []protocol.JobID {
	var ids []protocol.JobID
	for i := 0; len(ids) < n; i++ {
		if id := jobID(i); groupOf(id) == groupOf(jobID(0)) {
			ids = append(ids, id)
		}
	}
	return ids
}

func rotated() Keyring { return Keyring{Current: nextKey, Previous: testKey} }

// Another replica signs with the new key already.
// mutation: refusing by the keys at hand makes this fail: the result would be a dead letter.
func TestAResultOfAKeyThatIsNotKnownYetIsNoForgery(t *testing.T) {
	t.Parallel()
	s := newSafe(rotated())
	b := newBus(t, natstest.Start(t), s.use)
	got, _ := collect(t, b)
	answerWith(t, b, nextKey, jobID(1))
	d := receive(t, "the result", got, 1)[0]
	if d.ID != jobID(1) || d.Result.Status != protocol.StatusSucceeded || d.Rejected != nil {
		t.Errorf("delivery %+v", d) // mutation: no decode after the second look makes this fail
	}
	settle(t, d, nil)
	if token := b.keys.sign(jobID(2)); !(Keyring{Current: nextKey}).Verify(jobID(2), token) {
		t.Errorf("jobs are still signed with the old key: %s", token)
	}
	answerWith(t, b, testKey, jobID(3)) // mutation: a ring without the previous key makes this fail
	settle(t, receive(t, "the result of a job that was under way", got, 1)[0], nil)
	eventually(t, "all are acknowledged", func() bool { return unsettled(t, b) == 0 })
	if n := s.count(); n != 1 || len(deadLetters(t, b)) != 0 {
		t.Errorf("%d reads, %d dead letters", n, len(deadLetters(t, b)))
	}
}

// mutation: a read for each forgery, or no pause between reads, makes the count fail; no reason, the first check.
func TestForgeriesAreDeadLettersAndCostFewReads(t *testing.T) {
	t.Parallel()
	const n = 200
	s := newSafe(Keyring{Current: testKey})
	b := newBus(t, natstest.Start(t), s.use)
	got, _ := collect(t, b)
	begin := time.Now()
	for i := range n {
		answerWith(t, b, foreignKey, jobID(i))
	}
	eventually(t, "all forgeries are put aside", func() bool { return len(deadLetters(t, b)) == n })
	for _, l := range deadLetters(t, b) {
		if reason := l.Header.Get(HeaderDeadReason); reason != reasonRejected {
			t.Fatalf("reason %q", reason)
		}
	}
	if limit := 2 + int(time.Since(begin)/keyReadPause); s.count() > limit {
		t.Errorf("%d reads of the keys for %d forgeries, at most %d", s.count(), n, limit)
	}
	if len(got) != 0 {
		t.Errorf("%d forgeries were handed out", len(got))
	}
}

// mutation: no look at the token's form makes this fail.
func TestWhatNoKeyCouldHaveMadeIsRefusedWithoutARead(t *testing.T) {
	t.Parallel()
	s := newSafe(rotated())
	b := newBus(t, natstest.Start(t), s.use)
	collect(t, b)
	for i, token := range []string{"", "k2", "k2.", "k2.short", ".", "k2." + string(make([]byte, 43)), "k.2." + b.keys.sign(jobID(1))[3:]} {
		publishRaw(t, b, b.names.Result(jobID(i)), succeeded, protocol.HeaderToken, token)
	}
	eventually(t, "all are put aside", func() bool { return len(deadLetters(t, b)) == 7 })
	if s.count() != 0 {
		t.Errorf("%d reads of the keys", s.count())
	}
}

// mutation: a verdict of dead letter while the keys cannot be read, or a count of such tries, makes this fail.
func TestAResultThatCannotBeJudgedNowStays(t *testing.T) {
	t.Parallel()
	s := newSafe(rotated())
	s.put(Keyring{}, errAway)
	metrics := NewMetrics(newRegistry())
	b := newBus(t, natstest.Start(t), s.use, func(c *Config) {
		c.Metrics, c.Rand = metrics, func() float64 { return 0 }
	})
	got, _ := collect(t, b)
	answerWith(t, b, nextKey, jobID(1))
	eventually(t, "it was given back more often than poison would be", func() bool {
		return histogramCount(t, metrics.retryDelay, ClassStoreUnavailable) > maxPoisonTries
	})
	s.put(rotated(), nil)
	d := receive(t, "the result", got, 1)[0]
	if d.Failures != 0 {
		t.Errorf("%d failures counted", d.Failures)
	}
	settle(t, d, nil)
	if n := len(deadLetters(t, b)); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// mutation: a ring that is stored before it is checked makes the first part fail, no bound for tries the second.
func TestKeysThatCannotBeUsedChangeNothing(t *testing.T) {
	t.Parallel()
	for name, unusable := range map[string]struct {
		ring Keyring
		err  error
	}{
		"none at all":                {Keyring{}, errNoKeys},
		"a short secret":             {Keyring{Current: Key{ID: "k2", Secret: []byte("short")}, Previous: testKey}, nil},
		"an id with a dot":           {Keyring{Current: Key{ID: "k.2", Secret: nextKey.Secret}, Previous: testKey}, nil},
		"an id with a line end":      {Keyring{Current: Key{ID: "k2\n", Secret: nextKey.Secret}, Previous: testKey}, nil},
		"half a previous key":        {Keyring{Current: nextKey, Previous: Key{ID: "k1"}}, nil},
		"the other half":             {Keyring{Current: nextKey, Previous: Key{Secret: testKey.Secret}}, nil},
		"an id that is far too long": {Keyring{Current: Key{ID: string(make([]byte, 65)), Secret: nextKey.Secret}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSafe(Keyring{})
			s.put(unusable.ring, unusable.err)
			b := newBus(t, natstest.Start(t), s.use, func(c *Config) { c.Rand = func() float64 { return 0 } })
			if err := b.ReloadKeys(t.Context()); !errors.Is(err, ErrConfig) {
				t.Errorf("reload: %v", err)
			}
			got, _ := collect(t, b)
			answerWith(t, b, foreignKey, jobID(2))
			answer(t, b, jobID(1), succeeded)
			settle(t, receive(t, "a result of the key in use", got, 1)[0], nil)
			if diff := cmp.Diff(Keyring{Current: testKey}, *b.keys.ring.Load()); diff != "" {
				t.Errorf("keys in use (-want +got):\n%s", diff)
			}
			eventually(t, "the forgery is put aside", func() bool { return len(deadLetters(t, b)) == 1 })
			if n := deadLetters(t, b)[0].Header.Get(HeaderDeadDeliveries); n != fmt.Sprint(maxPoisonTries) {
				t.Errorf("put aside after %s deliveries", n)
			}
		})
	}
}

// mutation: a second look in the goroutine that receives makes this fail.
func TestWhileTheKeysHangOthersAreNotDelayed(t *testing.T) {
	t.Parallel()
	const n = 1000
	s := newSafe(Keyring{Current: testKey})
	s.shut = make(chan struct{})
	b := newBus(t, natstest.Start(t), s.use)
	ids := inGroup(n + 1)
	done := make(chan protocol.JobID, n)
	consume(t, b, func(_ context.Context, d *Delivery) {
		settle(t, d, nil)
		done <- d.ID
	})
	answerWith(t, b, foreignKey, ids[0])
	eventually(t, "it is being judged", func() bool { return s.count() == 1 })
	for _, id := range ids[1:] {
		answer(t, b, id, succeeded)
	}
	receive(t, "those of its group", done, n)
	if s.count() != 1 || len(deadLetters(t, b)) != 0 {
		t.Errorf("it was judged meanwhile: %d reads", s.count())
	}
	close(s.shut)
	eventually(t, "the forgery is put aside", func() bool { return len(deadLetters(t, b)) == 1 })
}

// mutation: recovery that judges by the keys at hand gives the job to a second worker.
func TestRecoveryKnowsAnAnswerOfANewKey(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ring    Keyring
		err     error
		key     Key
		want    RecoverOutcome
		wantErr error
	}{
		"an answer of a key that is not known yet":                 {rotated(), nil, nextKey, Answered, nil},
		"a forgery does not keep a job from being dispatched":      {rotated(), nil, foreignKey, Published, nil},
		"nor does it while the keys cannot be used":                {Keyring{}, errNoKeys, foreignKey, Published, nil},
		"while the keys cannot be read nothing is dispatched":      {Keyring{}, errAway, nextKey, 0, errAway},
		"an answer of a key at hand needs no look, whatever it is": {Keyring{}, errAway, testKey, Answered, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSafe(Keyring{})
			s.put(c.ring, c.err)
			b := newBus(t, natstest.Start(t), s.use)
			answerWith(t, b, c.key, jobID(1))
			got, err := b.Recover(t.Context(), testJob(1))
			if got != c.want || !errors.Is(err, c.wantErr) {
				t.Errorf("%s, %v; want %s, %v", got, err, c.want, c.wantErr)
			}
		})
	}
}

// mutation: a job signed with Config.Keys makes this fail.
func TestAfterAReloadJobsAreSignedWithTheNewKey(t *testing.T) {
	t.Parallel()
	s := newSafe(Keyring{Current: testKey})
	b := newBus(t, natstest.Start(t), s.use)
	for i, c := range []struct {
		ring Keyring
		key  Key
	}{{Keyring{Current: testKey}, testKey}, {rotated(), nextKey}, {rotated(), nextKey}} {
		s.put(c.ring, nil)
		if err := b.ReloadKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := b.Publish(t.Context(), testJob(i)); err != nil {
			t.Fatal(err)
		}
		m := take(t, b, testJob(i).Topic)
		if !(Keyring{Current: c.key}).Verify(jobID(i), m.Headers().Get(protocol.HeaderToken)) {
			t.Errorf("job %d is signed with %s", i, m.Headers().Get(protocol.HeaderToken))
		}
	}
	if err := newBus(t, natstest.Start(t)).ReloadKeys(t.Context()); err != nil {
		t.Errorf("a bus whose keys never change: %v", err)
	}
}

// The rule itself, on a clock that stands still. mutation: "not before" for "after" in readSince makes the second line fail: a read
// that began together with the message says nothing about its key.
func TestOneReadJudgesAllThatCameBeforeIt(t *testing.T) {
	t.Parallel()
	c := clocktesting.NewFakeClock(time.Now())
	s := newSafe(Keyring{Current: testKey})
	k := newLiveKeys(Config{Keys: Keyring{Current: testKey}, LoadKeys: s.load, Clock: c})
	begin := c.Now()
	for i, step := range []struct {
		since time.Time
		reads int
	}{
		{begin.Add(-time.Second), 1},
		{begin, 2},
		{begin, 2},
		{begin.Add(keyReadPause - 1), 2},
		{begin.Add(keyReadPause), 3},
	} {
		done := make(chan error, 1)
		go func() { done <- k.readSince(t.Context(), step.since) }()
		eventually(t, "the look ends", func() bool {
			if c.HasWaiters() {
				c.Step(keyReadPause)
			}
			return len(done) == 1
		})
		if err := <-done; err != nil || s.count() != step.reads {
			t.Errorf("look %d: %v, %d reads, want %d", i, err, s.count(), step.reads)
		}
	}
}

// mutation: keeping the error of a caller who went away makes this fail: it would speak for others.
func TestACallerWhoGoesAwaySpeaksForNobody(t *testing.T) {
	t.Parallel()
	s := newSafe(Keyring{Current: testKey})
	s.shut = make(chan struct{})
	b := newBus(t, natstest.Start(t), s.use)
	since := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- b.keys.readSince(ctx, since) }()
	eventually(t, "it reads", func() bool { return s.count() == 1 })
	other := make(chan error, 1)
	go func() { other <- b.keys.readSince(t.Context(), since) }()
	cancel()
	if err := receive(t, "the first", gone, 1)[0]; !errors.Is(err, context.Canceled) {
		t.Errorf("the first: %v", err)
	}
	close(s.shut)
	if err := receive(t, "the other", other, 1)[0]; err != nil {
		t.Errorf("the other: %v", err)
	}
}

// A message whose second look is under way when the operator stops goes back at once, and none is lost.
// mutation: settling it after ctx has ended gives it a delay, and this fails.
func TestTheDrainGivesBackWhatIsBeingJudged(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	s := newSafe(rotated())
	s.shut = make(chan struct{})
	metrics := NewMetrics(newRegistry())
	a := newBus(t, server, s.use, ackWait(time.Minute), func(c *Config) { c.Metrics = metrics })
	_, stop := collect(t, a)
	answerWith(t, a, nextKey, jobID(1))
	eventually(t, "it is being judged", func() bool { return s.count() == 1 })
	stop()
	if n := histogramCount(t, metrics.retryDelay, ClassStoreUnavailable); n != 0 {
		t.Error("it was given back with a delay")
	}
	b := newBus(t, server, newSafe(rotated()).use, ackWait(time.Minute))
	got, _ := collect(t, b)
	settle(t, receive(t, "the result", got, 1)[0], nil)
	eventually(t, "it is acknowledged", func() bool { return unsettled(t, b) == 0 })
}
