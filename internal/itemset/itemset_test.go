// SPDX-License-Identifier: Apache-2.0

package itemset

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseReadsWhatStringWrites(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []int
	}{
		"nothing":                       {"", nil},
		"the first index":               {"0", []int{0}},
		"the last index":                {"9999", []int{9999}},
		"a range of two":                {"3-4", []int{3, 4}},
		"a range, and a number alone":   {"0-5,7", []int{0, 1, 2, 3, 4, 5, 7}},
		"ranges with one index between": {"0,2,4-5,7", []int{0, 2, 4, 5, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, slices.Collect(s.All())); diff != "" {
				t.Errorf("indices (-want +got):\n%s", diff)
			}
			if s.String() != tc.text || s.Len() != len(tc.want) {
				t.Errorf("text %q, %d indices", s.String(), s.Len())
			}
		})
	}
}

// mutation: free without the one index between makes "ranges that touch" pass.
// mutation: number without its look at leading zeros makes those pass.
func TestParseTakesNothingElseAndSaysWhere(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"a space":                        {"0, 2", "character 3: no number"},
		"a comma at the end":             {"0,", "character 3: no number"},
		"a comma at the start":           {",0", "character 1: no number"},
		"a dash without an end":          {"1-", "character 3: no number"},
		"a negative number":              {"-1", "character 1: no number"},
		"a sign":                         {"+1", "character 1: no number"},
		"a range of three ends":          {"1-2-3", "character 4: neither a comma nor the end"},
		"letters":                        {"1x", "character 2: neither a comma nor the end"},
		"a leading zero":                 {"01", "character 1: a number with a leading zero"},
		"zeros":                          {"1,00", "character 3: a number with a leading zero"},
		"a range of one":                 {"4-4", "character 3: the range ends with 4 and starts with 4"},
		"a range backwards":              {"4-3", "character 3: the range ends with 3 and starts with 4"},
		"the same twice":                 {"4,4", "character 3: 4 must be at least 6: ranges ascend and do not touch"},
		"ranges that touch":              {"0-3,4", "character 5: 4 must be at least 5: ranges ascend and do not touch"},
		"ranges that overlap":            {"0-3,2-5", "character 5: 2 must be at least 5: ranges ascend and do not touch"},
		"descending order":               {"7,1", "character 3: 1 must be at least 9: ranges ascend and do not touch"},
		"an index too many":              {"0-10000", "character 3: a number of 10000 or more"},
		"a number that no int holds":     {strings.Repeat("9", 40), "character 1: a number of 10000 or more"},
		"digits of other scripts":        {"٣", "character 1: no number"},
		"an invalid byte after a number": {"1\xff", "character 2: neither a comma nor the end"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(tc.text)
			if !errors.Is(err, ErrText) || err.Error() != "not a set of items: "+tc.want {
				t.Errorf("got %v", err)
			}
			if s.Len() != 0 {
				t.Errorf("a set beside the error: %s", s)
			}
		})
	}
}

func TestIndicesOutsideAreInNoSet(t *testing.T) {
	var s Set
	if s.Add(-1) || s.Add(MaxItems) || s.AddRange(5, 4) || s.AddRange(-9, -1) || s.AddRange(MaxItems, 1<<40) || s.Remove(-1) || s.Remove(1<<40) || s.Len() != 0 {
		t.Errorf("got %s", s)
	}
	if !s.AddRange(-5, 1<<40) || s.String() != "0-9999" || s.Len() != MaxItems {
		t.Errorf("a range that reaches out: %s", s)
	}
	if s.Contains(-1) || s.Contains(MaxItems) || s.Contains(1<<16) || !s.Contains(0) || !s.Contains(MaxItems-1) {
		t.Error("indices outside are contained, or the ends are not")
	}
}

// mutation: AddRange that changes a span in place makes this fail; so does one with
// append for slices.Concat.
func TestACopyDoesNotChange(t *testing.T) {
	const text = "0-5,7,9-12,20-30"
	for name, change := range map[string]func(*Set){
		"an index between two ranges": func(s *Set) { s.Add(8) },
		"an index at an end":          func(s *Set) { s.Add(13) },
		"an index at a start":         func(s *Set) { s.Add(19) },
		"an index alone":              func(s *Set) { s.Add(15) },
		"a range over all":            func(s *Set) { s.AddRange(0, 40) },
		"one less inside":             func(s *Set) { s.Remove(3) },
		"one less at an end":          func(s *Set) { s.Remove(30) },
		"one less alone":              func(s *Set) { s.Remove(7) },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			copied, union := s, s.Union(Set{})
			change(&s)
			if s.String() == text || copied.String() != text || union.String() != text {
				t.Errorf("changed to %s: the copy is %s, a union %s", s, copied, union)
			}
		})
	}
}

func TestFirst(t *testing.T) {
	var s Set
	if i, ok := s.First(); ok {
		t.Errorf("the empty set starts with %d", i)
	}
	s.AddRange(4, 6)
	if i, ok := s.First(); !ok || i != 4 {
		t.Errorf("got %d, %v", i, ok)
	}
}

func TestIterationEndsWhenItsReaderDoes(t *testing.T) {
	s, err := Parse("0-5,7")
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.All() {
		if i > 2 {
			t.Fatal("read on")
		}
		if i == 2 {
			break
		}
	}
}

// model is a set as anybody would write it.
type model map[int]bool

func (m model) sorted() []int {
	var out []int
	for i := range MaxItems {
		if m[i] {
			out = append(out, i)
		}
	}
	return out
}

// text is the text of a set, made index by index.
func (m model) text() string {
	var parts []string
	for i := 0; i < MaxItems; i++ {
		if !m[i] {
			continue
		}
		last := i
		for m[last+1] {
			last++
		}
		part := strconv.Itoa(i)
		if last > i {
			part += "-" + strconv.Itoa(last)
		}
		parts, i = append(parts, part), last
	}
	return strings.Join(parts, ",")
}

// near draws indices that often touch each other, and sometimes the ends.
func near(rt *rapid.T, what string) int {
	return rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(MaxItems-20, MaxItems-1)).Draw(rt, what)
}

// TestSetsAreTheirModel plays random changes on sets and on maps; after each change all answers
// are the same.
//
// mutation: reaching(first) for reaching(first-1), or last+1 for last+2, in AddRange makes this
// fail: neighbours are not joined.
// mutation: Remove that keeps one side only, and Union without its +1, make this fail.
func TestSetsAreTheirModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var sets [2]Set
		models := [2]model{{}, {}}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			n := rapid.IntRange(0, 1).Draw(rt, "which")
			s, m := &sets[n], models[n]
			before := s.String()
			changed := play(rt, s, m)
			if changed != (s.String() != before) {
				rt.Fatalf("changed is %v from %q to %q", changed, before, s)
			}
			same(rt, *s, m)
		}
		union := model{}
		for i := range MaxItems {
			union[i] = models[0][i] || models[1][i]
		}
		same(rt, sets[0].Union(sets[1]), union)
	})
}

func play(rt *rapid.T, s *Set, m model) bool {
	i := near(rt, "index")
	switch rapid.IntRange(0, 2).Draw(rt, "does") {
	case 0:
		m[i] = true
		return s.Add(i)
	case 1:
		delete(m, i)
		return s.Remove(i)
	default:
		last := i + rapid.IntRange(-1, 12).Draw(rt, "more")
		for j := i; j <= min(last, MaxItems-1); j++ {
			m[j] = true
		}
		return s.AddRange(i, last)
	}
}

func same(rt *rapid.T, s Set, m model) {
	want := m.sorted()
	if diff := cmp.Diff(want, slices.Collect(s.All())); diff != "" {
		rt.Fatalf("indices (-want +got):\n%s", diff)
	}
	if s.String() != m.text() || s.Len() != len(want) {
		rt.Fatalf("text %q, want %q; %d indices", s, m.text(), s.Len())
	}
	for _, i := range []int{near(rt, "asked"), 0, MaxItems - 1} {
		if s.Contains(i) != m[i] {
			rt.Fatalf("%q contains %d: %v", s, i, s.Contains(i))
		}
	}
	again, err := Parse(s.String())
	if err != nil || !again.Equal(s) {
		rt.Fatalf("%q read back is %q, %v", s, again, err)
	}
}

// FuzzParse: no text makes it panic, and what it takes is the text of its result.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "0", "0-5,7", "9999", "0-9999", "1-", "01", "5-4", "0,1", "-1", "0-10000", ",", "1-2-3", "18446744073709551616"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		switch {
		case err != nil && !errors.Is(err, ErrText):
			t.Errorf("%q: %v", text, err)
		case err == nil && s.String() != text:
			t.Errorf("%q is read as %q", text, s)
		case err == nil && s.Len() != len(slices.Collect(s.All())):
			t.Errorf("%q has %d indices", text, s.Len())
		}
	})
}

// odd is the worst set: every second index.
func odd() Set {
	var s Set
	for i := 1; i < MaxItems; i += 2 {
		s.spans = append(s.spans, span{int16(i), int16(i)})
	}
	return s
}

func BenchmarkAddAndRemove(b *testing.B) {
	for name, s := range map[string]Set{"one range": {[]span{{0, 4999}}}, "5000 ranges": odd()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.Add(5000)
				s.Remove(5000)
			}
		})
	}
}

func BenchmarkContains(b *testing.B) {
	s := odd()
	for b.Loop() {
		s.Contains(5001)
	}
}

func BenchmarkTextThereAndBack(b *testing.B) {
	for name, s := range map[string]Set{"one range": {[]span{{0, 4999}}}, "5000 ranges": odd()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Parse(s.String()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
