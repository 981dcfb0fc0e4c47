// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// ErrOtherRedis is why a replica may not use its Redis: the other replicas use another one.
var ErrOtherRedis = errors.New("this Redis is not the one that the other replicas use")

// errNotAgreed is why it may not use it yet.
var errNotAgreed = errors.New("it is not known yet which Redis the other replicas use: this replica has to write its Lease and list theirs, and a Redis without a name has to get one")

// saying is what the Lease of a member says of its Redis.
type saying struct {
	member string
	// name is that of its Redis; empty: it says none.
	name string
	// settled: it uses that one. Else it wants to.
	settled bool
	created time.Time
}

// before is the order in which members that contradict each other give way: the later one does.
func (s saying) before(other saying) bool {
	return cmp.Or(s.created.Compare(other.created), cmp.Compare(s.member, other.member)) < 0
}

// Redis has the replicas of an installation use one Redis. Each Redis has a random name in it, and
// each member says the name on its Lease: first that it wants that one, and, once a list that was
// sent after the write shows nobody who says another name, that it uses it. Of two that want two,
// each of them would see the other. A member whose Redis is another one says nothing and owns
// nothing. Who uses one goes on, whatever those say that want another one. nil has no say.
//
// It is safe for concurrent use.
type Redis struct {
	fresh string // what a Redis without a name is to be called

	mu      sync.Mutex
	lease   rules.Time // of this member
	changed func()     // has the Keeper look here, and write its Lease
	// heard: Redis answered, and is called name; empty: it has no name.
	heard bool
	name  string
	// answered: it was heard since the last look of withdraw. silent is when that found so last.
	answered bool
	silent   rules.Time
	// uses counts how often this member has begun to use a Redis, as after each session that ended.
	uses int64
	// says: own Lease says the name, or is to. written: it did at that time.
	says, written bool
	at            rules.Time
	// settled: this member may own partitions. usable: this Redis may be used. It may also after a
	// session: what needs no partition does not stop while the API server is slow.
	settled, usable bool
	// listed: the others are known. others has those that say something, until their Leases end.
	listed bool
	others map[string]saying
	// last is when the last list was sent, and row when the first of an unbroken row was.
	last, row rules.Time
	// mine is when the last write of own Lease was sent.
	mine rules.Time
	// rival is who says another name; zero: nobody. told: the log said so.
	rival saying
	told  string
}

// NewRedis makes a Redis. fresh is random, and becomes the name of one that has none.
func NewRedis(fresh string) *Redis {
	return &Redis{fresh: fresh, changed: func() {}, others: map[string]saying{}}
}

// Name is how a Redis is to be called that has no name; empty: it is to stay without one. One that
// the members use has lost its data then, and gets its name back from them.
func (r *Redis) Name() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.usable {
		return r.name
	}
	if _, contradicts := r.contradiction(); contradicts || !r.listed {
		return ""
	}
	return cmp.Or(r.name, r.fresh)
}

// Named tells the name that Redis has; empty: none. It says why that one may not be used. use is
// another number each time that this member has begun to use a Redis: others may have used another
// one before that. It is the same for as long as nobody could.
//
// Errors: ErrOtherRedis, and that this is not known yet.
func (r *Redis) Named(name string) (use int64, err error) {
	r.mu.Lock()
	r.answered = true
	changed := !r.heard || name != r.name
	if changed {
		r.heard, r.name = true, name
		r.settled, r.usable, r.written = false, false, false
		_, contradicts := r.contradiction()
		r.says = name != "" && !contradicts
	}
	use, err = r.uses, r.refusal()
	tell := r.changed
	r.mu.Unlock()
	if changed {
		tell()
	}
	return use, err
}

// refusal says why Redis may not be used. Needs mu.
func (r *Redis) refusal() error {
	switch {
	case r.usable:
		return nil
	case r.rival.name != "":
		return fmt.Errorf("%w, as the Lease of %s says: set --redis-addrs as they have it, or, to change to another Redis, scale the operator to 0 first "+
			"(docs/install.md, Another Redis)", ErrOtherRedis, r.rival.member)
	}
	return errNotAgreed
}

// contradiction is who says another name than this Redis has: rather one who uses it than one who
// wants to, rather an earlier one than a later. Needs mu.
func (r *Redis) contradiction() (worst saying, found bool) {
	for _, s := range r.others {
		switch {
		case s.name == r.name:
		case !found, s.settled && !worst.settled, s.settled == worst.settled && s.before(worst):
			worst, found = s, true
		}
	}
	return worst, found
}

// blocks says whether this member may own nothing because of Redis. asked: Redis was asked. One
// that does not answer at all blocks nobody: nothing in it is used then.
func (r *Redis) blocks(asked bool) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.settled && (r.heard || !asked)
}

// follow has changes told. lease is how long the Lease of this member counts.
func (r *Redis) follow(lease rules.Time, changed func()) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lease, r.changed = lease, changed
}

// saying is what own Lease is to say.
func (r *Redis) saying() (s saying) {
	if r == nil {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.says {
		s.name, s.settled = r.name, r.settled
	}
	return s
}

// wrote notes what own Lease says by now. It returns true if the others are to be listed then.
func (r *Redis) wrote(said saying, now rules.Time) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.says || r.written || said.name != r.name {
		return false
	}
	r.written, r.at = true, now
	return true
}

// renewed notes that own Lease was written, and when that was sent. After a gap the row of lists
// begins anew, also where no list was sent in it.
func (r *Redis) renewed(sent rules.Time) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if sent-r.mine >= r.lease/2 {
		r.row = sent
	}
	r.mine = sent
}

// wantsList says whether a list would settle something: none was sent since own Lease says it.
func (r *Redis) wantsList(last rules.Time) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.written && !r.settled && last < r.at
}

// lapsed notes that the session of this member has ended: others may use another Redis since.
func (r *Redis) lapsed() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled, r.written = false, false
}

// withdraw has this member say nothing of a Redis that has not answered for so long: it may be gone
// for good, and who has another one would wait for ever. If it answers again, the others are asked
// first, as at the start. It is called again and again. fails: this member cannot work; else
// nothing follows, as one that others count on may not stop for a Redis that is slow to answer. It
// returns whether own Lease is to be written.
func (r *Redis) withdraw(now, long rules.Time, fails bool) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered {
		r.answered, r.silent = false, now
	}
	if !fails || !r.heard || now-r.silent < long {
		return false
	}
	r.heard, r.says, r.written, r.settled, r.usable = false, false, false, false, false
	return true
}

// heardOf notes what the others say, as a list has it that was sent then. Of a member whose Lease
// is not there what it said counts until it is gone. That is believed only after an unbroken row of
// lists for as long as the longest Lease: in an outage of the API server nobody could renew,
// and who lists first after it must not take the others for gone. Who could not write its own Lease
// meanwhile knows nothing of whether they could write theirs. It returns whether own Lease is to be
// written.
func (r *Redis) heardOf(sent, longest rules.Time, self string, all []saying, gone func(string) bool) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.listed || sent-r.last >= r.lease/2 || sent-r.mine >= r.lease/2 {
		r.row = sent
	}
	r.listed, r.last = true, sent
	own := saying{member: self, created: time.Unix(1<<40, 0)} // not in the list: the last of all
	for _, s := range all {
		if s.member == self {
			own.created = s.created
			continue
		}
		r.others[s.member] = s
	}
	proven := sent-r.row >= longest
	maps.DeleteFunc(r.others, func(member string, s saying) bool { return s.name == "" || proven && gone(member) })
	says, settled := r.says, r.settled
	r.decide(sent, own)
	return says != r.says || settled != r.settled
}

// decide is what follows from a list. Needs mu.
func (r *Redis) decide(sent rules.Time, own saying) {
	other, contradicts := r.contradiction()
	first := contradicts && !other.before(own)
	if r.rival = (saying{}); r.goesOn(other, first) {
		return
	}
	r.rival = other
	switch {
	case r.givesWay(other, contradicts, first):
		r.says, r.written, r.settled, r.usable = false, false, false, false
	case contradicts: // that one gives way
	case !r.says:
		r.says = true
	case r.written && sent >= r.at:
		r.settled, r.usable = true, true
		r.uses++
	}
}

// goesOn says whether nothing follows from what another one says. Where two use two, somebody has
// edited a Lease, and the first goes on. Needs mu.
func (r *Redis) goesOn(other saying, first bool) bool {
	return !r.heard || r.settled && (!other.settled || first)
}

// givesWay says whether this member says nothing as long as another one contradicts. Needs mu.
func (r *Redis) givesWay(other saying, contradicts, first bool) bool {
	return r.name == "" || contradicts && (other.settled || !r.says || !first)
}

// newRival is a member that says another name, once until it is another one; empty: there is none.
func (r *Redis) newRival() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	is := r.rival.member
	if is == r.told {
		return ""
	}
	r.told = is
	return is
}
