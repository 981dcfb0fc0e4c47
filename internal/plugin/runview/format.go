// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	maxTextChars  = 400 // one text of an answer
	maxErrorChars = 120 // an error in the tree
	maxNames      = 5   // steps named in one text
)

// Span is a duration for people: "350ms", "2.1s", then as kubectl has it: "42s", "3m10s".
func Span(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	default:
		return duration.HumanDuration(d)
	}
}

// spanOfSeconds is the time between two moments of which only the second is known.
func spanOfSeconds(d time.Duration) string {
	if d < time.Second {
		return "less than a second"
	}
	return duration.HumanDuration(d)
}

// when is a moment with its distance from now.
func when(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	if t.After(now) {
		return fmt.Sprintf("%s (in %s)", text, Span(t.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", text, Span(now.Sub(t)))
}

// Printable makes a text fit for a terminal: no control characters, no more than n characters.
func Printable(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// names joins a few names and counts the rest.
func names(all []string) string {
	if len(all) <= maxNames {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func microTime(t *metav1.MicroTime) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return utc(t.Time)
}

func secondTime(t *metav1.Time) *time.Time {
	if t == nil || t.IsZero() {
		return nil
	}
	return utc(t.Time)
}

func utc(t time.Time) *time.Time {
	t = t.UTC()
	return &t
}
