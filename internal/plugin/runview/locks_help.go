// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

// free is how many permits nobody has; not known: what is hidden, or the semaphore.
func (l *Lock) free() (n int32, known bool) {
	if l.Permits == nil {
		return 0, false
	}
	return max(0, *l.Permits-l.Held-l.told()), true
}

// lacks says whether a want has no room.
func (t *table) lacks(w want) bool {
	l := t.all[w.lock]
	if l == nil {
		return false
	}
	free, known := l.free()
	return known && w.permits > free
}

// explain says why each waits, and what a user may do.
func (t *table) explain(l *Lock) {
	for i := range l.Waiters {
		l.Waiters[i].Why = t.why(l, &l.Waiters[i])
	}
	l.Help = t.help(l)
}

// why says why one waits, as far as the reader may see.
func (t *table) why(l *Lock, w *LockWaiter) string {
	text := t.room(l, w)
	if !t.Whole && !strings.HasPrefix(l.Lock, render.MutexPrefix) {
		text += "; others that are not seen may be before it"
	}
	return text
}

func (t *table) room(l *Lock, w *LockWaiter) string {
	free, known := l.free()
	switch {
	case !known && t.Semaphores != nil:
		return "there is no such Semaphore"
	case !known:
		return "it is not known how many permits there are"
	case w.Permits > *l.Permits:
		return fmt.Sprintf("needs %d permits, and there are %d", w.Permits, *l.Permits)
	case max(1, w.Permits) > free:
		return fmt.Sprintf("no room: %d of %d free", free, *l.Permits)
	case w.guessed:
		return fmt.Sprintf("%d of %d free; it is not known how many permits it needs, and of which other locks", free, *l.Permits)
	}
	return t.withRoom(l, w)
}

// withRoom says why one waits for a lock that has room.
func (t *table) withRoom(l *Lock, w *LockWaiter) string {
	for _, other := range w.wants {
		if other.lock != l.Lock && t.lacks(other) {
			return "there is room here; it waits for " + other.lock
		}
	}
	if text := l.order(w); text != "" {
		return text
	}
	return t.unexplained(l, w)
}

// order says why one waits whose locks have room, by the order and the rate of one; "": these are
// not why.
func (l *Lock) order(w *LockWaiter) string {
	if l.Order == v1alpha1.OrderOrdered && w.Position > 1 {
		first := &l.Waiters[0]
		return "there is room, but order is Ordered: behind " + whose(first.Namespace, first.Name, first.Step, first.Item)
	}
	if r := l.Rate; r != nil {
		return fmt.Sprintf("there is room: it waits for its rate, %d in %d s", r.Starts, r.PerSeconds)
	}
	return ""
}

// whose is a run, a step of one, or an item.
func whose(namespace, run, step string, item *int32) string {
	if step != "" {
		return namespace + "/" + run + " step " + stepText(step, item)
	}
	return namespace + "/" + run
}

func (t *table) help(l *Lock) (all []string) {
	add := func(format string, values ...any) {
		all = append(all, Printable(fmt.Sprintf(format, values...), maxTextChars))
	}
	if text := l.beyond(); text != "" {
		add("%s", text)
	}
	if text := l.unplaced(); text != "" {
		add("%s", text)
	}
	if l.Permits == nil && t.Semaphores != nil {
		add("there is no such Semaphore any more: who holds it goes on, who waits for it ends as LockUnusable")
	}
	if l.Permits != nil && l.Held > *l.Permits {
		add("more is held than there are permits, which were lowered: nobody new begins until enough have ended")
	}
	if l.Waiting == 0 {
		return all
	}
	stuck := l.stuck()
	for _, name := range slices.Sorted(maps.Keys(stuck))[:min(len(stuck), maxNames)] {
		add("%s %s", name, stuck[name])
	}
	return all
}

// stuck says of holders, by name, what keeps them from going on.
func (l *Lock) stuck() map[string]string {
	stuck := map[string]string{}
	for i := range l.Holders {
		if text := l.Holders[i].stuck(); text != "" {
			stuck[whose(l.Holders[i].Namespace, l.Holders[i].Name, "", nil)] = text
		}
	}
	return stuck
}

// stuck says what keeps a holder from going on, where a user may do something about it.
func (h *LockHolder) stuck() string {
	switch {
	case h.run.Spec.Shutdown != "":
		return "is being shut down; the lock passes on when its clean-up is over"
	case suspended(h.run) && !h.run.Spec.Suspend:
		return fmt.Sprintf("is suspended with its parent run %s, and keeps it", statusOf(h.run).Parent.Name)
	case suspended(h.run):
		return fmt.Sprintf(`is suspended, and keeps it; to resume: kubectl patch wfr %s -n %s --type=merge -p '{"spec":{"suspend":false}}'`, h.Name, h.Namespace)
	}
	for i := range statusOf(h.run).Steps {
		s := &statusOf(h.run).Steps[i]
		if s.Phase == v1alpha1.StepWaiting && (h.Step == "" || h.Step == s.Name) {
			return fmt.Sprintf("waits for an approval; to decide: kubectl syncopate approve %s %s -n %s", h.Name, s.Name, h.Namespace)
		}
	}
	return ""
}
