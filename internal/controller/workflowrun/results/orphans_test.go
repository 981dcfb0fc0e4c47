// SPDX-License-Identifier: Apache-2.0

package results

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/testenv/onebyone"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// noRuns is an API server that has no runs, and takes its time to say so.
type noRuns struct {
	client.Reader
	lists int
	takes func()
	err   error
}

// threeRuns is an API server that has three.
type threeRuns struct{ client.Reader }

func (threeRuns) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	var all []runtime.Object
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, &metav1.PartialObjectMetadata{ObjectMeta: runOf("ns", name).ObjectMeta})
	}
	return meta.SetList(l, all)
}

// mutation: LiveRuns that ends after its first page takes the runs of the others for gone.
func TestLiveRunsAreThoseOfAllPages(t *testing.T) {
	all, err := LiveRuns(t.Context(), onebyone.From(threeRuns{}))
	if err != nil || len(all) != 3 || all["u-c"].Name != "c" {
		t.Errorf("%v, %v", all, err)
	}
}

func (a *noRuns) List(context.Context, client.ObjectList, ...client.ListOption) error {
	a.lists++
	if a.takes != nil {
		a.takes()
	}
	return a.err
}

// sorting is a router with an API server that has no runs.
func sorting(t *testing.T) (p *post, api *noRuns, later func(time.Duration)) {
	t.Helper()
	p, api = newPost(NewInbox(10, 1<<20)), &noRuns{}
	p.Live = api
	clk, ok := p.Clock.(*clocktesting.FakeClock)
	if !ok {
		t.Fatal("no fake clock")
	}
	return p, api, func(d time.Duration) {
		clk.Step(d)
		if err := p.Orphans().Sort(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Somebody deletes a run whose job is under way, and its worker answers: that must not have all
// runs of all tenants listed.
//
// mutation: Remove that does not remember the run, or only if this process drove it; deliverKnown
// that does not look, or does not wait; Gone that says so of a run which is back.
func TestOrphans_ALateResultOfADeletedRunHasNothingListed(t *testing.T) {
	for _, driven := range []bool{true, false} {
		t.Run(fmt.Sprintf("driven here: %t", driven), func(t *testing.T) {
			p, api, later := sorting(t)
			run := runOf("ns", "run")
			p.Index.See(run)
			p.Index.Remove(run, driven)
			late := p.route(run.UID)
			later(OrphanPatience - time.Millisecond)
			if len(late.settled) > 0 {
				t.Error("it is settled before a cache that was restored could tell of the run")
			}
			later(time.Millisecond)
			if len(late.settled) != 1 || late.settled[0] != nil || api.lists != 0 || p.Orphans().Backlog().Results != 0 {
				t.Errorf("settled %v after %d lists", late.settled, api.lists)
			}

			p.Index.See(run) // of data that was restored
			back := p.route(run.UID)
			later(OrphanPatience)
			if len(back.settled) > 0 || len(p.Inbox.Waiting(run.UID)) != 1 || p.Index.Gone(run.UID) {
				t.Errorf("of a run that is back: settled %v", back.settled)
			}
		})
	}
}

// A list takes long where there are many runs, and does not have one that is made meanwhile.
//
// mutation: Sort that drops what came until its list ended.
func TestOrphans_WhatComesWhileRunsAreListedIsLeftForTheNextList(t *testing.T) {
	p, api, later := sorting(t)
	clk, _ := p.Clock.(*clocktesting.FakeClock)
	old := p.route("gone")
	var young *fakeDelivery
	api.takes = func() {
		clk.Step(time.Millisecond)
		young = p.route("new")
	}
	later(OrphanPatience)
	if len(old.settled) != 1 || len(young.settled) != 0 || api.lists != 1 {
		t.Errorf("settled %v and %v after %d lists", old.settled, young.settled, api.lists)
	}
}

// mutation: Sort that does not note what a list said.
func TestOrphans_ARunIsLookedForOnce(t *testing.T) {
	p, api, later := sorting(t)
	for range 3 {
		late := p.route("gone")
		later(max(OrphanPatience, ListPause))
		if len(late.settled) != 1 || api.lists != 1 {
			t.Errorf("settled %v after %d lists", late.settled, api.lists)
		}
	}
}

// mutation: a pause that does not grow with what a list took.
func TestOrphans_LongListsAreRare(t *testing.T) {
	p, api, later := sorting(t)
	clk, _ := p.Clock.(*clocktesting.FakeClock)
	api.takes = func() { clk.Step(2 * time.Second) }
	for i := range 40 { // a second each
		p.route(types.UID(fmt.Sprintf("gone-%d", i)))
		later(time.Second)
	}
	if api.lists != 1 {
		t.Errorf("%d lists of 2 s each in 40 s", api.lists)
	}
	p.route("gone")
	later(OrphanPatience)
	if api.lists != 2 {
		t.Errorf("%d lists after that", api.lists)
	}
}

// mutations: no pause after a list that failed, one from when it began, or one without a bound.
func TestOrphans_AListThatFailsIsTriedAgain(t *testing.T) {
	p, api, later := sorting(t)
	clk, _ := p.Clock.(*clocktesting.FakeClock)
	api.takes = func() { clk.Step(time.Minute) }
	api.err = errors.New("the API server is ill")
	late := p.route("gone")
	clk.Step(OrphanPatience)
	if err := p.Orphans().Sort(t.Context()); !errors.Is(err, api.err) {
		t.Errorf("%v", err)
	}
	api.err = nil
	if later(maxPause - 1); api.lists != 1 {
		t.Error("a list that took a minute, and failed, is made again at once")
	}
	if later(1); api.lists != 2 || len(late.settled) != 1 {
		t.Errorf("settled %v after %d lists", late.settled, api.lists)
	}
	p.route("another")
	if later(maxPause); api.lists != 3 {
		t.Errorf("%d lists a minute later", api.lists)
	}
}

// mutation: a ring that forgets another one than the oldest, or none.
func TestIndex_RemembersTheRunsThatWereDeletedLast(t *testing.T) {
	x := NewIndex()
	uid := func(i int) types.UID { return types.UID(fmt.Sprint(i)) }
	for i := range maxGone + 2 {
		x.NoteGone(uid(i))
		x.NoteGone(uid(i)) // again
	}
	if x.Gone(uid(0)) || x.Gone(uid(1)) || !x.Gone(uid(2)) || !x.Gone(uid(maxGone+1)) || len(x.gone.known) != maxGone || len(x.gone.order) != maxGone {
		t.Errorf("%d are known in a ring of %d", len(x.gone.known), len(x.gone.order))
	}
}

// meeting is a delivery that is settled once all that came with it are being settled.
type meeting struct {
	Delivery
	all *sync.WaitGroup
}

func (m *meeting) Settle(context.Context, error) error {
	m.all.Done()
	m.all.Wait()
	return nil
}

type uncounted struct{}

func (uncounted) CountResult(string) {}

// Each waits for NATS, and a pass of the namespace waits for all.
//
// mutation: Gone, or drop, that settles one after the other waits for ever.
func TestResultsOfADeletedRunAreSettledSideBySide(t *testing.T) {
	for name, settle := range map[string]func(*post, types.UID){
		"of the inbox": func(p *post, uid types.UID) { p.Settler.Gone(t.Context(), uid) },
		"orphans":      func(p *post, uid types.UID) { p.orphans.drop(t.Context(), uid, p.Clock.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				p := newPost(NewInbox(10, 1<<20))
				p.Settler = NewSettler(p.Inbox, uncounted{})
				all := &sync.WaitGroup{}
				for range 3 {
					all.Add(1)
					one := &Pending{Fact: lifecycle.Result{ID: protocol.JobID{RunUID: "u"}}, Since: p.Clock.Now(), Delivery: &meeting{all: all}}
					if name == "orphans" {
						p.orphans.park(t.Context(), one)
					} else if !p.Inbox.Put("ns", "u", one) {
						t.Error("no room")
					}
				}
				settle(p, "u")
			})
		})
	}
}
