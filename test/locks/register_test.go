// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// object is what a run's status holds about its lock, and the resourceVersion.
type object struct {
	Fence   int64
	LeaseID string
	Version int64
}

// write asks for a status write.
type write struct {
	Run     string
	LeaseID string
	Fence   int64
	Version int64 // the resourceVersion that the writer has seen
	Child   string
	// Asked is what the writer had read when it asked for the lock, for the history.
	Asked object
}

// verdict is what became of a write.
type verdict string

// The verdicts.
const (
	accepted   verdict = "accepted"
	stale      verdict = "stale resourceVersion"
	lowerFence verdict = "lower fence"
	otherLease verdict = "fence of another lease"
)

// byFence says that a write was refused for its fence, which trying again cannot change.
func (v verdict) byFence() bool { return v == lowerFence || v == otherLease }

// attempt is a write in the history.
type attempt struct {
	write
	Verdict verdict
	Before  object // what the register held
}

// register stands for the API server: it holds the status of runs and refuses writes by the rules
// of the CRD, which test/apirules tests on a real one. Order matters little, the API server looks
// at the resourceVersion first.
type register struct {
	mu      sync.Mutex
	objects map[string]object
	history []attempt
}

func newRegister() *register { return &register{objects: map[string]object{}} }

func (r *register) read(_ context.Context, run string) (object, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.objects[run], nil
}

func (r *register) write(_ context.Context, w write) (verdict, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.objects[w.Run]
	v := judge(now, w)
	r.history = append(r.history, attempt{write: w, Verdict: v, Before: now})
	if v == accepted {
		r.objects[w.Run] = object{Fence: w.Fence, LeaseID: w.LeaseID, Version: now.Version + 1}
	}
	return v, nil
}

// judge applies the rules. A fence of 0 is none.
func judge(now object, w write) verdict {
	switch {
	case w.Version != now.Version:
		return stale
	case w.Fence < now.Fence:
		return lowerFence
	case now.Fence != 0 && w.Fence == now.Fence && w.LeaseID != now.LeaseID:
		return otherLease
	default:
		return accepted
	}
}

// attempts is the history up to now.
func (r *register) attempts() []attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]attempt(nil), r.history...)
}

// methods are for children.
func (r *register) methods() methods {
	return methods{"read": does(r.read), "write": does(r.write)}
}

func TestTheRegisterRefusesAsTheAPIServerDoes(t *testing.T) {
	now := object{Fence: 5, LeaseID: "a", Version: 3}
	tests := map[string]struct {
		now  object
		w    write
		want verdict
	}{
		"the first fence of a run":              {object{}, write{Fence: 1, LeaseID: "a"}, accepted},
		"the same lease again":                  {now, write{Fence: 5, LeaseID: "a", Version: 3}, accepted},
		"a higher fence":                        {now, write{Fence: 6, LeaseID: "b", Version: 3}, accepted},
		"a lower fence":                         {now, write{Fence: 4, LeaseID: "b", Version: 3}, lowerFence},
		"no fence any more":                     {now, write{LeaseID: "b", Version: 3}, lowerFence},
		"an equal fence of another lease":       {now, write{Fence: 5, LeaseID: "b", Version: 3}, otherLease},
		"an older resourceVersion":              {now, write{Fence: 6, LeaseID: "b", Version: 2}, stale},
		"an older resourceVersion, lower fence": {now, write{Fence: 4, LeaseID: "b", Version: 2}, stale},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRegister()
			test.w.Run = "r"
			r.objects["r"] = test.now
			got, err := r.write(t.Context(), test.w)
			if err != nil || got != test.want {
				t.Errorf("%s, %v; want %s", got, err, test.want)
			}
			want := test.now
			if got == accepted {
				want = object{Fence: test.w.Fence, LeaseID: test.w.LeaseID, Version: test.now.Version + 1}
			}
			if diff := cmp.Diff(want, r.objects["r"]); diff != "" {
				t.Errorf("the register (-want +got):\n%s", diff)
			}
		})
	}
}
