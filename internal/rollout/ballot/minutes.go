// SPDX-License-Identifier: Apache-2.0

package ballot

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/syncopate-dev/syncopate/internal/rollout"
)

// maxMinutes bounds the tenant-minutes that a process looks at; others have no vote
// of this process.
const maxMinutes = 4096

// noLatency is that of what has no results.
const noLatency = -1

// Minute is a tenant in a period, in the rollout of a candidate.
type Minute struct {
	Entry

	Tenant string
	Period int64
}

// minute is what this process saw of one.
type minute struct {
	arm    rollout.Arm
	asking int  // starts under way
	asked  bool // whose the vote is
	ours   bool // the vote is this process's
	vote   Vote
	rank   uint64 // of the start whose vote it is
}

// Enter counts a start that begins to ask for its slot in a minute, which is in an arm. It says
// whether the vote of the minute is to be claimed: then Claimed follows, and in any case Leave.
func (b *Box) Enter(m Minute, arm rollout.Arm, now time.Time) (claim bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.minutes[m]
	if at == nil {
		if len(b.minutes) >= maxMinutes {
			b.close(now)
		}
		if len(b.minutes) >= maxMinutes {
			return false
		}
		at = &minute{arm: arm}
		b.minutes[m] = at
	}
	at.asking++
	claim, at.asked = !at.asked, true
	return claim
}

// Claimed says whether this process has the vote of a minute. It is said once; without it the
// process has it not.
func (b *Box) Claimed(m Minute, ours bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.minutes[m]; at != nil {
		at.ours = ours
	}
}

// Leave counts the vote of a start that entered, by the UID of its run, when its lock was taken or
// given up. Of the starts that found the lock busy one is drawn, by a hash: the first one would say
// little of a burst, and whether any was busy again hardly anything.
func (b *Box) Leave(m Minute, uid string, v Vote) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at := b.minutes[m]
	if at == nil {
		return
	}
	at.asking--
	sum := sha256.Sum256([]byte(m.Tenant + "/" + uid))
	switch rank := binary.BigEndian.Uint64(sum[:8]); {
	case v.BusyTries == 0:
	case at.vote.BusyTries == 0, rank < at.rank:
		at.vote, at.rank = v, rank
	case rank == at.rank: // the same run came again
		at.vote.BusyTries, at.vote.Wait = max(at.vote.BusyTries, v.BusyTries), max(at.vote.Wait, v.Wait)
	}
}

// Close counts the votes of minutes that are over and in which no start is under way.
func (b *Box) Close(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.close(now)
}

// close needs mu.
func (b *Box) close(now time.Time) {
	for m, at := range b.minutes {
		if at.asking > 0 || rollout.PeriodOf(now) <= m.Period {
			continue
		}
		delete(b.minutes, m)
		if !at.ours {
			continue
		}
		b.began(m.Entry, at.arm)
		if at.arm != rollout.Rest {
			at.vote.Latency = noLatency
			b.ended(m.Entry, at.arm, at.vote)
		}
	}
}
