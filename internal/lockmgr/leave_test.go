// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func everyRun(string) bool { return true }

// inLine puts a waiter of a process in the queue. It never comes for the lock.
func inLine(t *testing.T, m *Manager) {
	t.Helper()
	r := request()
	r.Wake = func() {}
	var busy *BusyError
	if _, err := m.Acquire(t.Context(), r); !errors.As(err, &busy) || !busy.Queued {
		t.Errorf("acquire: %v; want a place in line", err)
	}
}

// Whoever leaves the queue of a lock is not waited for: the next in line has the lock as soon as
// its holder gives it back.
// mutation: disown without places in line; claim that keeps a place for those who have left; a hold
// that is not given back; each makes a case fail.
func TestNobodyWaitsForWhoeverLeft(t *testing.T) {
	leave := func(t *testing.T, m *Manager) { m.Leave(t.Context(), everyRun) }
	for name, c := range map[string]struct {
		fates []outcome // of the takes of the one who leaves
		until time.Duration
		leave func(*testing.T, *Manager)
		after bool // it leaves after the holder gave back
	}{
		"in line":                         {nil, 0, leave, false},
		"in line, at its end":             {nil, 0, func(t *testing.T, m *Manager) { closeAll(t, m) }, false},
		"the lock is kept for it":         {nil, 0, leave, true},
		"the lock is kept for it, at end": {nil, 0, func(t *testing.T, m *Manager) { closeAll(t, m) }, true},
		"it is asking again":              {[]outcome{works, happensLate}, askTime - 50*time.Millisecond, leave, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				leaver, next := b.other(t), b.other(t)
				peer := b.store.peer()
				leaver.store = peer
				defer closeAll(t, leaver, next)
				lease := b.acquire(request())
				if c.fates != nil {
					peer.script(func(verb, _ string, n int) outcome {
						if verb != "acquire" {
							return works
						}
						return c.fates[min(n, len(c.fates)-1)]
					})
				}
				inLine(t, leaver)
				b.pass(c.until)
				l := &contenders{b: b}
				go l.contend(next, "next", 0)
				synctest.Wait()
				if !c.after {
					c.leave(t, leaver)
					b.pass(time.Second) // what it was asking comes back
				}
				lease.Drop(t.Context())
				synctest.Wait()
				if c.after {
					c.leave(t, leaver)
					synctest.Wait()
				}
				if l.served() != 1 {
					t.Errorf("the next in line waits for the one who left; the owner is %q", b.store.ownerOf(testRun))
				}
				b.pass(2 * time.Second) // in which it has the lock in any case
			})
		})
	}
}

// mutation: disown that does not ask whose runs they are makes this fail.
func TestLeaveIsOfSomeRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		second := b.other(t)
		defer closeAll(t, second)
		used := b.acquire(request())
		inLine(t, second)
		second.Leave(t.Context(), func(runUID string) bool { return runUID != testRun })
		b.m.Leave(t.Context(), everyRun)
		b.isValid(used) // whoever uses a lock keeps it
		used.Drop(t.Context())
		synctest.Wait()
		if owner := b.store.ownerOf(testRun); owner == "" {
			t.Error("a place in line was given up with those of other runs")
		}
	})
}

// Redis that hangs does not keep whoever leaves.
// mutation: giveUp without the caller's time makes this fail.
func TestLeaveEndsInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.store.steal(testRun, "another.one")
		inLine(t, b.m)
		b.fates("leave", timesOut)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin := time.Now()
		b.m.Leave(ctx, everyRun)
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("it took %s", took)
		}
	})
}

// A lock that lingers, or is kept for a waiter of this process, is freed though there is no time to
// wait for it and its first release fails.
// mutation: Leave that takes it out of the books and has the caller's time makes this fail.
func TestALockThatNobodyUsesIsFreedByWhoeverLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.acquire(request()).Release(t.Context()) // it lingers
		b.fates("release", timesOut, works)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		b.m.Leave(over, everyRun)
		b.pass(10 * time.Second)
		if owner := b.store.ownerOf(testRun); owner != "" {
			t.Errorf("%s still has the lock", owner)
		}
	})
}

// The outcome of a take was unknown, and its lock was given up. What is left of that on its way
// ends no lock of a later take.
// mutation: disownRun that keeps the token for the next take makes this fail.
func TestATokenThatWasGivenUpIsNotTakenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.store.script(func(verb, _ string, n int) outcome {
			switch {
			case verb == "acquire" && n == 0:
				return losesReply
			case verb == "release" && n == 0:
				return happensAfter
			default:
				return works
			}
		})
		if _, err := b.m.Acquire(t.Context(), request()); err == nil {
			t.Fatal("the reply was not lost")
		}
		b.m.Leave(t.Context(), everyRun)
		l := b.acquire(request())
		b.pass(5 * time.Second)
		b.isValid(l)
		if owner := b.store.ownerOf(testRun); owner == "" {
			t.Error("the lock of a valid lease is free")
		}
		l.Drop(t.Context())
	})
}

// mutation: disownRun that gives up the token of a take under way makes this fail: its lock would
// be free, and its user would not know.
func TestALockThatIsBeingTakenIsNotFreed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		b.fates("acquire", losesReply, repliesLate, works)
		if _, err := b.m.Acquire(t.Context(), request()); err == nil {
			t.Fatal("the reply was not lost")
		}
		taken := make(chan *Lease)
		go func() {
			l, err := b.m.Acquire(t.Context(), request())
			if err != nil {
				t.Errorf("acquire: %v", err)
			}
			taken <- l
		}()
		synctest.Wait()
		b.m.Leave(t.Context(), everyRun)
		l := <-taken
		b.isValid(l)
		if b.store.ownerOf(testRun) == "" {
			t.Error("the lock of a valid lease is free")
		}
		l.Drop(t.Context())
	})
}

// What a take with an unknown outcome may have got is given up, whether it has come back when this
// process leaves or comes back later.
// mutation: disownRun without tokens, and giveUpVain without those of unknown outcomes, each make a
// case fail.
func TestATakeWithAnUnknownOutcomeKeepsNobodyWaiting(t *testing.T) {
	for name, during := range map[string]bool{"before": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				b.fates("acquire", losesReply)
				answered := make(chan error, 1)
				go func() {
					_, err := b.m.Acquire(t.Context(), request())
					answered <- err
				}()
				synctest.Wait()
				if during {
					b.m.Leave(t.Context(), everyRun)
				}
				if err := <-answered; err == nil {
					t.Error("the reply was not lost")
				}
				if !during {
					b.m.Leave(t.Context(), everyRun)
				}
				synctest.Wait()
				if owner := b.store.ownerOf(testRun); owner != "" {
					t.Errorf("%s still has the lock", owner)
				}
			})
		})
	}
}
