// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// grace is for how long the gate of a LockPolicy that was deleted stays closed. One that is
// replaced, as by kubectl replace --force, is deleted and made anew: without its limit the whole
// queue would be let in meanwhile.
//
// silence is for how much of that nothing is said: what replaces a policy takes seconds, and to say
// that the whole queue waits, and then that it waits as before, costs two writes of each run.
const (
	grace   = 30 * time.Second
	silence = 8 * time.Second
)

// Policies knows which LockPolicies were deleted a moment ago: by those that passes have seen, as
// an event may come later than a pass, and by events, as it may be long since the last pass. Safe
// for concurrent use.
type Policies struct {
	mu    sync.Mutex
	last  []v1alpha1.LockPolicy // there were when a pass looked last
	there map[string]bool       // their names
	seen  uint64                // their mark; 0: of none
	gone  map[string]Deleted    // by name
}

// Deleted is a policy that was deleted a moment ago.
type Deleted struct {
	policy v1alpha1.LockPolicy
	since  time.Time // when a pass saw it first, or an event told
}

// See notes the policies that there are, and says which one would govern a class if it had not been
// deleted a moment ago; nil: none. policies are kept, and not changed. Each pass asks, and all of
// them in turn, so what depends on all policies is done only where they are others.
func (s *Policies) See(class string, policies []v1alpha1.LockPolicy, now time.Time) *Deleted {
	mark := markOf(policies)
	s.mu.Lock()
	defer s.mu.Unlock()
	if mark != s.seen {
		s.note(policies, now)
		s.seen = mark
	}
	maps.DeleteFunc(s.gone, func(name string, d Deleted) bool {
		been := now.Sub(d.since)
		return s.there[name] || been >= grace || been <= -grace // the clock may be set back
	})
	if len(s.gone) == 0 {
		return nil
	}
	var gone []v1alpha1.LockPolicy
	for _, d := range s.gone {
		gone = append(gone, d.policy)
	}
	p := policy.Missing(class, policies, gone)
	if p == nil {
		return nil
	}
	d := s.gone[p.Name]
	return &d
}

// seed is that of the marks of this process.
var seed = maphash.MakeSeed()

// markOf tells policies apart, and their versions. The cache lists them in another order each time.
func markOf(policies []v1alpha1.LockPolicy) uint64 {
	mark := uint64(1)
	for i := range policies {
		p := &policies[i]
		mark += maphash.Comparable(seed, [3]string{p.Name, string(p.UID), p.ResourceVersion})
	}
	return mark
}

// note notes the policies that there are now, and buries those that are gone. The caller has the
// mutex.
func (s *Policies) note(policies []v1alpha1.LockPolicy, now time.Time) {
	s.there = make(map[string]bool, len(policies))
	for i := range policies {
		s.there[policies[i].Name] = true
	}
	for i := range s.last {
		if p := s.last[i]; !s.there[p.Name] {
			s.bury(Deleted{policy: p, since: now})
		}
	}
	s.last = policies
}

// Drop notes that a policy was deleted, as an event tells: the first pass in hours would take it
// for a deletion of its own moment. p is kept, and not changed.
func (s *Policies) Drop(p *v1alpha1.LockPolicy, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = slices.DeleteFunc(slices.Clone(s.last), func(q v1alpha1.LockPolicy) bool { return q.UID == p.UID })
	s.seen = 0 // a pass that had its list before notes it again
	if d, ok := s.gone[p.Name]; ok && d.policy.UID == p.UID {
		return // a pass was sooner
	}
	s.bury(Deleted{policy: *p, since: now})
}

// bury notes that a policy is gone. The caller has the mutex.
func (s *Policies) bury(d Deleted) {
	if s.gone == nil {
		s.gone = map[string]Deleted{}
	}
	s.gone[d.policy.Name] = d
}

// Closes says whether runs of a tenant have to wait whether the policy comes back. Where it had no
// limit for them they need not.
func (d *Deleted) Closes(tenant string) bool {
	return d != nil && policy.Of(&d.policy).Admission.Limit(tenant) != policy.NoLimit
}

// Answer is what a run is told that has to wait, and when to look again.
func (d *Deleted) Answer(now time.Time) (a Answer, again time.Time) {
	if said := d.since.Add(silence); now.Before(said) {
		return Answer{Gate: lifecycle.Gate{State: lifecycle.GateAsked}, Until: said}, said
	}
	until := d.since.Add(grace)
	return Answer{Gate: lifecycle.Gate{State: lifecycle.GateNoPolicy, Cause: d.policy.Name, Until: until}}, until
}
