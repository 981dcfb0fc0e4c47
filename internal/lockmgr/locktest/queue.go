// SPDX-License-Identifier: Apache-2.0

package locktest

import (
	"context"
	"fmt"
	"time"
)

// Times of the queue, as internal/lockmgr has them.
const (
	offerTime  = time.Second
	ticketTime = 2500 * time.Millisecond
	maxTickets = 64
)

// heardWithin bounds the wait for news.
const heardWithin = 10 * time.Second

// owner is a token as internal/lockmgr makes them: its process comes before the dot.
const owner = "p0.token"

// ticketed is the answer to whoever waits in the queue.
func ticketed() Grant { return Grant{Queued: true} }

// queueSuite is about the queue of waiting processes.
func queueSuite() map[string]func(*scene) {
	return map[string]func(*scene){
		// mutation: release.lua that only deletes makes this fail.
		"a release keeps the lock for the first in line": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
			s.releases(owner, true)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Queued: true, Offered: offerTime})
			s.gets(Claim{Token: "c"}, Grant{Offered: offerTime})
			s.gets(Claim{Token: "a", Process: "p1"}, Grant{Fence: 2, Others: true})
			s.releases("a", true)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Fence: 3})
			s.releases("b", true)
			s.takes("d", 0, 4)
		},
		"a free lock goes to the first in line, whoever asks first": func(s *scene) {
			s.takes(owner, 0, 1)
			s.Advance(s.t, ttl-time.Second)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.Advance(s.t, time.Second)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Queued: true, Offered: offerTime})
			s.gets(Claim{Token: "c"}, Grant{Offered: offerTime})
			s.gets(Claim{Token: "a", Process: "p1"}, Grant{Fence: 2, Others: true})
		},
		// mutation: offer in queue.lua without ZADD makes this fail.
		"who is offered the lock and does not come loses its place": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
			s.releases(owner, true)
			s.Advance(s.t, offerTime)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Fence: 2})
		},
		// mutation: first in queue.lua that drops one ticket only makes this fail.
		"all who are gone are skipped at once": func(s *scene) {
			s.takes(owner, 0, 1)
			for i := range 5 {
				s.gets(Claim{Token: "gone", Process: fmt.Sprintf("gone-%d", i)}, ticketed())
			}
			s.Advance(s.t, ticketTime)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.releases(owner, true)
			s.gets(Claim{Token: "a", Process: "p1"}, Grant{Fence: 2})
		},
		// mutation: enqueue in acquire.lua without ZADD for a known process makes this fail.
		"asking again keeps the place": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			for range 5 {
				s.Advance(s.t, ticketTime*2/3)
				s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
				s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			}
			s.releases(owner, true)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Queued: true, Offered: offerTime})
			s.gets(Claim{Token: "a", Process: "p1"}, Grant{Fence: 2, Others: true})
		},
		"the line is bounded": func(s *scene) {
			s.takes(owner, 0, 1)
			for i := range maxTickets {
				s.gets(Claim{Token: "a", Process: fmt.Sprintf("p%d", i)}, ticketed())
			}
			s.gets(Claim{Token: "a", Process: "more"}, Grant{})
			s.gets(Claim{Token: "a", Process: "p7"}, ticketed())
		},
		"a token that is superseded does not jump the line": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.gets(Claim{Token: "p0.new", Supersedes: owner, Process: "p0"}, Grant{Queued: true, Offered: offerTime})
			s.gets(Claim{Token: "a", Process: "p1"}, Grant{Fence: 2, Others: true})
		},
		"a take whose reply was lost is found again with others in line": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
			s.gets(Claim{Token: owner, Process: "p0"}, Grant{Fence: 1, Others: true})
		},
		"the fence is above the floor for whoever comes next": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.releases(owner, true)
			s.gets(Claim{Token: "a", Process: "p1", Floor: 40}, Grant{Fence: 41})
		},
		"a line that lost all data forms anew": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.Flush(s.t)
			s.gets(Claim{Token: "b", Process: "p2", Floor: 1}, Grant{Fence: 2})
			s.gets(Claim{Token: "a", Process: "p1", Floor: 1}, ticketed())
		},
		// mutation: leave.lua that only looks at the lock makes this fail.
		"who leaves has no place": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
			s.leaves("p1")
			s.releases(owner, true)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Fence: 2})
			s.leaves("p1")
			s.renews("b", true)
		},
		// mutation: leave.lua that only leaves the line makes this fail.
		"who leaves passes on what is kept for it": func(s *scene) {
			heard := s.listens("p2")
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.gets(Claim{Token: "b", Process: "p2"}, ticketed())
			s.releases(owner, true)
			s.leaves("p3") // whoever has no place changes nothing
			s.gets(Claim{Token: "c"}, Grant{Offered: offerTime})
			s.leaves("p1")
			s.hears(heard, "offered "+uid)
			s.gets(Claim{Token: "b", Process: "p2"}, Grant{Fence: 2})
		},
		"what is kept for the last who leaves is free": func(s *scene) {
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.releases(owner, true)
			s.leaves("p1")
			s.takes("b", 0, 2)
		},
		"who owns the lock hears that somebody waits": func(s *scene) {
			heard := s.listens("p0")
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.hears(heard, "wanted "+uid)
			s.isBusy("b", 0) // and that somebody polls
			s.hears(heard, "wanted "+uid)
		},
		"who is first hears that the lock is there": func(s *scene) {
			heard := s.listens("p1")
			s.takes(owner, 0, 1)
			s.gets(Claim{Token: "a", Process: "p1"}, ticketed())
			s.releases(owner, true)
			s.hears(heard, "offered "+uid)
		},
	}
}

func (s *scene) leaves(process string) {
	s.t.Helper()
	if err := s.Leave(s.t.Context(), uid, process); err != nil {
		s.t.Errorf("%s leaves: %v", process, err)
	}
}

// listens starts to listen for a process, and returns when it really does: a lock of another run is
// offered to it until it hears.
func (s *scene) listens(process string) <-chan string {
	s.t.Helper()
	heard := make(chan string, 1000)
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Listen(ctx, process, func(news, runUID string) { heard <- news + " " + runUID })
	}()
	s.t.Cleanup(func() { cancel(); <-done })
	for try := 0; ; try++ {
		probe := Claim{RunUID: fmt.Sprintf("probe-%d", try), Token: "x.probe", TTL: ttl}
		_, err := s.Acquire(s.t.Context(), probe)
		waiting := probe
		waiting.Token, waiting.Process = process+".probe", process
		if _, again := s.Acquire(s.t.Context(), waiting); err != nil || again != nil {
			s.t.Fatalf("probe: %v, %v", err, again)
		}
		if _, err := s.Release(s.t.Context(), probe.RunUID, probe.Token); err != nil {
			s.t.Fatalf("probe: %v", err)
		}
		select {
		case <-heard:
			return heard
		case <-time.After(time.Millisecond):
		case <-s.t.Context().Done():
			s.t.Fatal("nothing is heard")
		}
	}
}

func (s *scene) hears(heard <-chan string, want string) {
	s.t.Helper()
	timeout := time.After(heardWithin)
	for {
		select {
		case got := <-heard:
			if got == want {
				return
			}
		case <-timeout:
			s.t.Fatalf("%q is not heard", want)
		}
	}
}
