// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

const (
	maxLockRows  = 100 // locks in the first table
	maxLockParts = 20  // locks of which the second tells who has them
	maxLockHelp  = 10  // lines of help
)

// LocksText writes two tables, by lock and by who holds it or waits for it, and what a user may do.
// most bounds the holders of a lock, and those that wait for it; 0: all are written.
func LocksText(out io.Writer, locks []Lock, most int, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "LOCK\tHELD\tWAITING\tOLDEST WAIT\tON BUSY\tORDER")
	for _, l := range locks[:min(len(locks), maxLockRows)] {
		oldest := "-"
		if l.OldestWait != nil {
			oldest = Span(now.Sub(*l.OldestWait))
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\n", Printable(l.Lock, maxTextChars), l.heldText(), l.Waiting, oldest, orDash(string(l.OnBusy)), orDash(string(l.Order)))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n := len(locks) - maxLockRows; n > 0 {
		fmt.Fprintf(out, "… and %d locks more; name those to see, or -o json has all\n", n)
	}
	used := slices.DeleteFunc(slices.Clone(locks), func(l Lock) bool { return len(l.Holders)+len(l.Waiters)+len(l.Help) == 0 })
	return partsText(out, used, most, now)
}

// heldText is such as "2 of 4" or, with a rate, "2 of 4, 10 in 60s". What the Semaphore alone tells
// of counts, and is marked.
func (l *Lock) heldText() string {
	all := "?"
	if l.Permits != nil {
		all = strconv.Itoa(int(*l.Permits))
	}
	text := fmt.Sprintf("%d of %s", l.Held+l.told(), all)
	if n := l.told(); n > 0 {
		text += fmt.Sprintf(" (%d by Semaphore)", n)
	}
	if r := l.Rate; r != nil {
		text += fmt.Sprintf(", %d in %ds", r.Starts, r.PerSeconds)
	}
	return text
}

// partsText tells who has each lock, and who waits for it.
func partsText(out io.Writer, locks []Lock, most int, now time.Time) error {
	if len(locks) == 0 {
		return nil
	}
	shown := locks[:min(len(locks), maxLockParts)]
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "LOCK\tPLACE\tRUN\tSTEP\tPERMITS\tSINCE\tFENCE\tWHAT IT DOES, OR WHY IT WAITS")
	for i := range shown {
		shown[i].rows(w, most, now)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if n := len(locks) - len(shown); n > 0 {
		fmt.Fprintf(out, "… and those of %d locks more; name those to see\n", n)
	}
	helpText(out, shown)
	adviceText(out, shown)
	return nil
}

// rows are the holders of a lock, the oldest first, and those that wait, in order.
func (l *Lock) rows(w io.Writer, most int, now time.Time) {
	b := l.Bounded(most)
	row := func(place, namespace, run, step string, permits int32, since *time.Time, fence int64, text string) {
		at, f, n := "-", "-", "?"
		if permits > 0 {
			n = strconv.Itoa(int(permits))
		}
		if since != nil {
			at = Span(now.Sub(*since)) + " ago"
		}
		if fence > 0 {
			f = strconv.FormatInt(fence, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", Printable(l.Lock, maxTextChars), place, namespace+"/"+run, orDash(step), n, at, f, Printable(text, maxTextChars))
	}
	more := func(n int, do string) {
		if n > 0 {
			fmt.Fprintf(w, "%s\t…\tand %d more that %s\t\t\t\t\t--limit shows more\n", Printable(l.Lock, maxTextChars), n, do)
		}
	}
	for _, h := range b.Holders {
		row("holds", h.Namespace, h.Name, stepText(h.Step, h.Item), h.Permits, h.Since, h.Fence, h.Doing)
	}
	more(len(l.Holders)-len(b.Holders), "hold it")
	for _, x := range b.Waiters {
		text := x.Why
		if x.Until != nil {
			text += "; LockQueueTimeout in " + Span(x.Until.Sub(now))
		}
		row(fmt.Sprintf("%d of %d", x.Position, l.Waiting), x.Namespace, x.Name, stepText(x.Step, x.Item), x.Permits, &x.Since, 0, text)
	}
	more(len(l.Waiters)-len(b.Waiters), "wait")
}

func helpText(out io.Writer, locks []Lock) {
	lines := 0
	for i := range locks {
		for _, text := range locks[i].Help {
			if lines == 0 {
				fmt.Fprintln(out)
			}
			if lines++; lines > maxLockHelp {
				fmt.Fprintln(out, "… more with the name of a lock")
				return
			}
			fmt.Fprintf(out, "%s: %s\n", Printable(locks[i].Lock, maxTextChars), text)
		}
	}
}

// adviceText says, of the oldest holder of the first lock that somebody waits for, how to look at
// it and how to end it.
func adviceText(out io.Writer, locks []Lock) {
	i := slices.IndexFunc(locks, func(l Lock) bool { return l.Waiting > 0 && len(l.Holders) > 0 })
	if i < 0 {
		return
	}
	h := &locks[i].Holders[0]
	fmt.Fprintf(out, "\nTo see what a holder does:         kubectl syncopate why %s -n %s\n", h.Name, h.Namespace)
	fmt.Fprintf(out, "To cancel it, with its clean-up:   kubectl patch wfr %s -n %s --type=merge -p '{\"spec\":{\"shutdown\":\"Cancel\"}}'\n", h.Name, h.Namespace)
}
