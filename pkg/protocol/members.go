// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
)

// member is one of a JSON object, and where its value goes.
type member struct {
	name string
	into any // a pointer, as for json.Unmarshal
}

// readMembers reads some members of a JSON object, and no others. encoding/json would take one
// whose name differs in case for the one that is meant: the schemas do not, nor do other languages,
// and what a later version, or a worker for itself, calls so must not take its place.
func readMembers(object []byte, want ...member) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		if other, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return fmt.Errorf("want a JSON object, got a JSON %.40s", other.Value)
		}
		return err
	}
	for _, m := range want {
		value, ok := all[m.name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(value, m.into); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}
