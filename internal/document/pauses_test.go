// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"strings"
	"testing"
)

// longKeys are a thousand keys of 2 KiB that differ at their end, each with something to unescape.
func longKeys() string {
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, `,"\u003c%s%03d":1`, strings.Repeat("a", 2<<10), i*7%1000)
	}
	return "{" + b.String()[1:] + "}"
}

// Mutations that this finds: Check, Parse or Canonical without their pauses, in lists or in
// objects; compare without its own, or one that takes long keys for short ones; a string that is
// escaped without them; pauses for short texts.
func TestLongTextsPause(t *testing.T) {
	const size = 2 << 20
	keys := func(n int, key func(i int) int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%06d":1`, key(i))
		}
		return "{" + b.String()[1:] + "}"
	}
	const n = size / len(`,"000000":1`)
	for name, c := range map[string]struct {
		text                   string
		check, parse, canonize int // pauses at least
	}{
		"a list":                    {"[" + strings.Repeat("1,", size/2) + "1]", 7, 7, 7},
		"an object":                 {keys(n, func(i int) int { return i }), 7, 7 + n/comparesBetween - 1, 7},
		"an object out of order":    {keys(n, func(i int) int { return i * 7919 % n }), 7, 7 + 10*n/comparesBetween, 7},
		"long keys out of order":    {longKeys(), 7, 15, 7},
		"a string that is escaped":  {`"` + strings.Repeat(`\u003c`, size/6) + `"`, 7, 7, 7},
		"lists in lists":            {"[" + strings.Repeat("[1],", size/4) + "[]]", 7, 7, 7},
		"a short list, an end only": {"[" + strings.Repeat("1,", bytesBetween/2-2) + "1]", 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			pauses := 0
			pause := func() { pauses++ }
			took := func(what string, least int) {
				t.Helper()
				if pauses < least || least == 0 && pauses > 0 {
					t.Errorf("%s pauses %d times, want %d", what, pauses, least)
				}
				pauses = 0
			}
			checked, ok := Check([]byte(c.text), pause)
			if !ok || checked.IsZero() {
				t.Fatal("it is not JSON")
			}
			took("Check", c.check)
			d := checked.Parse(pause)
			took("Parse", c.parse)
			out, err := d.Root().Canonical(pause)
			if err != nil || len(out) != len(c.text) {
				t.Fatalf("%d bytes of %d: %v", len(out), len(c.text), err)
			}
			took("Canonical", c.canonize)
			if again, err := Parse(out, nil); err != nil || again.Root().Len() != d.Root().Len() {
				t.Errorf("read again: %v", err)
			}
		})
	}
	if c, ok := Check([]byte("[1"), nil); ok || !c.IsZero() {
		t.Error("what is not JSON counts as checked")
	}
}
