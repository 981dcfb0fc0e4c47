// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
)

// Items is how far the items of a step with forEach are.
type Items struct {
	Total       int32  `json:"total"`
	Succeeded   int32  `json:"succeeded"`
	Failed      int32  `json:"failed"`
	FailedItems string `json:"failedItems,omitempty"` // as ranges, as far as status lists them
	Running     int    `json:"running"`               // a worker said Started
	Dispatched  int    `json:"dispatched"`            // waits for a worker
	BackingOff  int    `json:"backingOff"`
	Locking     int    `json:"locking,omitempty"` // waits for its locks
	Pending     int32  `json:"pending"`           // did not begin
	Aside       int    `json:"aside,omitempty"`   // in flight, and their answer is a dead letter
}

// items counts those of a step; nil: it has none, or did not begin.
func (s *step) items() *Items {
	f := s.status.ForEach
	if f == nil {
		return nil
	}
	n := &Items{Total: f.Total, Succeeded: f.Succeeded, Failed: f.Failed, FailedItems: Printable(f.FailedItems, maxErrorChars), Pending: f.Total - f.Begun}
	for i := range f.Groups {
		set, err := itemset.Parse(f.Groups[i].Items)
		if err != nil {
			continue
		}
		switch g := &f.Groups[i]; {
		case g.DeadLetter != "":
			n.Aside += set.Len()
		case g.Phase == v1alpha1.StepRunning:
			n.Running += set.Len()
		case g.Phase == v1alpha1.StepDispatched:
			n.Dispatched += set.Len()
		case g.Phase == v1alpha1.StepPending:
			n.Locking += set.Len()
		default:
			n.BackingOff += set.Len()
		}
	}
	return n
}

// text says how far they are, in few words.
func (n *Items) text() string {
	if n == nil {
		return ""
	}
	over := fmt.Sprintf("%d of %d items over", n.Succeeded+n.Failed, n.Total)
	switch {
	case n.FailedItems != "":
		over += fmt.Sprintf(" (%d failed: %s)", n.Failed, n.FailedItems)
	case n.Failed > 0:
		over += fmt.Sprintf(" (%d failed)", n.Failed)
	}
	parts := []string{over}
	for _, part := range []struct {
		count int
		what  string
	}{{n.Running, "running"}, {n.Dispatched, "waiting for workers"}, {n.Aside, "with a dead letter as answer"}, {n.BackingOff, "backing off"}, {n.Locking, "waiting for locks"}, {int(n.Pending), "to begin"}} {
		if part.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.count, part.what))
		}
	}
	return strings.Join(parts, ", ")
}

// itemMoments are when something is due among the items of a step: the first time-out, and the
// first next attempt.
func (s *step) itemMoments(suspended bool) []Moment {
	if s.status.ForEach == nil || !inFlight(s.status.Phase) {
		return nil
	}
	var all []Moment
	for i := range s.status.ForEach.Groups {
		g := &s.status.ForEach.Groups[i]
		of := fmt.Sprintf(" of items %s of step %s", Printable(g.Items, maxErrorChars), s.spec.Name)
		one := step{spec: s.spec, status: v1alpha1.StepStatus{Phase: g.Phase, DispatchedAt: g.DispatchedAt, StartedAt: g.StartedAt}}
		if at, code := one.timeout(); at != nil {
			all = append(all, Moment{*at, "attempt" + of + " fails as " + code})
		}
		if at := microTime(g.NextAttemptAt); at != nil && !suspended {
			all = append(all, Moment{*at, "next attempt" + of})
		}
	}
	return all
}

// asideText says that nobody works at an attempt of a step any more; "": somebody may.
func (s *step) asideText() string {
	if s.status.DeadLetter == "" {
		return ""
	}
	return "its answer is a dead letter"
}

// aside says whether nobody works at a step in flight any more: the answers are dead letters.
func (s *step) aside() bool {
	n := s.items()
	return s.status.DeadLetter != "" || n != nil && n.Aside > 0 && n.Running+n.Dispatched == 0
}

// waitsSince is when the items that wait for workers were dispatched first; nil: none waits.
func (s *step) waitsSince() *time.Time {
	var since *time.Time
	for i := range s.status.ForEach.Groups {
		if g := &s.status.ForEach.Groups[i]; g.Phase == v1alpha1.StepDispatched && g.DeadLetter == "" {
			since = earlier(since, microTime(g.DispatchedAt))
		}
	}
	return since
}
