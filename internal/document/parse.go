// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"slices"
	"sort"
	"unicode/utf8"
)

// parser fills the nodes of a valid text from both ends. From the front: parts of lists and objects
// that were read as a whole. From the back, as a stack: values whose list or object goes on. All of
// them together are as many as were counted, so neither reaches the other.
type parser struct {
	Document
	at    int // in the text
	front int // nodes that have their place
	top   int // of the stack; nodes from there on are on it

	rest     pauses
	compared int // keys since the last pause, long ones as several
}

// ends are the bytes that end a number, or true, false or null.
var ends = [256]bool{' ': true, '\t': true, '\r': true, '\n': true, ',': true, ':': true, ']': true, '}': true}

// scalarEnd is the index after the number, or true, false or null, that begins at i.
func scalarEnd(text []byte, i int) int {
	for i < len(text) && !ends[text[i]] {
		i++
	}
	return i
}

// value reads a value and pushes it. Its recursion is bounded by the depth that
// encoding/json allows.
func (p *parser) value() {
	p.skip()
	switch p.text[p.at] {
	case '[':
		p.list()
	case '{':
		p.object()
	case '"':
		p.string()
	default:
		p.scalar()
	}
}

// skip is small enough to be part of whoever calls it.
func (p *parser) skip() {
	for p.text[p.at] <= ' ' {
		p.at++
	}
}

// next skips to the next token, and over it if it is a comma or a colon; it says whether it ends
// what is being read.
func (p *parser) next(end byte) (ended bool) {
	p.skip()
	switch p.text[p.at] {
	case end:
		p.at++
		return true
	case ',', ':':
		p.at++
		p.skip()
	}
	return false
}

func (p *parser) push(n node) {
	p.top--
	p.nodes[p.top] = n
}

func (p *parser) list() {
	p.at++
	before := p.top
	for !p.next(']') {
		p.rest.at(p.at)
		p.value()
	}
	n := before - p.top
	first := p.settle(before)
	p.top = before
	p.push(newNode(List, first, n))
}

// settle gives the parts that were pushed since then their place, and says where it is; the stack
// is as long as before once they are popped.
func (p *parser) settle(before int) (first int) {
	parts := p.nodes[p.top:before]
	first = p.front
	p.front += len(parts)
	if p.front <= p.top {
		for i, n := range parts {
			p.nodes[p.front-1-i] = n
		}
		return first
	}
	slices.Reverse(parts) // the two overlap
	copy(p.nodes[first:p.front], parts)
	return first
}

func (p *parser) object() {
	p.at++
	before := p.top
	for !p.next('}') {
		p.rest.at(p.at)
		p.string()
		p.next(':')
		p.value()
	}
	first := p.settle(before)
	n := p.inOrder(p.nodes[first:p.front])
	p.front = first + 2*n
	p.top = before
	p.push(newNode(Object, first, n))
}

func (p *parser) string() {
	begin := p.at + 1
	end, kind := plainEnd(p.text, begin), String
	for p.text[end] != '"' {
		end, kind = plainEnd(p.text, end+2), escaped // behind what is escaped; the digits of \u are plain
		p.rest.at(end)
	}
	if kind == String && !utf8.Valid(p.text[begin:end]) {
		kind = escaped
	}
	p.at = end + 1
	p.push(newNode(kind, begin, end-begin))
}

func (p *parser) scalar() {
	begin := p.at
	p.at = scalarEnd(p.text, begin)
	kind := Number
	switch p.text[begin] {
	case 'n':
		kind = Null
	case 'f':
		kind = False
	case 't':
		kind = True
	}
	p.push(newNode(kind, begin, p.at-begin))
}

// inOrder sorts keys with their values, keeps the last of those that are the same, and says how
// many there are.
func (p *parser) inOrder(nodes []node) int {
	o := byKey{p, nodes}
	if o.ordered() {
		return o.Len()
	}
	sort.Sort(o)
	kept := 0
	for i := range o.Len() {
		if i+1 < o.Len() && o.compare(i, i+1) == 0 {
			continue
		}
		nodes[2*kept], nodes[2*kept+1] = nodes[2*i], nodes[2*i+1]
		kept++
	}
	return kept
}

// byKey sorts keys with their values by text; those with the same text as they stand
// in the document.
type byKey struct {
	of    *parser
	nodes []node
}

func (o byKey) Len() int { return len(o.nodes) / 2 }

func (o byKey) Less(i, j int) bool {
	c := o.compare(i, j)
	return c < 0 || c == 0 && o.nodes[2*i].at < o.nodes[2*j].at
}

func (o byKey) Swap(i, j int) {
	o.nodes[2*i], o.nodes[2*j] = o.nodes[2*j], o.nodes[2*i]
	o.nodes[2*i+1], o.nodes[2*j+1] = o.nodes[2*j+1], o.nodes[2*i+1]
}

func (o byKey) compare(i, j int) int {
	a, b := o.nodes[2*i], o.nodes[2*j]
	o.of.compares(1 + min(a.len(), b.len())/comparedBytes)
	if a.kind() != escaped && b.kind() != escaped {
		return bytes.Compare(o.of.raw(a), o.of.raw(b))
	}
	c := cursor{text: o.of.raw(a)}
	return c.compare(&cursor{text: o.of.raw(b)})
}

// compares counts towards the next pause.
func (p *parser) compares(n int) {
	if p.compared += n; p.compared >= comparesBetween && p.rest.pause != nil {
		p.compared = 0
		p.rest.pause()
	}
}

// ordered says whether all keys are in order, and none is there twice.
func (o byKey) ordered() bool {
	for i := 1; i < o.Len(); i++ {
		if o.compare(i-1, i) >= 0 {
			return false
		}
	}
	return true
}
