// SPDX-License-Identifier: Apache-2.0

package document

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// MaxBytes is the size of the text of a document.
const MaxBytes = 1<<28 - 1

// ErrTooLarge says that a text has more than MaxBytes, or a value more than were asked for.
// No retry helps.
var ErrTooLarge = errors.New("the JSON text is too large")

// Kind is what a value is.
type Kind uint8

// Kinds of values.
const (
	Null Kind = iota
	False
	True
	Number
	String
	List
	Object

	escaped Kind = 7 // a String whose text is not that between its quotes
)

// node is a value: of a list or an object, the first of its parts among the nodes and how many
// there are (a key and its value count as one); else where its text begins, without quotes,
// and its length.
type node struct {
	at   uint32
	size uint32 // the three highest bits are the kind
}

const sizeBits = 29

func newNode(k Kind, at, size int) node {
	return node{at: uint32(at), size: uint32(k)<<sizeBits | uint32(size)} // both are below MaxBytes
}

func (n node) kind() Kind { return Kind(n.size >> sizeBits) }
func (n node) len() int   { return int(n.size & (1<<sizeBits - 1)) }

// Document is a JSON text that was parsed.
type Document struct {
	text  []byte
	nodes []node
}

// Value is one value in a document. The zero Value is of no document and must not be used.
type Value struct {
	doc  *Document
	node node
}

// Parse reads one JSON document. Its error wraps ErrTooLarge, or is that of encoding/json. The text
// is kept, and must not change. pause is called now and then if it is not nil.
func Parse(text []byte, pause func()) (*Document, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("%w: %d bytes, more than %d", ErrTooLarge, len(text), MaxBytes)
	}
	c, ok := Check(text, pause)
	if ok {
		return c.Parse(pause), nil
	}
	var discarded json.RawMessage
	if err := json.Unmarshal(text, &discarded); err != nil {
		return nil, err
	}
	return nil, errors.New("not JSON")
}

// Parse reads the document as the function Parse does, but does not check it again.
func (c Checked) Parse(pause func()) *Document {
	p := parser{Document: Document{text: c.text, nodes: make([]node, c.n)}, rest: pausing(pause)}
	p.top = len(p.nodes)
	p.value()
	return &p.Document
}

// Root is the document as a value.
func (d *Document) Root() Value { return Value{d, d.nodes[len(d.nodes)-1]} }

// Bytes is about what the document takes in memory, its text included.
func (d *Document) Bytes() int { return len(d.text) + len(d.nodes)*8 }

// Kind is what the value is.
func (v Value) Kind() Kind {
	if k := v.node.kind(); k != escaped {
		return k
	}
	return String
}

// Len is how many elements a list, or keys an object has; else 0.
func (v Value) Len() int {
	if k := v.Kind(); k == List || k == Object {
		return v.node.len()
	}
	return 0
}

// Index is element i of a list, 0 <= i < Len.
func (v Value) Index(i int) Value { return Value{v.doc, v.doc.nodes[int(v.node.at)+i]} }

// Key is key i of an object in the order of their bytes, 0 <= i < Len.
func (v Value) Key(i int) string { return Value{v.doc, v.doc.nodes[int(v.node.at)+2*i]}.Text() }

// At is the value of key i of an object.
func (v Value) At(i int) Value { return Value{v.doc, v.doc.nodes[int(v.node.at)+2*i+1]} }

// Lookup is the value of a key of an object.
func (v Value) Lookup(key string) (Value, bool) {
	i := sort.Search(v.Len(), func(i int) bool {
		return v.doc.compare(v.doc.nodes[int(v.node.at)+2*i], key) >= 0
	})
	if i == v.Len() || v.doc.compare(v.doc.nodes[int(v.node.at)+2*i], key) != 0 {
		return Value{}, false
	}
	return v.At(i), true
}

// Text is the text of a String, and that of a Number as it was written.
func (v Value) Text() string {
	if v.node.kind() == escaped {
		return unescaped(v.doc.raw(v.node))
	}
	return string(v.doc.raw(v.node))
}

// Number is that of a Number: int64, else float64. Its error says that it is beyond float64.
func (v Value) Number() (any, error) {
	text := v.Text()
	if !strings.ContainsAny(text, ".eE") {
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return i, nil
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("number %.80s is out of range", text)
	}
	return f, nil
}

// raw is the text of a scalar, without quotes.
func (d *Document) raw(n node) []byte { return d.text[n.at : int(n.at)+n.len()] }

// compare compares the text of a key with another text.
func (d *Document) compare(n node, text string) int {
	if n.kind() != escaped {
		return cmp.Compare(string(d.raw(n)), text) // the compiler makes no copy for that
	}
	c := cursor{text: d.raw(n)}
	return c.compareText(text)
}
