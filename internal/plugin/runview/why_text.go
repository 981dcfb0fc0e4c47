// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// Text writes the answer for people; now is the one that it was made for, color whether out is a
// terminal that takes colours.
func (a Answer) Text(out io.Writer, now time.Time, color bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s  %s\n", a.Namespace, a.Name, paint(string(a.Phase), runColor(a.Phase), color))
	fmt.Fprintf(&b, "The run %s (%s)", a.Summary, a.Reason)
	if a.Since != nil {
		fmt.Fprintf(&b, "\nSince %s", when(*a.Since, now))
	}
	fmt.Fprintln(&b)
	width := 0
	for _, f := range a.Facts {
		width = max(width, utf8.RuneCountInString(f.About))
	}
	for _, f := range a.Facts {
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(f.About))
		fmt.Fprintf(&b, "  %s%s  %s\n", f.About, pad, f.Line(now))
	}
	fmt.Fprintln(&b, a.NextLine(now))
	_, err := io.WriteString(out, b.String())
	return err
}

// Line is the fact for people.
func (f Fact) Line(now time.Time) string {
	text := f.Text
	if f.Since != nil {
		text += ", since " + when(*f.Since, now)
	}
	if f.Until != nil {
		text += "; " + f.Then + " at " + when(*f.Until, now)
	}
	return text
}

// NextLine says for people when the operator looks at the run again.
func (a Answer) NextLine(now time.Time) string {
	switch {
	case a.retried != "" && a.Next == nil:
		return "Next look: the lock is tried again " + a.retried
	case a.retried != "":
		return fmt.Sprintf("Next look: the lock is tried again %s; %s: %s", a.retried, when(a.Next.At, now), a.Next.What)
	case a.Next == nil && a.Ended:
		return "Nothing more happens: the run stays until somebody deletes it"
	case a.Next == nil:
		return "Next look: when something new comes (a result, a decision, a change of the spec)"
	case a.Ended:
		return fmt.Sprintf("Next look: %s: %s", when(a.Next.At, now), a.Next.What)
	default:
		return fmt.Sprintf("Next look: when something new comes, else %s: %s", when(a.Next.At, now), a.Next.What)
	}
}
