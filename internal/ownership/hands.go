// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// order is one call of Handler.
type order struct {
	gain       bool
	partitions []int
	since      rules.Time
}

// hands call Handler in the order of events. They do not wait for a Lose: it is about partitions
// that no other call is about before it has ended their work.
type hands struct {
	handler Handler
	more    chan struct{}

	mu     sync.Mutex
	orders []order
	losing int // calls of Lose under way
	idle   bool
}

func (h *hands) add(gain, lose []int, now rules.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(lose) > 0 {
		h.orders = append(h.orders, order{partitions: lose, since: now})
	}
	if len(gain) > 0 {
		h.orders = append(h.orders, order{gain: true, partitions: gain, since: now})
	}
	nudge(h.more)
}

func (h *hands) next() (order, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle = len(h.orders) == 0; h.idle {
		return order{}, false
	}
	first := h.orders[0]
	h.orders = h.orders[1:]
	if !first.gain {
		h.losing++
	}
	return first, true
}

// lost notes that a call of Lose has returned.
func (h *hands) lost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.losing--
}

func (h *hands) isIdle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.idle && len(h.orders) == 0 && h.losing == 0
}

// work carries out orders until ctx ends.
func (k *Keeper) work(ctx context.Context) {
	var losing sync.WaitGroup
	defer losing.Wait()
	for {
		o, ok := k.hands.next()
		switch {
		case ok && o.gain:
			k.gain(ctx, o.partitions)
		case ok:
			losing.Go(func() {
				defer k.hands.lost()
				k.lose(ctx, o)
			})
		default:
			select {
			case <-ctx.Done():
				return
			case <-k.hands.more:
			}
		}
	}
}

// lose ends the work of partitions. Whoever is still at it after that may act no more. Each is
// noted once: after that it may be this member's again.
func (k *Keeper) lose(ctx context.Context, o order) {
	bounded, cancel := context.WithTimeout(ctx, k.timing.Drain)
	defer cancel()
	news, left := make(chan []int, len(o.partitions)), make(chan map[int]bool, 1)
	go func() {
		left <- gather(k.opts.Clock, news, o.partitions, func(ended []int) { k.lost(ended, o.since) })
	}()
	k.hands.handler.Lose(bounded, o.partitions, func(ended []int) { news <- ended })
	close(news)
	late := <-left
	if len(late) == 0 {
		return
	}
	if ctx.Err() == nil {
		k.opts.Log.Info("Work of lost partitions did not end in time", "partitions", len(late), "after", k.now()-o.since)
	}
	k.lost(slices.Sorted(maps.Keys(late)), o.since)
}

const (
	// lull is how long no partition ends before those that have are noted, and mostGathering bounds
	// that. Most end within some milliseconds, and a write that begins with the first of them keeps
	// the rest for as long as it takes.
	lull          = 5 * time.Millisecond
	mostGathering = 15 * time.Millisecond
)

// gather notes partitions as they end, those of a moment together. It returns those that had not
// ended when news was closed.
func gather(c clock.Clock, news <-chan []int, partitions []int, note func([]int)) (left map[int]bool) {
	left = map[int]bool{}
	for _, p := range partitions {
		left[p] = true
	}
	for some := range news {
		bound := c.After(mostGathering)
		for gathering := true; gathering; {
			for _, p := range some {
				delete(left, p)
			}
			var more []int
			if len(left) > 0 {
				more = another(c, news, bound)
			}
			some, gathering = slices.Concat(some, more), len(more) > 0
		}
		note(some)
	}
	return left
}

// another is what ends before the lull, or the bound, is over; nil: nothing does.
func another(c clock.Clock, news <-chan []int, bound <-chan time.Time) []int {
	select {
	case more := <-news:
		return more
	case <-c.After(lull):
	case <-bound:
	}
	return nil
}

// lost notes that the work of partitions has ended, which began to end at a time.
func (k *Keeper) lost(partitions []int, since rules.Time) {
	k.apply(func(m *rules.Member, now rules.Time) {
		for _, p := range partitions {
			k.users.end(p)
			k.gaps.ended[p] = since
		}
		m.Handled(partitions, now)
	})
	nudge(k.lookNow)
}

// gaps are for the figures of hand-overs. They need the mutex of the Keeper.
type gaps struct {
	// ended is when the work of a partition began to end here, until another owner is written.
	ended map[int]rules.Time
	// signs are the last signs of the owners of partitions that are being taken over.
	signs map[int]sign
}

// sign is the last sign of an owner that is gone.
type sign struct {
	of string
	at rules.Time
}

// written notes a write of this member that stands.
func (k *Keeper) written(was, is rules.Effective, now rules.Time) {
	for p := range was.Claims {
		if was.Claims[p] != is.Claims[p] {
			k.changed(p, was.Claims[p].Owner, is.Claims[p].Owner, now)
		}
	}
}

// changed notes that this member wrote another owner of p.
func (k *Keeper) changed(p int, was, is string, now rules.Time) {
	me := k.opts.Member
	since, mine := k.gaps.ended[p]
	delete(k.gaps.ended, p)
	if was == me && is != "" && is != me && mine {
		k.opts.Metrics.handedOver(kindPlanned, now-since)
	}
}

// takes notes which partitions a write is to take from others, before it is sent: it may stand
// though its answer is lost.
func (g *gaps) takes(m *rules.Member, me string, is rules.Effective) {
	for p, c := range m.Known().Claims {
		if from := c.Owner; is.Claims[p].Owner == me && from != "" && from != me {
			g.signs[p] = sign{from, m.LastSign(from)}
		}
	}
}

// forget forgets what is not taken over after all: another has it, or who was gone is back.
func (g *gaps) forget(m *rules.Member, me string) {
	claims := m.Known().Claims
	maps.DeleteFunc(g.signs, func(p int, s sign) bool {
		is := claims[p].Owner // there are claims: it was taken from one
		return is != me && (is != s.of || !m.Gone(is))
	})
}

// gain begins the work of partitions, by how they came here.
func (k *Keeper) gain(ctx context.Context, partitions []int) {
	var taken, given []int
	k.mu.Lock()
	for _, p := range partitions {
		if _, ok := k.gaps.signs[p]; ok {
			taken = append(taken, p)
		} else {
			given = append(given, p)
		}
	}
	k.mu.Unlock()
	if len(taken) > 0 {
		k.opts.Handler.TakeOver(ctx, taken)
		k.takenOver(taken)
	}
	if len(given) > 0 {
		k.opts.Handler.Gain(ctx, given)
	}
}

// takenOver notes that the work of partitions has begun here.
func (k *Keeper) takenOver(partitions []int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		if last, ok := k.gaps.signs[p]; ok {
			k.opts.Metrics.handedOver(kindTakeover, k.now()-last.at)
			delete(k.gaps.signs, p)
		}
	}
}
