// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/syncopate-dev/syncopate/internal/document"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// The outputs of items are kept in status while they are small, then in the object store, as
// many in one object as come with one decision: a write costs one object at most, and status has
// one reference for each. When the last item is over they are put together as the list that is
// the step's output.

// freshOutput is the output of an item that succeeds with this decision.
type freshOutput struct {
	raw     json.RawMessage // nil: none
	results []int           // by index of Input.Results: the ones that say so
}

// Held are the outputs of items in status, in the form in which the API server hands them back.
func (it *Items) Held() []byte {
	if it.St.Outputs == nil {
		return nil
	}
	return it.St.Outputs.Raw
}

// Outputs of items are kept as the JSON text [[item, output], ...], so that more are added without
// a look at those before, but the 4 KiB in status: what a result costs must not depend on how many
// came earlier. It does a little where each decision makes an object, for outputs that are large,
// or nested 99 deep or more: when there are 24 objects, all are read and made one.

// WithFresh is the outputs in status and the fresh ones, as the object store has them; nil if there
// are none. fresh says whether there are any of the latter.
func (it *Items) WithFresh() (text []byte, fresh bool) {
	var parts [][]byte
	for _, item := range slices.Sorted(maps.Keys(it.fresh)) {
		if raw := it.fresh[item].raw; raw != nil {
			parts = append(parts, slices.Concat(fmt.Appendf(nil, "[%d,", item), raw, []byte("]")))
		}
	}
	if parts == nil {
		return it.Held(), false
	}
	all := slices.Concat([]byte("["), bytes.Join(parts, []byte(",")), []byte("]"))
	return Joined([][]byte{it.heldPlain(), all}), true
}

// heldPlain is Held as the object store has it: outputs must not grow with each stay in status.
func (it *Items) heldPlain() []byte {
	held := it.Held()
	if !bytes.Contains(held, []byte(`\u`)) {
		return held
	}
	if plain, err := bounds.Plain(held, nil); err == nil {
		return plain
	}
	return held // ListOf says what is wrong with it
}

// Joined is one text of several; a nil one has no outputs.
func Joined(parts [][]byte) []byte {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	text := append(make([]byte, 0, size+len("[]")), '[')
	for _, p := range parts {
		if len(p) < len("[]") {
			continue
		}
		if len(text) > len("[") {
			text = append(text, ',')
		}
		text = append(text, p[1:len(p)-1]...)
	}
	return append(text, ']')
}

// ListOf is the outputs of items as a JSON list, null where there is none. pause is called now and
// then if it is not nil.
func ListOf(parts [][]byte, total int, pause func()) ([]byte, error) {
	all := make([][]byte, total)
	for i := range all {
		all[i] = []byte("null")
	}
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		var wrong error
		ok := document.Elements(p, func(element []byte) {
			if err := place(all, element, pause); err != nil && wrong == nil {
				wrong = err
			}
		}, pause)
		if !ok && wrong == nil {
			wrong = errors.New("not a list of outputs: it is no JSON list")
		}
		if wrong != nil {
			return nil, wrong
		}
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]")), nil
}

// place puts the output of [item, output] into its place.
func place(all [][]byte, pair []byte, pause func()) error {
	var parts [][]byte
	if !document.Elements(pair, func(part []byte) { parts = append(parts, part) }, pause) || len(parts) != 2 {
		return fmt.Errorf("not a list of outputs: %.20q is no pair of item and output", pair)
	}
	item, err := strconv.Atoi(string(parts[0]))
	if err != nil || item < 0 || item >= len(all) {
		return fmt.Errorf("there is no item %.20q", parts[0])
	}
	all[item] = parts[1]
	return nil
}
