// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Results of a partition that moves are with the next process at once: AckWait is too long to help.
// mutation: Leave that does not wait for the drain, or a feed whose end does not give back, makes
// this fail; so does a Follow that takes more than it was told.
func TestConsumer_LeaveGivesBackToWhoFollows(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	a, b := newTestConsumer(t, s, ackWait(time.Minute)), newTestConsumer(t, s, ackWait(time.Minute))
	if err := b.Leave(t.Context(), protocol.AllPartitions()...); err != nil { // it was not consuming yet
		t.Fatal(err)
	}
	atA, _ := collect(t, a)
	atB, _ := collect(t, b)
	ids := inPartition(20)
	moving := partitionOf(ids[0])
	for _, id := range ids {
		bustest.Answer(t, a.conn, id, bustest.Succeeded)
	}
	held := bustest.Receive(t, "results at the first", atA, len(ids))
	if len(atB) != 0 {
		t.Fatal("who follows nothing got a result")
	}
	if err := a.Leave(t.Context(), moving); err != nil {
		t.Fatal(err)
	}
	b.Follow(moving)
	for _, d := range bustest.Receive(t, "results at the next", atB, len(ids)) {
		settle(t, d, nil)
	}
	for _, d := range held {
		if err := d.Settle(t.Context(), nil); err == nil {
			t.Error("the first may settle what it gave back")
		}
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, a) == 0 })

	// The others stay where they are, and it moves back as often as one likes.
	for attempt := range int32(3) {
		if err := b.Leave(t.Context(), moving); err != nil {
			t.Fatal(err)
		}
		a.Follow(moving)
		again := ids[0]
		again.Attempt = attempt + 2
		bustest.Answer(t, a.conn, again, bustest.Succeeded)
		settle(t, bustest.Receive(t, "it is back", atA, 1)[0], nil)
		if err := a.Leave(t.Context(), moving); err != nil {
			t.Fatal(err)
		}
		b.Follow(moving)
	}
}

// Of partitions that change hands results wait for the first pull, just when the server has many
// others to answer.
// mutation: consumeOnce that looks before it pulls makes this fail.
func TestConsumer_PullsBeforeItLooks(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "any", Password: "any"}, {Username: "blind", Password: "blind", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.INFO.>"}},
		}}}
	})
	as := func(user string) func(*config) { return func(c *config) { c.User, c.Password = user, user } }
	first, next := newTestConsumer(t, s, as("any")), newTestConsumer(t, s, as("blind"))
	_, stop := collect(t, first)
	followed(t, first)
	stop()
	bustest.Answer(t, first.conn, inPartition(1)[0], bustest.Succeeded)
	got, _ := collect(t, next)
	settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
}

// mutation: a feed that does not rest, or that never looks after its rest, makes this fail.
func TestConsumer_LooksAMomentAfterItPulled(t *testing.T) {
	t.Parallel()
	s, now := natstest.Start(t), clocktesting.NewFakeClock(time.Now())
	first, next := newTestConsumer(t, s), newTestConsumer(t, s, func(c *config) { c.Clock = now })
	_, stop := collect(t, first)
	followed(t, first)
	stop()
	calls := make(chan string, 1000)
	if _, err := first.conn.NATS.Subscribe("$JS.API.CONSUMER.>", func(m *nats.Msg) { calls <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	bustest.Answer(t, first.conn, inPartition(1)[0], bustest.Succeeded)
	got, _ := collect(t, next)
	settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
	pulled, looked := map[string]bool{}, map[string]bool{}
	count := func() {
		for len(calls) > 0 {
			if subject := <-calls; strings.HasPrefix(subject, "$JS.API.CONSUMER.INFO.") {
				looked[subject] = true
			} else {
				pulled[subject] = true
			}
		}
	}
	bustest.Eventually(t, "all are pulled from", func() bool {
		count()
		return len(pulled) == protocol.Partitions
	})
	if len(looked) > 0 {
		t.Errorf("%d consumers are looked at while all are pulled from", len(looked))
	}
	bustest.Eventually(t, "all consumers are looked at", func() bool {
		now.Step(2 * lookAfter)
		count()
		return len(looked) == protocol.Partitions
	})
}

// mutation: look that does not pull again makes this fail: no time passes here, so that the first
// pull, which nobody heard, is never taken for lost.
func TestConsumer_PullsAgainOnceItsConsumerIsThere(t *testing.T) {
	t.Parallel()
	c := newTestConsumer(t, natstest.Start(t), func(c *config) { c.Clock = clocktesting.NewFakeClock(time.Now()) })
	id := inPartition(1)[0]
	if err := c.Leave(t.Context(), protocol.AllPartitions()...); err != nil { // it was not consuming yet
		t.Fatal(err)
	}
	c.Follow(partitionOf(id))
	got, _ := collect(t, c)
	bustest.Answer(t, c.conn, id, bustest.Succeeded)
	settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
}

// All consumers are there when the next process starts, and the server is to serve others then.
// mutation: EnsureConsumer that creates before it looks, or largestResult that asks for each feed,
// makes this fail.
func TestConsumer_AsksLittleOfTheServerAtItsStart(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	first, second := newTestConsumer(t, s), newTestConsumer(t, s)
	_, stop := collect(t, first)
	followed(t, first)
	stop()
	asked := make(chan string, 1000)
	sub, err := first.conn.NATS.Subscribe("$JS.API.>", func(m *nats.Msg) { asked <- m.Subject })
	if err != nil || first.conn.NATS.Flush() != nil {
		t.Fatal(err)
	}
	_, stop = collect(t, second)
	followed(t, second)
	stop()
	if err := errors.Join(sub.Drain(), first.conn.NATS.Flush()); err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for len(asked) > 0 {
		words := strings.Split(<-asked, ".")
		counts[words[2]+" "+words[3]]++
	}
	if counts["CONSUMER CREATE"] > 0 || counts["CONSUMER INFO"] < protocol.Partitions || counts["STREAM INFO"] > protocol.Partitions/2 {
		t.Errorf("asked for %v", counts)
	}
}

// What a process that is gone had not settled, or had put off, is with the next one at once.
// mutation: TakeOver that is Follow makes this fail: AckWait is too long to help.
func TestConsumer_TakesOverFromAProcessThatIsGone(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	dead, next := newTestConsumer(t, s, ackWait(time.Hour)), newTestConsumer(t, s, ackWait(time.Hour))
	if err := next.Leave(t.Context(), protocol.AllPartitions()...); err != nil {
		t.Fatal(err)
	}
	atDead, _ := collect(t, dead)
	atNext, _ := collect(t, next)
	ids := inPartition(10)
	for _, id := range ids {
		bustest.Answer(t, dead.conn, id, bustest.Succeeded)
	}
	for i, d := range bustest.Receive(t, "results at the one that dies", atDead, len(ids)) {
		if i%2 == 0 {
			settle(t, d, &otherError{delay: time.Hour, class: "lock_busy"})
		}
	}
	bustest.Eventually(t, "all partitions have a consumer", func() bool { return unsettled(t, next) == len(ids) })
	if err := dead.conn.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	dead.conn.NATS.Close() // or it would make its subscription anew, and share what is delivered again
	next.TakeOver(partitionOf(ids[0]))
	for _, d := range bustest.Receive(t, "all of them at the next", atNext, len(ids)) {
		settle(t, d, nil)
	}
	bustest.Eventually(t, "all are acknowledged", func() bool { return unsettled(t, next) == 0 })
}

// heldElsewhere has somebody who is gone hold a result of each job.
func heldElsewhere(t *testing.T, b *Consumer, ids ...protocol.JobID) {
	t.Helper()
	of, err := b.ensure(t.Context(), partitionOf(ids[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		bustest.Answer(t, b.conn, id, bustest.Succeeded)
	}
	batch, err := of.Fetch(len(ids))
	if err != nil {
		t.Fatal(err)
	}
	bustest.Receive(t, "results elsewhere", batch.Messages(), len(ids))
}

// mutation: ended that forgets what its feed did not come to makes this fail: AckWait is too long
// to help.
func TestConsumer_TakesOverThoughItLeftBeforeItCould(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	b := newTestConsumer(t, s, ackWait(time.Hour))
	if err := b.Leave(t.Context(), protocol.AllPartitions()...); err != nil {
		t.Fatal(err)
	}
	id := bustest.JobID(1)
	heldElsewhere(t, b, id)
	got, _ := collect(t, b)
	s.Shutdown()
	bustest.Eventually(t, "NATS is away", func() bool { return !b.conn.Connected() })
	b.TakeOver(partitionOf(id))
	if err := b.Leave(t.Context(), partitionOf(id)); err != nil {
		t.Fatal(err)
	}
	b.Follow(partitionOf(id))
	s.Restart()
	settle(t, bustest.Receive(t, "the result", got, 1)[0], nil)
}

// What was to be made anew an hour ago may have been driven by another one since, which has put
// results off.
// mutation: takeAnew without anewCounts makes this fail.
func TestFollowing_ForgetsWhatWasToBeMadeAnew(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakeClock(time.Unix(100, 0))
	f := following{wanted: map[int]bool{}, clock: now, anew: map[int]time.Time{}, feeds: map[int]*running{}}
	f.follow([]int{3, 4}, true)
	now.Step(time.Minute)
	if anew, _ := f.takeAnew(3); !anew {
		t.Error("it is forgotten after a minute")
	}
	now.Step(time.Hour)
	for _, p := range []int{3, 4} {
		if anew, _ := f.takeAnew(p); anew {
			t.Errorf("the consumer of %d is made anew an hour later", p)
		}
	}
}

// mutation: follow that takes a feed which is ending for one that follows makes this fail, as
// above.
func TestConsumer_TakesOverWhatIsJustEnding(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t), ackWait(time.Hour))
	ids := inPartition(2)
	heldElsewhere(t, b, ids[0])
	got, goOn := make(chan *Delivery, 10), make(chan struct{})
	consume(t, b, func(_ context.Context, d *Delivery) {
		got <- d
		<-goOn
	})
	bustest.Answer(t, b.conn, ids[1], bustest.Succeeded)
	bustest.Receive(t, "a result", got, 1) // whose handler keeps the feed from its end
	short, cancel := context.WithCancel(t.Context())
	cancel()
	_ = b.Leave(short, partitionOf(ids[0])) // it says that it did not wait
	b.TakeOver(partitionOf(ids[0]))
	close(goOn)
	bustest.Eventually(t, "the other result comes", func() bool {
		d := bustest.Receive(t, "results", got, 1)[0]
		settle(t, d, nil)
		return d.ID == ids[0]
	})
}

// Follow right after a Leave that did not wait is followed once the old feed has ended.
// mutation: ended that starts none makes this fail.
func TestConsumer_FollowsAgainWhatIsJustEnding(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	got, _ := collect(t, b)
	id := bustest.JobID(1)
	bustest.Answer(t, b.conn, id, bustest.Succeeded)
	settle(t, bustest.Receive(t, "a result", got, 1)[0], nil)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	_ = b.Leave(short, partitionOf(id)) // it says that it did not wait
	b.Follow(partitionOf(id))
	next := id
	next.Attempt = 7
	bustest.Answer(t, b.conn, next, bustest.Succeeded)
	settle(t, bustest.Receive(t, "a result after it", got, 1)[0], nil)
}

// Earlier versions had eight consumers of eight partitions each. What they had delivered, or put
// off, comes at once.
// mutation: ensure without replaceGroups makes this fail.
func TestConsumer_ReplacesThoseOfEarlierVersions(t *testing.T) {
	t.Parallel()
	b := newTestConsumer(t, natstest.Start(t))
	var old jetstream.Consumer
	for n := range oldGroups {
		config := b.config(0)
		config.Durable, config.FilterSubject = fmt.Sprintf("syncopate-results-%d", n), ""
		for p := range protocol.Partitions / oldGroups {
			config.FilterSubjects = append(config.FilterSubjects, b.conn.Names.PartitionResults(n*protocol.Partitions/oldGroups+p))
		}
		c, err := b.conn.JetStream.CreateConsumer(t.Context(), b.conn.Names.ResultsStream(), config)
		if err != nil {
			t.Fatal(err)
		}
		if n == partitionOf(bustest.JobID(1))*oldGroups/protocol.Partitions {
			old = c
		}
	}
	bustest.Answer(t, b.conn, bustest.JobID(1), bustest.Succeeded)
	batch, err := old.Fetch(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := (<-batch.Messages()).NakWithDelay(time.Hour); err != nil {
		t.Fatal(err)
	}
	got, _ := collect(t, b)
	settle(t, bustest.Receive(t, "the result that was put off", got, 1)[0], nil)
	bustest.Eventually(t, "the old consumers are gone", func() bool {
		for n := range oldGroups {
			if _, err := b.conn.JetStream.Consumer(t.Context(), b.conn.Names.ResultsStream(), fmt.Sprintf("syncopate-results-%d", n)); err == nil {
				return false
			}
		}
		return true
	})
}
