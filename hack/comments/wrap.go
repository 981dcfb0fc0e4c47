// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const limit = 100

func columns(line string) int {
	return utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
}

var (
	// plain is a line of a paragraph: one space, then text.
	plain = regexp.MustCompile(`^// [^\s]`)
	// item is the first line of a list's item: its indent, its bullet or number, and its text.
	item = regexp.MustCompile(`^(// *(?:[-*•]|\d{1,2}[.)]) +)(\S.*)$`)
	// marked is what is no text though it looks like one: a marker of a generator, a heading, a
	// link's target, a row of a table.
	marked = regexp.MustCompile(`^// (?:\+\w|#|\[[^\]]+\]: |\|)`)
	// spaced has columns of its own.
	spaced = regexp.MustCompile(`\S(?:  +|\t)\S`)
	// output begins what a test compares.
	output = regexp.MustCompile(`(?i)^// (?:unordered )?output:`)
	// begins are words that would have a meaning at the beginning of a line.
	begins = regexp.MustCompile(`^(?:[-*•+|]|\d{1,2}[.)]|#+|//.*|\+\w.*|\[[^\]]+\]:)$`)
	// label begins a line that was meant as one, as in "Invariant: ...".
	label = regexp.MustCompile(`^// [A-Za-z]\w*: `)
	ends  = regexp.MustCompile(`[.:;!?][)"'\x60]*$`)
)

// isText says whether a line belongs to a paragraph.
func isText(line string) bool {
	return plain.MatchString(line) && !marked.MatchString(line) && !spaced.MatchString(line) && !item.MatchString(line)
}

// isItem says whether a line begins an item whose text may be wrapped.
func isItem(line string) bool {
	m := item.FindStringSubmatch(line)
	return m != nil && !spaced.MatchString(m[2]) && strings.HasPrefix(line, "// ")
}

// block is a paragraph, or an item of a list: what its first line begins with, and what
// the others do.
type block struct {
	from, to    int
	first, rest string
}

// blocksOf are the parts of a comment that may be wrapped. Anything between them stays as it is.
func blocksOf(lines []string) (all []block) {
	for i := 0; i < len(lines) && !output.MatchString(lines[i]); {
		n, first, rest := paragraph(lines[i:])
		if n > 0 {
			all = append(all, block{i, i + n, first, rest})
		}
		i += max(n, 1)
	}
	return all
}

// tooLong says whether a line of a block is above the limit and has more than one word.
func tooLong(indent, line string) bool {
	return columns(indent+line) > limit && len(strings.Fields(strings.TrimPrefix(line, "//"))) > 1
}

// wrap gives lines that are too long a new form, together with what follows them in their block.
func wrap(indent string, lines []string) []string {
	var result []string
	done := 0
	for _, b := range blocksOf(lines) {
		result = append(result, lines[done:b.from]...)
		result = append(result, b.fill(indent, lines[b.from:b.to])...)
		done = b.to
	}
	return append(result, lines[done:]...)
}

// paragraph is how many lines from the first on belong together, what the first of them begins
// with, and what the others do. 0 is none.
func paragraph(lines []string) (n int, first, rest string) {
	more := isText
	switch {
	case isText(lines[0]):
		first, rest = "// ", "// "
	case isItem(lines[0]):
		first = item.FindStringSubmatch(lines[0])[1]
		if rest = "// "; !plain.MatchString(lines[0]) { // gofmt takes an indented line after one that is not for code
			rest = "//" + strings.Repeat(" ", len([]rune(first))-2)
			more = furtherOf(rest)
		}
	default:
		return 0, "", ""
	}
	n = 1
	for n < len(lines) && more(lines[n]) && !meant(lines[n-1], lines[n]) && !output.MatchString(lines[n]) {
		n++
	}
	return n, first, rest
}

// furtherOf matches the further lines of an item, which begin below its text.
func furtherOf(rest string) func(line string) bool {
	return func(line string) bool {
		text, ok := strings.CutPrefix(line, rest)
		return ok && text != "" && text[0] != ' ' && !spaced.MatchString(text) && !item.MatchString(line)
	}
}

// meant says whether a line break is to stay: the sentence is over, and the next word had room, or
// is a label.
func meant(line, next string) bool {
	word := strings.Fields(next)[1]
	return ends.MatchString(line) && (columns(line)+1+columns(word) <= limit-20 || label.MatchString(next))
}

// fill wraps a block from its first long line on.
func (b block) fill(indent string, lines []string) []string {
	long := slices.IndexFunc(lines, func(l string) bool { return tooLong(indent, l) })
	if long < 0 {
		return lines
	}
	prefix := b.rest
	if long == 0 {
		prefix = b.first
	}
	texts := []string{lines[long][len(prefix):]}
	for _, l := range lines[long+1:] {
		texts = append(texts, l[len(b.rest):])
	}
	words := wordsOf(strings.Join(texts, " "))
	best := b.lines(indent, prefix, words, limit)
	for width := limit - 1; width >= narrowest && lonely(best); width-- {
		if narrower := b.lines(indent, prefix, words, width); len(narrower) == len(best) {
			best = narrower
		}
	}
	return append(slices.Clone(lines[:long]), best...)
}

// narrowest is how far lines are shortened so that the last has more than a word or two.
const narrowest = limit - 15

func lonely(lines []string) bool {
	return len(lines) > 1 && len(strings.Fields(lines[len(lines)-1])) <= 3 // one is the comment's mark
}

// lines fills lines of a width.
func (b block) lines(indent, prefix string, words []string, width int) (all []string) {
	current := prefix + words[0]
	for _, w := range words[1:] {
		if columns(indent+current)+1+columns(w) > width {
			all = append(all, current)
			current = b.rest + w
			continue
		}
		current += " " + w
	}
	return append(all, current)
}

// wordsOf splits a text where a line may end: not before a word that would have a meaning at the
// beginning of the next.
func wordsOf(text string) (words []string) {
	for w := range strings.FieldsSeq(text) {
		if len(words) > 0 && begins.MatchString(w) {
			words[len(words)-1] += " " + w
			continue
		}
		words = append(words, w)
	}
	return words
}
