// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"math/bits"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// What a pattern costs in units of work. A call compiles its pattern anew, and reads it a second
// time to be charged.
const (
	unitsPerPatternByte = 250
	unitsPerExotic      = 10_000    // a class like \pL is a table of hundreds of ranges
	unitsPerFolded      = 3_000_000 // a range up to any letter of Unicode without regard to case is folded letter by letter
	unitsPerState       = 150       // to compile
	unitsPerStep        = 10        // of one state of the automaton over one byte of the text
)

// chargeMatches charges for the pattern and for the steps of its automaton. Many patterns need
// fewer steps than one per state and byte; which, only running them tells.
func chargeMatches(b *Budget, args []ref.Val) bool {
	pattern, ok := args[len(args)-1].(types.String)
	if !ok {
		return true
	}
	live, ok := b.takePattern(string(pattern))
	return ok && b.take(live*textLen(args[0])*unitsPerStep)
}

// takePattern charges for what it takes to compile a pattern, and says how many states of it can be
// live at a time: a short one can have many, (a{1000}){2}. Of one that is wrong the call says so.
func (b *Budget) takePattern(pattern string) (live int, ok bool) {
	if !b.take(patternWork(pattern)) {
		return 0, false
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, true
	}
	return liveOf(re), b.take(statesOf(re) * unitsPerState)
}

// foldFlag is what sets the flag i, in a group or for the rest: (?i) or (?s-mi:x). A name in
// (?P<i>x) is none.
var foldFlag = regexp.MustCompile(`\(\?[imsU-]*i`)

// patternWork is the work of parsing a pattern, as far as it can be told without parsing it.
func patternWork(pattern string) int {
	exotic := len(pattern) - utf8.RuneCountInString(pattern)
	ranges := 0 // whose end may be any letter: \w and \pL end none, and \xff and \777 are no more than that
	for i := range len(pattern) - 1 {
		next := pattern[i+1]
		if pattern[i] == '\\' && strings.IndexByte("pPxX01234567", next) >= 0 {
			exotic++
		}
		if pattern[i] == '-' && (next >= utf8.RuneSelf || strings.HasPrefix(pattern[i+1:], `\x{`)) {
			ranges++
		}
	}
	n := len(pattern)*unitsPerPatternByte + exotic*unitsPerExotic
	if ranges > 0 && foldFlag.MatchString(pattern) {
		n += ranges * unitsPerFolded
	}
	return n
}

// statesOf is the size of the automaton: repetitions are written out in it. Classes of many ranges
// count more, for each letter is searched in them.
func statesOf(re *syntax.Regexp) int {
	n := 1
	for _, sub := range re.Sub {
		n += 1 + statesOf(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += len(re.Rune)
	case syntax.OpCharClass:
		n += bits.Len(uint(len(re.Rune) / 8))
	case syntax.OpRepeat:
		n *= max(1, re.Min+1, re.Max)
	default: // an operator of one state
	}
	return n
}

// liveOf is how many states can be live at a time. Of ^.{1,1000}$ that is one copy of the letter,
// and what follows: each text of n letters leads to the nth copy, and to no other. With a second
// repetition, or one that may begin anywhere, all of them can be.
func liveOf(re *syntax.Regexp) int {
	if re.Op != syntax.OpConcat || re.Sub[0].Op != syntax.OpBeginText {
		return statesOf(re)
	}
	n, repeats := 1, 0
	for _, part := range re.Sub {
		if isLetter(part) || part.Op == syntax.OpLiteral || part.Op == syntax.OpEndText || part == re.Sub[0] {
			n += 1 + statesOf(part)
			continue
		}
		if repeats++; repeats > 1 || !repeatsLetter(part) {
			return statesOf(re)
		}
		n += 1 + 2 + statesOf(part.Sub[0])
	}
	return n
}

// repeatsLetter says whether a part is like x*, x+, x? or x{1,9}.
func repeatsLetter(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		return isLetter(re.Sub[0])
	default:
		return false
	}
}

// isLetter says whether each match is one letter.
func isLetter(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune) == 1
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return true
	default:
		return false
	}
}
