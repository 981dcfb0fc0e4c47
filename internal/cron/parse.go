// SPDX-License-Identifier: Apache-2.0

package cron

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// MaxText bounds a cron text, in bytes.
const MaxText = 256

// field is one of the five fields of a text.
type field struct {
	name     string
	min, max int
	names    []string // of min and what follows
}

var fields = [5]field{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, names: []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{name: "day of week", max: 6, names: []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

var macros = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// set has a bit for each value of a field.
type set struct {
	bits uint64
	open bool // a * or ? restricts nothing
}

// Expr is a cron text. It is a value, and says which wall times match.
type Expr struct {
	minute, hour, dom, month, dow set
}

// Parse reads a cron text. The error is a *FieldError.
func Parse(text string) (Expr, error) {
	if len(text) > MaxText {
		return Expr{}, wrong("text", text, fmt.Sprintf("%d bytes, at most %d", len(text), MaxText))
	}
	words := strings.Fields(text)
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		long, ok := macros[strings.ToLower(words[0])]
		if !ok {
			return Expr{}, wrong("text", text, "need @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually")
		}
		words = strings.Fields(long)
	}
	if strings.Contains(text, "TZ=") {
		return Expr{}, wrong("text", text, "a zone is no part of the text: it has a field of its own")
	}
	if len(words) != len(fields) {
		return Expr{}, wrong("text", text, fmt.Sprintf("need 5 fields (minute, hour, day of month, month, day of week), not %d", len(words)))
	}
	var e Expr
	for i, to := range []*set{&e.minute, &e.hour, &e.dom, &e.month, &e.dow} {
		s, err := fields[i].parse(words[i])
		if err != nil {
			return Expr{}, err
		}
		*to = s
	}
	if !e.possible() {
		return Expr{}, wrong("day of month", words[2], "no month of the text has such a day, so it never comes")
	}
	return e, nil
}

// possible says whether some day matches: of the day fields only the day of the month can be
// impossible, and only if no day of the week may take its place.
func (e *Expr) possible() bool {
	if !e.dow.open && !e.dom.open {
		return true
	}
	for m := time.January; m <= time.December; m++ {
		if e.month.has(int(m)) && bits.TrailingZeros64(e.dom.bits) <= daysIn(2024, m) {
			return true
		}
	}
	return false
}

func (s set) has(n int) bool { return s.bits&(1<<n) != 0 }

// from is the least value of the set that is n or more.
func (s set) from(n int) (int, bool) {
	rest := s.bits >> n << n
	return bits.TrailingZeros64(rest), rest != 0
}

func (f field) parse(word string) (set, error) {
	var all set
	for part := range strings.SplitSeq(word, ",") {
		s, err := f.part(part)
		if err != nil {
			return set{}, err
		}
		all.bits |= s.bits
		all.open = all.open || s.open
	}
	return all, nil
}

// part reads one element of a list: a range, with a step or without.
func (f field) part(part string) (set, error) {
	span, stepText, stepped := strings.Cut(part, "/")
	step := 1
	if stepped {
		n, err := strconv.ParseUint(stepText, 10, 16)
		if err != nil || n == 0 || int(n) > f.max {
			return set{}, wrong(f.name, part, fmt.Sprintf("need a step of 1 to %d after /", f.max))
		}
		step = int(n)
	}
	low, high, err := f.span(span, stepped)
	if err != nil {
		return set{}, err
	}
	var s set
	for n := low; n <= high; n += step {
		s.bits |= 1 << n
	}
	s.open = step == 1 && (span == "*" || span == "?")
	return s, nil
}

// span reads *, ?, N or N-M. With a step N is from N to the end.
func (f field) span(span string, stepped bool) (low, high int, err error) {
	if span == "*" || span == "?" {
		return f.min, f.max, nil
	}
	first, last, isRange := strings.Cut(span, "-")
	if low, err = f.value(first); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		if high, err = f.value(last); err != nil {
			return 0, 0, err
		}
	case stepped:
		high = f.max
	default:
		high = low
	}
	if low > high {
		return 0, 0, wrong(f.name, span, "the range ends before it begins")
	}
	return low, high, nil
}

func (f field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(text, name) {
			return f.min + i, nil
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || int(n) < f.min || int(n) > f.max || text[0] == '+' {
		return 0, wrong(f.name, text, f.need())
	}
	return int(n), nil
}

func (f field) need() string {
	need := fmt.Sprintf("need %d to %d", f.min, f.max)
	if len(f.names) > 0 {
		need += fmt.Sprintf(", or %s to %s", f.names[0], f.names[len(f.names)-1])
	}
	if f.name == "day of week" {
		need += "; Sunday is 0"
	}
	return need
}
