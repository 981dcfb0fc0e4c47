// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// untoldWord is what is said of a lock that somebody may have of whom no status tells.
const untoldWord = "no status tells who has it"

// mutations: unexplained that says it of the lock at hand alone, or also of keys that the status of
// their Semaphore lists, makes this fail.
func TestOnlyOfALockOfWhichNoStatusTellsItIsSaidThatSomebodyMayHaveIt(t *testing.T) {
	eu := v1alpha1.LockRequest{Semaphore: "pool", Key: "eu"}
	busy := func(keys ...v1alpha1.KeyStatus) v1alpha1.Semaphore {
		return semaphore("pool", 4, func(s *v1alpha1.Semaphore) { s.Status = &v1alpha1.SemaphoreStatus{Busiest: keys} })
	}
	whys := func(sem v1alpha1.Semaphore, requests ...v1alpha1.LockRequest) map[string]string {
		all := map[string]string{}
		for _, l := range Locks(LockSight{
			Runs:       []v1alpha1.WorkflowRun{holds("has", 7, "other/x"), waitsLock("one", 1, 0, "pool/eu", requests...)},
			Semaphores: []v1alpha1.Semaphore{sem}, Whole: true, Now: lockNow,
		}) {
			for i := range l.Waiters {
				all[l.Lock] = l.Waiters[i].Why
			}
		}
		return all
	}
	listed := busy(v1alpha1.KeyStatus{Key: "eu", Held: 3, Holder: "team-a/frozen"})
	got := whys(listed, eu, v1alpha1.LockRequest{Mutex: "deploy"})
	if why := got["pool/eu"]; !strings.HasPrefix(why, "there is room here; it may wait for mutex:team-a/deploy, of which "+untoldWord) {
		t.Errorf("of a key with room, beside a mutex, it says %q", why)
	}
	if why := got["mutex:team-a/deploy"]; !strings.HasPrefix(why, untoldWord+": either its holder has just ended") {
		t.Errorf("of a mutex it says %q", why)
	}
	if why := whys(listed, eu)["pool/eu"]; why != "there is room: it is to be woken" {
		t.Errorf("of a key that the status lists it says %q", why)
	}
	for name, sem := range map[string]v1alpha1.Semaphore{"without a status": semaphore("pool", 4), "that does not list it": busy(v1alpha1.KeyStatus{Key: "us", Held: 1})} {
		if why := whys(sem, eu)["pool/eu"]; !strings.HasPrefix(why, untoldWord) {
			t.Errorf("of a key of a Semaphore %s it says %q", name, why)
		}
	}
}

// mutations: heldText, or WaitsFor, without what the Semaphore tells makes this fail.
func TestWhatTheSemaphoreAloneTellsIsInTheTableAndInWhy(t *testing.T) {
	eu := v1alpha1.LockRequest{Semaphore: "pool", Key: "eu"}
	waits := waitsLock("next", 1, 0, "pool/eu", eu)
	sem := semaphore("pool", 4, func(s *v1alpha1.Semaphore) {
		s.Status = &v1alpha1.SemaphoreStatus{Busiest: []v1alpha1.KeyStatus{{Key: "eu", Held: 4, Queued: 2, Holder: "team-a/frozen"}}}
	})
	for name, c := range map[string]struct {
		whole      bool
		held, tell string
	}{
		"of no status": {true, "4 of 4 (4 by Semaphore)", "4 permits are held of which no status of a run under way tells, by team-a/frozen for the longest"},
		"hidden":       {false, "4 of 4 (4 by Semaphore)", "runs that are not seen hold 4 permits more, and 1 more wait"},
	} {
		all := Locks(LockSight{Runs: []v1alpha1.WorkflowRun{waits}, Semaphores: []v1alpha1.Semaphore{sem}, Whole: c.whole, Now: lockNow})
		if text := lockText(t, all, 10); !strings.Contains(text, c.held) {
			t.Errorf("%s: the table does not say %q:\n%s", name, c.held, text)
		}
		a := Why(&waits, nil, lockNow)
		a.WaitsFor(all)
		var b strings.Builder
		if err := a.Text(&b, lockNow, false); err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(strings.Fields(b.String()), " "); !strings.Contains(text, "lock pool/eu "+c.tell) {
			t.Errorf("%s: why does not say %q:\n%s", name, c.tell, b.String())
		}
	}
}
