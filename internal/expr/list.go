// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Bounds of a list.
const (
	// MaxListItems is the number of its items.
	MaxListItems = 10_000
	// MaxListBytes bounds all its items together, in bytes; each is bounded by MaxRenderedBytes and
	// MaxDepth. A list can hold the same large text in each item, so what it is made of says
	// nothing about its size.
	MaxListBytes = 4 << 20
	// MaxListMemory bounds what all its items take in memory, in bytes, by MemoryOf: an object with
	// one key has ten bytes of text and takes some 400.
	MaxListMemory = 16 << 20
	// MaxListCost bounds its evaluation, in cost units, instead of MaxCost: it is made once for all
	// of its items, and 10,000 of them may have 100 units each.
	MaxListCost = 1_000_000
)

// List evaluates src, one ${expression} with nothing around it, to the items of a list: nil, bool,
// int64, uint64, float64, string, []any and map[string]any. They are nobody else's, so they may be
// kept, and they stand for Vars.Item without a conversion. To write them as JSON and read them back
// does not give the same: 2.0 would become 2, which is an int.
//
// Its error is an *Error; one that wraps ErrNotList if src gave something else, and ErrTooLarge if
// the list is beyond the bounds.
func (s *Scope) List(src string) ([]any, error) {
	p, err := list(src, options{item: s.hasItem})
	if err != nil {
		return nil, err
	}
	w := s.work(MaxListCost)
	out, err := p.eval(s.activation(s.item, s.hasItem, w))
	s.spent += w.Spent() + p.cost
	if err != nil {
		return nil, wrong(p.text, err)
	}
	items, err := itemsOf(out)
	if err != nil {
		return nil, wrong(p.text, err)
	}
	return items, nil
}

// ListSteps checks src, whose type is to be a list, or unknown until it is evaluated. It lists the
// steps that src reads, as ConditionSteps does. Its error is an *Error, or ErrUnread.
func ListSteps(src string, with ...Option) ([]string, error) {
	o := optionsOf(with)
	p, err := list(src, o)
	if err != nil {
		return nil, err
	}
	return p.steps, p.fieldsKnown(o)
}

// ListOutputs says which outputs src reads. Its error is an *Error, or ErrUnread.
func ListOutputs(src string, with ...Option) (Outputs, error) {
	p, err := list(src, optionsOf(with))
	if err != nil {
		return Outputs{}, err
	}
	return p.outputs, nil
}

func list(src string, o options) (*program, error) {
	parts, err := split(src)
	if err != nil {
		return nil, err
	}
	if len(parts) != 1 || !parts[0].expression {
		return nil, wrong(src, errors.New("it must be one ${...} with nothing before or after it"))
	}
	text := parts[0].text
	p, err := o.compile(text)
	if err != nil {
		return nil, err
	}
	if t := p.outputType; t.Kind() != types.ListKind && !t.IsExactType(cel.DynType) {
		return nil, wrong(text, fmt.Errorf("%w, it is %s", ErrNotList, article(cel.FormatCELType(t))))
	}
	return p, nil
}

// itemsOf makes plain values of a CEL list, within the bounds.
func itemsOf(val ref.Val) ([]any, error) {
	val = unwrapOptional(val)
	l, ok := val.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("%w, it gave %s", ErrNotList, article(kind(val)))
	}
	size, _ := l.Size().(types.Int)
	if size > MaxListItems {
		return nil, fmt.Errorf("%w: the list has %d items, more than %d", ErrTooLarge, size, MaxListItems)
	}
	items, left, memory := make([]any, size), MaxListBytes, MaxListMemory
	for i := range items {
		b := room{left: MaxRenderedBytes, memory: memory}
		item, err := b.plain(l.Get(types.Int(i)))
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if left -= MaxRenderedBytes - b.left; left < 0 {
			return nil, fmt.Errorf("%w: the items have more than %d bytes together", ErrTooLarge, MaxListBytes)
		}
		items[i], memory = item, b.memory
	}
	return items, nil
}
