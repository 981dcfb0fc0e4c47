// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"
	"time"
)

// apartWarning is more than NTP leaves; with apartFailed, time-outs in status and Leases that one
// replica writes and another reads are plainly wrong.
const (
	apartWarning = 2 * time.Second
	apartFailed  = 10 * time.Second
)

// named is a clock with its owner.
type named struct {
	who string
	Clock
}

func judgeClocks(f Facts) []Finding {
	const hint = "run NTP on all machines. Time-outs, schedules, Leases and certificates are judged by clocks; locks are not"
	all := []named{{who: "this machine"}, {"API server", f.Server.Clock.or(f.Server.Unread)}, {"NATS", f.NATS.Clock.or(f.NATS.Unread)}, {"Redis", f.Redis.Clock.or(f.Redis.Unread)}}
	var read []named
	var unread []string
	for _, c := range all {
		if c.Why != "" {
			unread = append(unread, c.who)
			continue
		}
		read = append(read, c)
	}
	apart, which := widest(read)
	switch {
	case apart > apartFailed:
		return []Finding{ClocksApart.find(Failed, hint, "%s", which)}
	case apart > apartWarning:
		return []Finding{ClocksApart.find(Warning, hint, "%s", which)}
	case len(read) < 2:
		return ClocksApart.unread(Unread{Why: "no server said what time it is"})
	case len(unread) > 0:
		return ClocksApart.ok("%d clocks agree; not read: %s", len(read), strings.Join(unread, ", "))
	}
	return ClocksApart.ok("%d clocks agree", len(read))
}

// or is the clock, unread where its server is.
func (c Clock) or(u Unread) Clock {
	if u.Why != "" {
		c.Unread = u
	}
	return c
}

// widest is how far two clocks are apart for certain, of the two that are most.
func widest(all []named) (apart time.Duration, which string) {
	for i, a := range all {
		for _, b := range all[i+1:] {
			ahead, behind := a, b
			if b.Offset > a.Offset {
				ahead, behind = b, a
			}
			if d := ahead.Offset - behind.Offset - a.Error - b.Error; d > apart {
				apart, which = d, fmt.Sprintf("the clock of %s is %s or more ahead of that of %s", ahead.who, d.Round(100*time.Millisecond), behind.who)
			}
		}
	}
	return apart, which
}
