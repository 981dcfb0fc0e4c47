// SPDX-License-Identifier: Apache-2.0

package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OnBusy says what becomes of who asks for a lock that has no room.
type OnBusy string

// Kinds of OnBusy.
const (
	Queue        OnBusy = "Queue"
	DropNewest   OnBusy = "DropNewest"
	KeepLatest   OnBusy = "KeepLatest"
	CancelOldest OnBusy = "CancelOldest"
)

// Want is one lock that a ticket wants, as its semaphore says now.
type Want struct {
	// Name is that of the lock. Those of one ticket differ.
	Name string
	// Permits is how many it wants, from 1; Limit is how many there are.
	Permits, Limit int
	// Ordered: nobody may overtake in its queue.
	Ordered bool
	// OnBusy is what becomes of the ticket if there is no room; "" is Queue.
	OnBusy OnBusy
	// Longest is how many may wait for the lock.
	Longest int
	// Rate bounds how many holds may begin in a period; nil: nothing does.
	Rate *Rate
}

// Rate bounds how many holds of a lock begin in any period of its length. After Redis has lost its
// data it is not known what began before: nobody begins for one period then, unless Since is later.
type Rate struct {
	// Starts is how many may begin in a Period.
	Starts int
	Period time.Duration
	// Since is when the lock began to be: no hold of it is older.
	Since time.Time
}

// Ticket is who takes locks together: a run, or one of its steps.
type Ticket struct {
	// ID is the ticket's: the UID of the run or, of a step, "<uid>/<step>".
	ID string
	// Run is the namespace/name of the run, and Tree that of the run at the top of its tree.
	Run, Tree string
	// Version is the resourceVersion at which the run was read: what the ticket gets can be written
	// with that one only.
	Version string
	// Priority and Created order those who wait: the highest, then the oldest first; then by the
	// version of the first question.
	Priority int32
	Created  time.Time
	// Came is when the ticket came: of those who wait for KeepLatest, or CancelOldest, the last one
	// stays. Its seconds count; it is never before Created. Like Created, it is that of the first
	// question. Zero: Created.
	Came time.Time
}

// Arrival is when a ticket came: Came, or else Created.
func (t Ticket) Arrival() time.Time {
	if t.Came.After(t.Created) {
		return t.Came
	}
	return t.Created
}

// Hold is what a ticket has of one lock.
type Hold struct {
	Name    string
	Permits int
}

// Holding is a ticket with its locks.
type Holding struct {
	// Ticket that holds them. Its Priority, Created and Came are not known.
	Ticket Ticket
	// Fence of the hold: greater than that of every earlier hold of the same lock.
	Fence int64
	// Locks that it has.
	Locks []Hold
}

// Waiter is a ticket that waits, or that was refused while it did.
type Waiter struct {
	// Ticket that waits, without its Version.
	Ticket Ticket
	// Wants are the locks; without OnBusy, Longest and Rate.
	Wants []Want
	// Refused is why it was refused; "": it waits.
	Refused string

	order string
	place string // all that Redis has of the wait
}

// States of LocksAnswer that are no refusal. A refusal is a reason of v1alpha1.
const (
	LocksHeld    = "held"
	LocksWaiting = "waiting"
)

// Refusals.
const (
	LocksBusy       = "LockBusy"
	LocksQueueFull  = "LockQueueFull"
	LocksSuperseded = "Superseded"
	LocksDeadlock   = "LockDeadlock"
)

// Wake is a ticket that may be able to take its locks now, or that was refused, or whose hold is to
// end, and its run.
type Wake struct{ Ticket, Run string }

// Cancel is a ticket whose run is to be cancelled, and the lock that it has to give up for that.
type Cancel struct {
	Wake
	Lock string
}

// locksOther is what the script says, instead of a state, for errOther.
const locksOther = "other"

var errOther = errors.New("other locks were granted just before, and may still be written into the run's status")

// LocksAnswer says what became of a question for locks, and how things stand.
type LocksAnswer struct {
	// State is LocksHeld, LocksWaiting or why it is refused.
	State string
	// Fence of the hold.
	Fence int64
	// Lock that it waits for, or was refused by, and how many permits of it are held.
	Lock string
	Used int
	// Position in the queue of that lock, from 1, of so many that wait, and the run just ahead.
	Position, Waiting int
	Ahead             string
	// Holders are runs that hold the lock, three at most.
	Holders []string
	// Cancel is whose runs are to be cancelled, for CancelOldest, each run once: a cancel ends
	// all its parts.
	Cancel []Cancel
	// Wake is whom to wake.
	Wake []Wake
	// Rest is how long the rate of Lock makes the first in line wait: it asks again then. 0: it is
	// woken.
	Rest time.Duration
}

// maxStarts bounds a rate: the script reads each start of a period.
const maxStarts = 1000

// locksKey stands for locks in errors: they are of no tenant and no policy.
var locksKey = Key{Policy: "", Tenant: "locks"}

// lockKeys are the Redis keys of locks, in the order of locks.lua, in one slot of a Redis Cluster.
func (g *Store) lockKeys() []string {
	base := "{" + g.opts.KeyPrefix + "adm-locks}:"
	return []string{base + "holds", base + "queue", base + "places", base + "holders"}
}

// TakeLocks takes all locks of a ticket, or none. It is idempotent by the ticket's ID, and must be
// asked again right before each try to write the holds, with the version that was read.
//
// A ticket that asks for other locks than before gives up what it had, or waited for. But a grant
// may be written until the run has a newer version than that of the grant. Until then the answer
// is an *UnavailableError.
//
// Errors: *UnavailableError, *RebuildingError, ErrInvalidRequest. After an error the ticket may
// have its locks; they must not be used.
func (g *Store) TakeLocks(ctx context.Context, t Ticket, wants []Want) (LocksAnswer, error) {
	version, err := paddedVersion(t.Version)
	if err = errors.Join(err, t.check(), checkWants(wants)); err != nil {
		return LocksAnswer{}, err
	}
	args := []any{t.ID, t.Run, t.Tree, version, order(t, version)}
	sorted := slices.SortedFunc(slices.Values(wants), func(a, b Want) int { return cmp.Compare(a.Name, b.Name) })
	for _, w := range sorted {
		args = append(args, w.Permits, w.Limit, w.how(), string(cmp.Or(w.OnBusy, Queue)), w.Longest, w.Name)
	}
	got, err := g.ask(ctx, g.scripts.locksTake, locksKey, g.lockKeys(), args...)
	if err != nil {
		return LocksAnswer{}, err
	}
	g.learn(g.lockKeys()[0], got)
	if got.text(1) == locksOther {
		return LocksAnswer{}, g.unavailable(locksKey, errOther)
	}
	return LocksAnswer{
		State: got.text(1), Fence: int64(got.number(2)), Lock: got.text(3), Used: got.number(4), Position: got.number(5), Waiting: got.number(6),
		Ahead: got.text(7), Holders: got.list(8).texts(0), Cancel: cancelsOf(got.list(9)), Wake: wakesOf(got.list(10)),
		Rest: time.Duration(got.number(11)) * time.Millisecond,
	}, nil
}

// RefuseLocks ends a wait, if it is still as it was in a snapshot: the ticket is answered so each
// time it asks, until it is dropped. Whoever was granted its locks meanwhile, or waits for others,
// is not refused.
//
// Errors: as TakeLocks.
func (g *Store) RefuseLocks(ctx context.Context, w Waiter, why string) (refused bool, err error) {
	if !word(w.Ticket.ID) || !word(why) {
		return false, fmt.Errorf("%w: refusal of %.100q", ErrInvalidRequest, w.Ticket.ID)
	}
	got, err := g.ask(ctx, g.scripts.locksRefuse, locksKey, g.lockKeys(), w.Ticket.ID, why, w.place)
	if err != nil {
		return false, err
	}
	g.learn(g.lockKeys()[0], got)
	return got.number(1) == 1, nil
}

// BeginLocks begins to rebuild locks that are closed, as BeginRebuild does for slots.
//
// Errors: as TakeLocks.
func (g *Store) BeginLocks(ctx context.Context) (token string, err error) {
	return g.begin(ctx, locksKey, g.lockKeys())
}

// RestoreLocks enters what runs hold by their status. With a token it opens the locks again, when
// all are entered. fence is one that all later fences must exceed. It asks in portions, since all
// of Redis waits for a script.
//
// Errors: ErrRebuildLost, and as TakeLocks. After an error some may have been entered.
func (g *Store) RestoreLocks(ctx context.Context, token string, fence int64, all []Holding) (added int, err error) {
	texts := make([][]any, len(all))
	for i, h := range all {
		text, err := h.text()
		if err != nil {
			return 0, err
		}
		texts[i] = []any{h.Ticket.ID, text}
	}
	err = inPortions(texts, func(some [][]any, last bool) error {
		args := append([]any{token, strconv.FormatInt(fence, 10), moreComes(last)}, slices.Concat(some...)...)
		for { // until what the closed data holds is counted: a portion in each call
			got, err := g.ask(ctx, g.scripts.locksRestore, locksKey, g.lockKeys(), args...)
			if err != nil {
				return err
			}
			g.learn(g.lockKeys()[0], got)
			if added += got.number(1); got.number(2) == 1 {
				return nil
			}
		}
	})
	if errors.Is(err, errLost) {
		err = fmt.Errorf("%w (%s)", ErrRebuildLost, locksKey)
	}
	return added, err
}

func wakesOf(r reply) []Wake {
	var all []Wake
	for ; len(r) > 1; r = r[2:] {
		all = append(all, Wake{Ticket: r.text(0), Run: r.text(1)})
	}
	return all
}

func cancelsOf(r reply) []Cancel {
	var all []Cancel
	for ; len(r) > 2; r = r[3:] {
		all = append(all, Cancel{Wake: Wake{Ticket: r.text(0), Run: r.text(1)}, Lock: r.text(2)})
	}
	return all
}

func (t Ticket) check() error {
	if !word(t.ID) || !word(t.Run) || !word(t.Tree) {
		return fmt.Errorf("%w: ticket %.100q of run %.100q", ErrInvalidRequest, t.ID, t.Run)
	}
	return nil
}

func checkWants(wants []Want) error {
	seen := map[string]bool{}
	for _, w := range wants {
		if !word(w.Name) || seen[w.Name] || w.Permits < 1 {
			return fmt.Errorf("%w: %d permits of lock %.100q", ErrInvalidRequest, w.Permits, w.Name)
		}
		if !w.Rate.sound() {
			return fmt.Errorf("%w: rate of lock %.100q", ErrInvalidRequest, w.Name)
		}
		seen[w.Name] = true
	}
	if len(wants) == 0 {
		return fmt.Errorf("%w: no locks", ErrInvalidRequest)
	}
	return nil
}

// sound says whether a script can keep to a rate.
func (r *Rate) sound() bool {
	return r == nil || r.Starts >= 1 && r.Starts <= maxStarts && r.Period >= time.Millisecond && r.Since.UnixMilli() >= 0
}

// word says whether a text is one word in the records of the scripts.
func word(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f })
}
