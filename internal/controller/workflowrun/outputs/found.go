// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"maps"
	"sync"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// found is what a pass found in the object store. Between passes only what is to be said of outputs
// is remembered, not their bytes.
type found struct {
	mu       sync.Mutex
	payloads lifecycle.Payloads
	bytes    int
}

func newFound(before lifecycle.Payloads) *found {
	f := &found{payloads: lifecycle.Payloads{}}
	maps.Copy(f.payloads, before)
	return f
}

func (f *found) note(name string, payload lifecycle.Payload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.payloads[name] = payload
}

// noteStored notes under which reference an output is stored that has another name as it came.
func (f *found) noteStored(name string, ref protocol.OutputRef) {
	f.mu.Lock()
	defer f.mu.Unlock()
	payload := f.payloads[name] // where it came in canonical form, the same
	payload.Stored = &ref
	f.payloads[name] = payload
}

// keep keeps bytes, if all that are kept stay within a bound, and says whether they are there.
func (f *found) keep(name string, payload lifecycle.Payload, bound int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.payloads[name].Data != nil { // two results may refer to the same
		return true
	}
	if f.bytes+len(payload.Data) > bound {
		f.payloads[name] = lifecycle.Payload{Stored: f.payloads[name].Stored}
		return false
	}
	f.bytes, payload.Stored = f.bytes+len(payload.Data), f.payloads[name].Stored
	f.payloads[name] = payload
	return true
}

// held is how many bytes are kept.
func (f *found) held() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.bytes)
}

// facts are the findings without the bytes.
func (f *found) facts() lifecycle.Payloads {
	f.mu.Lock()
	defer f.mu.Unlock()
	facts := make(lifecycle.Payloads, len(f.payloads))
	for name, payload := range f.payloads {
		facts[name] = lifecycle.Payload{Problem: payload.Problem, Stored: payload.Stored}
	}
	return facts
}
