// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

// Each call is legal and repeated a thousand times, with the worst text a run may have for it.
// Without its charge most take from one second to minutes; with it a few tens of milliseconds.
//
// TestNobodyStallsTheOperator, TestGuardedCallsAreChargedBeforeTheyAreMade and
// TestFewFoldedPatternsAreTooMany look at the charges one by one.
func TestWhateverIsWrittenEndsSoon(t *testing.T) {
	norace.Only(t)
	const bound = 30 * time.Second // the slowest takes less than 1 s, and the machine may be busy
	l := make([]any, 1000)
	for i := range l {
		l[i] = int64(i)
	}
	v := Vars{Inputs: map[string]any{
		"l": l, "s": strings.Repeat("a", 60<<10), "u": strings.Repeat("é", 30<<10), "q": strings.Repeat(`"`, 60<<10),
		"zeros": strings.Repeat("0", 60<<10), "hours": strings.Repeat("0h", 30<<10), "words": strings.Repeat("a ", 30<<10),
		"repeats": strings.Repeat("a{1000}", 3000), "classes": strings.Repeat(`\pL`, 5000), "folds": "(?i)" + strings.Repeat(`[B-\x{1e942}]`, 1000),
		"brackets": strings.Repeat("[", 20_000), "alternatives": strings.Repeat("a|b|", 5000), "nested": strings.Repeat("(", 900) + strings.Repeat(")*", 900),
	}}
	for _, call := range []string{
		`inputs.s.matches('(a|b|aa){1,15}c')`, `inputs.u.matches('(é|b|éé){1,15}c')`, `inputs.s.matches('a*a*a*a*a*a*a*a*b')`, `inputs.s.matches('(a{1,30}){1,30}b')`,
		`inputs.s.matches('a.*b.*c')`, `inputs.s.matches(r'(\pL|\pN)+!')`, `inputs.s.matches('(?i)(x|a)*b')`,
		`''.matches(inputs.repeats)`, `''.matches(inputs.classes)`, `''.matches(inputs.folds)`, `''.matches(inputs.brackets)`,
		`''.matches(inputs.alternatives)`, `''.matches(inputs.nested)`, `''.matches(inputs.s)`, `''.matches(inputs.u)`,
		`''.matches(r'(?i)[B-\x{1e942}]')`, `''.matches('(?i)[B-𞥂]')`, `''.matches(r'\pL\PL\pL\PL')`, `''.matches('a{1000}')`,
		`inputs.s.reverse()`, `inputs.u.upperAscii()`, `inputs.u.lowerAscii()`, `inputs.u.substring(1)`, `inputs.u.charAt(1)`, `inputs.s.trim()`,
		`inputs.words.split(' ').size()`, `inputs.s.split('').size()`, `inputs.u.split('').join('xx').size()`, `inputs.l.map(y, '').join(inputs.s)`,
		`inputs.s.replace('a', 'bb').size()`, `inputs.s.replace('', 'b').size()`, `inputs.s.replace('a', 'b', 1000000).size()`,
		`inputs.u.indexOf('éb')`, `inputs.s.indexOf('aaaaaaaaaaaaaaaab')`, `inputs.s.lastIndexOf('baaaaaaaaaaaaaaaa')`, `inputs.s.contains('aaaaaaaab')`,
		`strings.quote(inputs.q).size()`, `inputs.s < inputs.s + 'b'`, `size(inputs.u)`, `string(bytes(inputs.u)).size()`,
		`int(inputs.zeros)`, `uint(inputs.zeros)`, `double(inputs.zeros)`, `duration(inputs.hours)`,
		`timestamp('2026-11-20T10:00:00Z').getHours('America/New_York')`, `timestamp('2026-11-20T10:00:00Z').getHours('+01:00')`,
		`inputs.l == inputs.l`, `x + 1 in inputs.l`, `inputs[?inputs.s].hasValue()`, `{inputs.s: x}.size()`,
	} {
		t.Run(call, func(t *testing.T) {
			for _, src := range []string{"inputs.l.map(x, " + call + ").size()", "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(x, " + call + ").size()"} {
				start := time.Now()
				_, err := Prepare(v).Template(quote("${" + src + "}"))
				if took := time.Since(start); took > bound {
					t.Errorf("%s took %s", src, took)
				}
				if err != nil && !errors.Is(err, ErrTooCostly) && !strings.Contains(err.Error(), "error") {
					t.Errorf("%s: %v", src, err)
				}
			}
		})
	}
}

// A class of letters without regard to case takes some 10 ms to compile, however short it is.
//
// mutation: patternWork without unitsPerFolded makes this fail.
func TestFewFoldedPatternsAreTooMany(t *testing.T) {
	for _, pattern := range []string{`r'(?i)[B-\x{1e942}]'`, `'(?i)[B-𞥂]'`} {
		if _, err := EvalCondition(`[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].exists(x, ''.matches(`+pattern+`))`, Vars{}); !errors.Is(err, ErrTooCostly) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// mutation: a unitsPerStep or unitsPerPatternByte ten times as large, or a match that is charged
// for all states of a length, makes this fail.
func TestUsualPatternsAreWithinTheBounds(t *testing.T) {
	text := strings.Repeat("Release of service-a, see https://example.org/x?y=1. ", 80)[:4<<10]
	v := Vars{Inputs: map[string]any{"s": text, "name": "service-a"}}
	for name, src := range map[string]string{
		"a word":                     `inputs.s.matches("service")`,
		"a word without case":        `inputs.s.matches("(?i)RELEASE|DEPLOY")`,
		"an address of the web":      `inputs.s.matches("https?://[a-z0-9.-]+/[^ ]*")`,
		"an address of mail":         `!inputs.s.matches("[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+[.][A-Za-z]{2,8}")`,
		"a version":                  `!inputs.s.matches("v?[0-9]{1,4}[.][0-9]{1,4}[.][0-9]{1,4}(-[a-z0-9]+)?")`,
		"letters of all languages":   `inputs.s.matches(r"^[\p{L}\p{N}\p{P}\p{Z}=]+$")`,
		"letters of Europe":          `inputs.s.matches("(?i)^[a-zà-ÿ]+ of [äöüß]*")`,
		"a name, a hundred times":    `[` + strings.Repeat("0,", 99) + `0].all(x, inputs.name.matches("^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"))`,
		"a short word, many a time":  `[` + strings.Repeat("0,", 400) + `0].all(x, inputs.name.matches("^[a-z-]+$"))`,
		"a length":                   `!inputs.s.matches("^.{1,1000}$")`,
		"a UUID":                     `!inputs.s.matches("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")`,
		"the hour in a city, a time": `timestamp("2026-11-20T10:00:00Z").getHours("Europe/Berlin") == 11`,
	} {
		t.Run(name, func(t *testing.T) {
			if ok, err := EvalCondition(src, v); err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
		})
	}
}
