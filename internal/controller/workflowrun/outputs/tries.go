// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Tries are what the decisions that follow each other lack. What fails is not tried again for the
// next of them, and holds up nothing else.
type Tries struct {
	session *Session
	failed  map[string]bool // outputs, by name
	unkept  bool            // one of them was to be stored
	// Cause is why some could not be stored or read; nil: all could.
	Cause error
}

// Tries begins with all that may be lacking.
func (s *Session) Tries() *Tries {
	s.tries = &Tries{session: s, failed: map[string]bool{}}
	return s.tries
}

// Lacks says whether a result whose output is in the object store waits for that. Ref is nil if its
// output is not there: it waits for any that could not be stored or read.
func (s *Session) Lacks(ref *protocol.OutputRef) bool {
	if s.Lacking == nil || s.tries == nil || s.tries.unkept || ref == nil {
		return s.Lacking != nil
	}
	return s.tries.failed[ref.Name]
}

// Supply stores and reads what a decision lacks and what did not fail before. It says whether
// another decision has more to decide on.
func (t *Tries) Supply(ctx context.Context, n lifecycle.Needs) (more bool) {
	n.Store = slices.DeleteFunc(slices.Clone(n.Store), func(s lifecycle.StoredOutput) bool { return t.failed[s.Ref.Name] })
	n.Check, n.Load = t.untried(n.Check), t.untried(n.Load)
	if !n.Outputs() {
		return false
	}
	failed, err := t.session.supply(ctx, n)
	maps.Copy(t.failed, failed)
	t.Cause = errors.Join(t.Cause, err)
	t.unkept = t.unkept || slices.ContainsFunc(n.Store, func(s lifecycle.StoredOutput) bool { return failed[s.Ref.Name] })
	each(n, func(ref protocol.OutputRef) { more = more || !failed[ref.Name] })
	return more
}

func (t *Tries) untried(refs []protocol.OutputRef) []protocol.OutputRef {
	return slices.DeleteFunc(slices.Clone(refs), func(ref protocol.OutputRef) bool { return t.failed[ref.Name] })
}
