// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ResultPatience is how long a result of a run that has ended may wait to be taken: behind a
// backlog it does.
const ResultPatience = 10 * time.Minute

// Finding is one difference between the stores.
type Finding struct {
	Kind Kind `json:"kind"`
	// What tells findings of a kind apart: two looks that find the same thing have it in common.
	What string `json:"what"`
	// Run is namespace/name; empty where there is no such run any more.
	Run     string `json:"run,omitempty"`
	UID     string `json:"uid"`
	Message string `json:"message"`

	// At is where it was found, for whoever mends it.
	At At `json:"at"`
}

// At is the place of a finding in its store. Only what its kind needs is set.
type At struct {
	Quota
	Key    string `json:"-"` // a user's text
	Ticket string `json:"ticket,omitempty"`
	Token  string `json:"-"` // who has it could renew the lock
	Topic  string `json:"topic,omitempty"`
	Job    string `json:"job,omitempty"`
	Output string `json:"output,omitempty"`
}

// Compare finds the differences of one look. Some never were: see Confirm.
func Compare(s Snapshot) []Finding {
	if !s.read(Runs) {
		return nil
	}
	var all []Finding
	for part, compare := range map[Part]func(*Snapshot) []Finding{
		Slots: slots, Locks: holds, RunLocks: runLocks, Jobs: jobs, Results: results, Outputs: outputs,
	} {
		if s.read(part) {
			all = append(all, compare(&s)...)
		}
	}
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)), strings.Compare(a.Run, b.Run), strings.Compare(a.What, b.What))
	})
	return all
}

// Confirm is which findings of a look were there in an earlier look, too.
func Confirm(before, now []Finding) []Finding {
	type same struct {
		kind Kind
		what string
	}
	seen := make(map[same]bool, len(before))
	for _, f := range before {
		seen[same{f.Kind, f.What}] = true
	}
	var both []Finding
	for _, f := range now {
		if seen[same{f.Kind, f.What}] {
			both = append(both, f)
		}
	}
	return both
}

func (s *Snapshot) find(k Kind, uid, what string, at At, format string, values ...any) Finding {
	return Finding{Kind: k, What: what, Run: s.Runs[uid].Name, UID: uid, At: at, Message: fmt.Sprintf(format, values...)}
}

// over says that nothing of a run is needed any more: it is gone, or it has ended.
func (s *Snapshot) over(uid string) bool {
	run, known := s.Runs[uid]
	return !known || run.Ended
}

func (s *Snapshot) why(uid string) string {
	if run, known := s.Runs[uid]; known {
		return "run " + run.Name + " has ended"
	}
	return "there is no run " + uid
}

func slots(s *Snapshot) []Finding {
	all := s.slotsLeft(SlotLeft, "a slot", s.Slots)
	all = append(all, s.slotsLeft(PlaceLeft, "a place in the queue", s.Places)...)
	has := map[Slot]bool{}
	for _, slot := range s.Slots {
		has[slot] = true
	}
	for uid, run := range s.Runs {
		if q := run.Quota; q != nil && !s.Closed[*q] && !has[Slot{*q, uid}] {
			all = append(all, s.find(SlotMissing, uid, uid, At{Quota: *q}, "the run is under way, and has no slot of tenant %s under policy %s", q.Tenant, q.Policy))
		}
	}
	return append(all, claims(s)...)
}

func (s *Snapshot) slotsLeft(k Kind, name string, list []Slot) (all []Finding) {
	for _, slot := range list {
		if s.over(slot.UID) {
			all = append(all, s.find(k, slot.UID, slot.Policy+"/"+slot.Tenant+"/"+slot.UID, At{Quota: slot.Quota},
				"%s of tenant %s under policy %s is taken, and %s", name, slot.Tenant, slot.Policy, s.why(slot.UID)))
		}
	}
	return all
}

func claims(s *Snapshot) (all []Finding) {
	for _, c := range s.Keys {
		run, known := s.Runs[c.UID]
		if !known || run.Refused {
			all = append(all, s.find(KeyLeft, c.UID, c.Tenant+"/"+c.UID, At{Quota: Quota{Tenant: c.Tenant}, Key: c.Key},
				"an idempotency key of tenant %s is owned by a run that is gone, or was refused for it", c.Tenant))
		}
	}
	return all
}

func holds(s *Snapshot) (all []Finding) {
	has := map[string]bool{}
	for _, h := range s.Holds {
		has[h.Ticket] = true
		if s.released(h) {
			all = append(all, s.find(HoldLeft, h.UID, h.Ticket, At{Ticket: h.Ticket}, "locks are held by %s, which does not need them any more", h.Ticket))
		}
	}
	for _, w := range s.Waiters {
		if s.over(w.UID) {
			all = append(all, s.find(WaiterLeft, w.UID, w.Ticket, At{Ticket: w.Ticket}, "%s waits for locks, and %s", w.Ticket, s.why(w.UID)))
		}
	}
	for uid, run := range s.Runs {
		for name, t := range run.Tickets {
			if t.Fence > 0 && !t.Over && !has[name] {
				all = append(all, s.find(HoldMissing, uid, fmt.Sprint(name, " ", t.Fence), At{Ticket: name}, "%s holds locks by its status, and Redis has no such hold", name))
			}
		}
	}
	return all
}

// released says that who holds locks never needs them again.
func (s *Snapshot) released(h Hold) bool {
	run := s.Runs[h.UID]
	ticket, declared := run.Tickets[h.Ticket]
	return ticket.Over && !s.underWay(ticket.Children) || !declared && !run.Newer
}

// underWay says whether any of these runs, or one below them, has not ended.
func (s *Snapshot) underWay(uids []string) bool {
	seen := map[string]bool{} // what a status says need not be a tree
	for next := uids; len(next) > 0; next = next[1:] {
		run, known := s.Runs[next[0]]
		if !known || seen[next[0]] {
			continue
		}
		if !run.Ended {
			return true
		}
		seen[next[0]] = true
		next = slices.Concat(next, run.Children)
	}
	return false
}

func runLocks(s *Snapshot) (all []Finding) {
	for _, l := range s.RunLocks {
		if l.Token == "" {
			continue // nobody has it
		}
		if kind, message := s.judge(l); kind != "" {
			all = append(all, s.find(kind, l.UID, l.UID+" "+digest(l.Token), At{Token: l.Token}, "%s", message))
		}
	}
	return all
}

// digest tells tokens apart, and shows none.
func digest(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:4])
}

func (s *Snapshot) judge(l RunLock) (Kind, string) {
	run := s.Runs[l.UID]
	switch {
	case l.Left < 0:
		return RunLockLeft, "the run lock has no end: nobody can take it when its holder is gone"
	case s.over(l.UID):
		return RunLockLeft, fmt.Sprintf("a run lock is held for another %s, and %s", l.Left.Round(time.Second), s.why(l.UID))
	case l.Fence > 0 && l.Fence < run.Fence: // Redis forgets the fence of a lock that is held for very long
		return RunLockStale, fmt.Sprintf("the run lock has fence %d, and the run was written with %d", l.Fence, run.Fence)
	}
	return "", ""
}

func jobs(s *Snapshot) (all []Finding) {
	for _, j := range s.Jobs {
		if s.over(j.UID) || s.Runs[j.UID].Over[j.ID] {
			all = append(all, s.find(JobLeft, j.UID, j.ID, At{Job: j.ID, Topic: j.Topic}, "a job of topic %s is queued, and its result is not wanted any more", j.Topic))
		}
	}
	if s.read(Results) {
		all = append(all, s.jobsMissing()...)
	}
	return all
}

func (s *Snapshot) jobsMissing() (all []Finding) {
	there := map[string]bool{}
	for _, j := range s.Jobs {
		there[j.ID] = true
	}
	for _, r := range s.Results {
		there[r.ID] = true
	}
	for uid, run := range s.Runs {
		for _, id := range run.Unanswered {
			if !there[id] {
				all = append(all, s.find(JobMissing, uid, id, At{Job: id}, "an attempt is with workers by the run's status, and NATS has neither its job nor a result"))
			}
		}
	}
	return all
}

func results(s *Snapshot) (all []Finding) {
	for _, r := range s.Results {
		if s.over(r.UID) && !r.Stored.IsZero() && s.At.Sub(r.Stored) > ResultPatience {
			all = append(all, s.find(ResultLeft, r.UID, r.ID, At{Job: r.ID}, "a result waits since %s, and %s", r.Stored.UTC().Format(time.RFC3339), s.why(r.UID)))
		}
	}
	return all
}

func outputs(s *Snapshot) (all []Finding) {
	there := map[string]bool{}
	for _, o := range s.Outputs {
		there[o.Name] = true
		if _, known := s.Runs[o.UID]; !known {
			all = append(all, s.find(OutputLeft, o.UID, o.Name, At{Output: o.Name}, "an output is stored, and there is no run %s", o.UID))
		}
	}
	for uid, run := range s.Runs {
		for _, name := range run.Outputs {
			if !there[name] {
				all = append(all, s.find(OutputMissing, uid, name, At{Output: name}, "an output of the run is not in the object store"))
			}
		}
	}
	return all
}
