// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// post is a router without a bus and an API server.
type post struct {
	*Router
	refusals prometheus.Counter
	woken    []types.NamespacedName
	later    []time.Duration
}

func newPost(inbox *Inbox) *post {
	p := &post{refusals: prometheus.NewCounter(prometheus.CounterOpts{Name: "refusals_total", Help: "Refused."})}
	p.Router = NewRouter(Options{
		Index: NewIndex(), Inbox: inbox, Settler: NewSettler(inbox, uncounted{}), Clock: clocktesting.NewFakeClock(epoch),
		Spread: func() float64 { return 0.5 }, Refusals: p.refusals, Wake: func(key types.NamespacedName) { p.woken = append(p.woken, key) },
		WakeAfter: func(_ types.NamespacedName, d time.Duration) { p.later = append(p.later, d) },
	})
	return p
}

// route has a result of a run come.
func (p *post) route(run types.UID) *fakeDelivery {
	d := &fakeDelivery{}
	p.Route(context.Background(), &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run)}}, Since: p.Clock.Now(), Delivery: d})
	return d
}

// runOf is a run of a namespace.
func runOf(namespace, name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("u-" + name)}}
}

// delay is the wait that an error asks for.
func delay(err error) time.Duration {
	if again, ok := errors.AsType[*RetryError](err); ok {
		return again.After
	}
	return 0
}

func TestRouter_PutsAResultIntoTheInboxOfItsRunAndWakesIt(t *testing.T) {
	p := newPost(NewInbox(10, 1<<20))
	run := runOf("ns", "run")
	p.Index.See(run)
	p.route(run.UID)
	if len(p.Inbox.Waiting(run.UID)) != 1 || len(p.woken) != 1 || p.woken[0].Name != "run" {
		t.Errorf("%d wait, woken %v", len(p.Inbox.Waiting(run.UID)), p.woken)
	}
}

// mutation: Known that does nothing, or that does not ask whether the run was seen; park without
// another look at the index.
func TestRouter_AResultThatCameBeforeItsRunWasSeenWaitsNoLonger(t *testing.T) {
	for name, park := range map[string]func(p *post, run *v1alpha1.WorkflowRun){
		"before": func(p *post, run *v1alpha1.WorkflowRun) {
			p.route(run.UID)
			p.Orphans().Known(t.Context(), run.UID) // of an event that comes before it
			if n := p.Orphans().Backlog().Results; n != 1 || len(p.woken) > 0 {
				t.Errorf("%d results wait for the run to be seen, woken %v", n, p.woken)
			}
			p.Index.See(run)
			p.Orphans().Known(t.Context(), run.UID)
		},
		"while it was looked for": func(p *post, run *v1alpha1.WorkflowRun) {
			p.Index.See(run)
			p.orphans.park(t.Context(), &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, Since: p.Clock.Now(), Delivery: &fakeDelivery{}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPost(NewInbox(10, 1<<20))
			run := runOf("ns", "run")
			park(p, run)
			if left := p.Orphans().Backlog().Results; left != 0 || len(p.Inbox.Waiting(run.UID)) != 1 || len(p.woken) != 1 {
				t.Errorf("%d are parked, %d wait, woken %v", left, len(p.Inbox.Waiting(run.UID)), p.woken)
			}
		})
	}
}

// mutation: a run that is woken at once by news of a started job; an item's news that wait no
// longer than others.
func TestRouter_NewsOfAStartedJobWakeItsRunLater(t *testing.T) {
	p := newPost(NewInbox(10, 1<<20))
	run := runOf("ns", "run")
	p.Index.See(run)
	for _, item := range []string{protocol.NoItem, "7"} {
		id := protocol.JobID{RunUID: string(run.UID), Item: item}
		p.Route(t.Context(), &Pending{Fact: lifecycle.Result{ID: id, Result: protocol.Result{Status: protocol.StatusStarted}}, Since: p.Clock.Now(), Delivery: &fakeDelivery{}})
	}
	if len(p.woken) > 0 || !slices.Equal(p.later, []time.Duration{pacing.StartedPatience, pacing.ItemStartedPatience}) {
		t.Errorf("woken at once %v, later after %v", p.woken, p.later)
	}
}

// mutation: one list of orphans for all runs makes this fail.
func TestOrphans_GoBackToNATSWhenTooManyWaitAndLeaveRoomForThoseOfAnotherRun(t *testing.T) {
	p := newPost(NewInbox(10, 1<<20))
	var last *fakeDelivery
	for range orphanLimit + 1 {
		last = p.route("gone")
	}
	if n := len(p.orphans.parked.Waiting("gone")); n != orphanLimit/3 {
		t.Errorf("%d of a run wait, want a third of %d", n, orphanLimit)
	}
	if len(last.settled) != 1 || !errors.Is(last.settled[0], errUnknownRun) || delay(last.settled[0]) < ListPause {
		t.Errorf("the last was settled with %v", last.settled)
	}
	if d := p.route("new"); len(d.settled) != 0 {
		t.Errorf("that of another run: %v", d.settled)
	}
	if got := testutil.ToFloat64(p.refusals); got != orphanLimit+1-orphanLimit/3 {
		t.Errorf("%v refusals", got)
	}
}

// mutations: no share of bytes for a run, or the same wait for all that are refused: they come back
// all at once, and are served before what is new.
func TestRouter_GivesBackWhatFindsNoRoomWithADelayThatGrowsAndLeavesRoomForAnotherRun(t *testing.T) {
	p := newPost(NewInbox(100, 30*pendingBytes))
	hot, cold := runOf("ns", "hot"), runOf("ns", "cold")
	p.Index.See(hot)
	p.Index.See(cold)
	var refused []error
	for range 3 * returnRate {
		refused = append(refused, p.route(hot.UID).settled...)
	}
	if n := len(p.Inbox.Waiting(hot.UID)); n != 10 || len(refused) != 3*returnRate-10 {
		t.Fatalf("%d wait, %d were refused", n, len(refused))
	}
	if !errors.Is(refused[0], errInboxFull) || delay(refused[0]) < inboxFullDelay/2 || delay(refused[0]) > 2*inboxFullDelay {
		t.Errorf("the first: %v", refused[0])
	}
	if got, want := delay(refused[len(refused)-1]), 3*time.Second+inboxFullDelay; got < want-time.Second || got > want+time.Second {
		t.Errorf("the last waits %s, want about %s", got, want)
	}
	if d := p.route(cold.UID); len(d.settled) != 0 {
		t.Errorf("that of another run: %v", d.settled)
	}
}

// mutation: deliver without the second look into the index makes this fail: the result
// waits for ever.
func TestRouter_DoesNotLeaveAResultInTheInboxOfARunThatWasDeletedMeanwhile(t *testing.T) {
	p := newPost(NewInbox(10, 1<<20))
	run := runOf("ns", "run")
	p.Index.See(run)
	key, _ := p.Index.Find(run.UID)
	p.Index.Remove(run, true)
	p.deliver(t.Context(), key, &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: string(run.UID)}}, Since: epoch, Delivery: &fakeDelivery{}})
	if in, out := p.Inbox.Backlog().Results, p.orphans.Backlog().Results; in != 0 || out != 1 {
		t.Errorf("%d wait in the inbox, %d as orphans", in, out)
	}
}
