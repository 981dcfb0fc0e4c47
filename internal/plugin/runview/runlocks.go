// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// Sight is a run lock as Redis has it.
type Sight struct {
	Token   string        // of the owner; "": nobody has it
	Left    time.Duration // after which it ends if nobody renews it; below 0: it does not end by itself
	Offered bool          // nobody has it, and it is kept for the first in line
	Fence   int64         // of the last take; 0: not known any more
	Waiting int64         // processes in line
}

// RunLock is the lock of a run that did not end.
type RunLock struct {
	Policy    string `json:"policy"` // in force for the run's class; "" for the built-in defaults
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state"` // held, offered (kept for the first in line) or free
	// Holder is the replica that holds it; "unknown" if it did not write the run before, "nobody's
	// key" if no operator wrote it.
	Holder string     `json:"holder,omitempty"`
	Since  *time.Time `json:"since,omitempty"` // when the holder took it, if it has written the run since
	// Ends is when it ends if its holder does not renew it; absent of a lock that is held: never.
	Ends *time.Time `json:"ends,omitempty"`
	// ValidUntil is until when its holder may work under it; absent if that is not known.
	ValidUntil *time.Time `json:"validUntil,omitempty"`
	Fence      int64      `json:"fence,omitempty"`       // of the last take, by Redis
	Stored     int64      `json:"storedFence,omitempty"` // of the last write
	Waiting    int64      `json:"waiting"`               // processes in line
}

// States of locks.
const (
	lockHeld    = "held"
	lockOffered = "offered"
	lockFree    = "free"
)

// RunLockOf is the lock of one run. policies are all LockPolicies; nil: not known.
func RunLockOf(run *v1alpha1.WorkflowRun, s Sight, policies []v1alpha1.LockPolicy, now time.Time) RunLock {
	return runLockOf(run, s, policies, linesOf(policies)(run), now)
}

func runLockOf(run *v1alpha1.WorkflowRun, s Sight, policies []v1alpha1.LockPolicy, line string, now time.Time) RunLock {
	l := RunLock{Namespace: run.Namespace, Name: run.Name, State: lockFree, Fence: s.Fence, Waiting: s.Waiting, Policy: line}
	st := statusOf(run)
	if st.Fence != nil {
		l.Stored = *st.Fence
	}
	switch {
	case s.Offered:
		l.State = lockOffered
	case s.Token != "":
		l.State = lockHeld
		l.Holder, l.Since = holderOf(st.Lock, s.Token)
	}
	if l.State != lockFree && s.Left >= 0 {
		l.Ends = utc(now.Add(s.Left))
		if l.State == lockHeld && policies != nil {
			governs, _ := policy.Governs(run, policies)
			l.ValidUntil = utc(now.Add(s.Left - governs.RunLock.Renewal.Margin))
		}
	}
	return l
}

// holderOf names the owner of a token, as far as status knows it. The part before the point is that
// of its process.
func holderOf(last *v1alpha1.RunLockStatus, token string) (name string, since *time.Time) {
	process, _, ours := strings.Cut(token, ".")
	switch {
	case !ours:
		return "nobody's key", nil
	case last == nil:
		return "unknown", nil
	case last.LeaseID == token:
		return last.Holder, secondTime(last.AcquiredAt)
	case strings.HasPrefix(last.LeaseID, process+"."):
		return last.Holder, nil
	default:
		return "unknown", nil
	}
}

// RunLocks are those of runs, by policy and name, without those that are free and that
// nobody waits for.
func RunLocks(runs []v1alpha1.WorkflowRun, seen map[string]Sight, policies []v1alpha1.LockPolicy, now time.Time) []RunLock {
	list, lineOf := []RunLock{}, linesOf(policies)
	for i := range runs {
		if l := runLockOf(&runs[i], seen[string(runs[i].UID)], policies, lineOf(&runs[i]), now); l.State != lockFree || l.Waiting > 0 {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b RunLock) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// RunLocksText writes two tables: by policy, and by run.
func RunLocksText(out io.Writer, locks []RunLock, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "POLICY\tHELD\tOFFERED\tWAITED FOR\tPAST VALIDITY\tWITHOUT TTL")
	for i := 0; i < len(locks); {
		n := slices.IndexFunc(locks[i:], func(l RunLock) bool { return l.Policy != locks[i].Policy })
		if n < 0 {
			n = len(locks) - i
		}
		same := locks[i : i+n]
		count := func(is func(l *RunLock) bool) (n int) {
			for k := range same {
				if is(&same[k]) {
					n++
				}
			}
			return n
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", orDash(same[0].Policy), count(func(l *RunLock) bool { return l.State == lockHeld }),
			count(func(l *RunLock) bool { return l.State == lockOffered }), count(func(l *RunLock) bool { return l.Waiting > 0 }),
			count(func(l *RunLock) bool { return l.invalid(now) }), count((*RunLock).endless))
		i += n
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "RUN\tPOLICY\tSTATE\tHOLDER\tSINCE\tFENCE\tSTORED\tVALID FOR\tENDS IN\tWAITING")
	for i := range locks {
		l := &locks[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\n", Printable(l.Namespace+"/"+l.Name, maxTextChars), orDash(l.Policy), l.State,
			Printable(orDash(l.Holder), maxTextChars), l.sinceText(now), l.Fence, l.Stored, l.validText(now), l.endsText(now), l.Waiting)
	}
	return w.Flush()
}

func (l *RunLock) endless() bool { return l.State == lockHeld && l.Ends == nil }

// invalid says whether a holder would not work under its lock any more, and it has not ended.
func (l *RunLock) invalid(now time.Time) bool { return l.ValidUntil != nil && !l.ValidUntil.After(now) }

func (l *RunLock) sinceText(now time.Time) string {
	if l.Since == nil {
		return "-"
	}
	return Span(now.Sub(*l.Since)) + " ago"
}

func (l *RunLock) validText(now time.Time) string {
	switch {
	case l.ValidUntil == nil:
		return "-"
	case l.invalid(now):
		return "over"
	default:
		return Span(l.ValidUntil.Sub(now))
	}
}

func (l *RunLock) endsText(now time.Time) string {
	switch {
	case l.endless():
		return "never"
	case l.Ends == nil:
		return "-"
	default:
		return Span(l.Ends.Sub(now))
	}
}

// Sees adds the lock of the run as Redis has it.
func (a *Answer) Sees(l RunLock) {
	a.Lock = &l
	f := Fact{About: "lock now", Text: l.State}
	switch l.State {
	case lockHeld:
		f.Text, f.Since = "held by "+l.Holder, l.Since
		if l.endless() {
			f.Text += "; it has no TTL, so it does not end by itself"
		}
		f.Until, f.Then = l.Ends, "if nobody renews it, it ends"
	case lockOffered:
		f.Text = "kept for the first in line"
	}
	f.Text = Printable(f.Text+", fence "+strconv.FormatInt(l.Fence, 10)+", processes in line: "+strconv.FormatInt(l.Waiting, 10), maxTextChars)
	a.Facts = append(a.Facts, f)
}
