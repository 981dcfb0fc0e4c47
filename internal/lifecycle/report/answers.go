// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// missingText says why answers, or outputs of what is over, cannot be had; "" if they can. It is
// the same for as long as that lasts.
func missingText(a *facts.Answers, outputs bool) string {
	if a.MissingSince.IsZero() {
		return ""
	}
	what := "whether workers answered in time cannot be found out"
	if outputs {
		what = "outputs of what is over cannot be read or stored"
	}
	return fmt.Sprintf("%s since %s: %s", what, a.MissingSince.UTC().Format(time.RFC3339), bounds.Printable(a.Cause, bounds.MaxMessageChars/4))
}

// deferredText says that a time-out waits for answers that cannot be had; "" if none does.
func (r *Report) deferredText() string {
	missing := missingText(&r.in.Answers, r.found.OutputsWait)
	if !r.found.Deferred || missing == "" {
		return ""
	}
	return fmt.Sprintf("time-outs wait until %s at most, because %s; ", r.in.Answers.PatienceEnd().UTC().Format(time.RFC3339), missing)
}

// unheardText is added to the words about a time-out at a moment that was decided without that
// knowledge.
func unheardText(a *facts.Answers, at, now time.Time) string {
	if missing := missingText(a, false); missing != "" && a.GivenUp(now) && !a.Cover(at) {
		return "; " + missing
	}
	return ""
}

// DeadlineUnheard is added to the words about a deadline of the run that was decided without
// answers which may be there, or without outputs that waited; "" if it was not.
func DeadlineUnheard(a *facts.Answers, outputs bool, at, now time.Time) string {
	if outputs && a.GivenUp(now) {
		return "; " + missingText(a, true)
	}
	return unheardText(a, at, now)
}

// noteDeferred puts before the words about a run that a time-out waits, and tells it once.
func (r *Report) noteDeferred(text string) string {
	waits := r.deferredText()
	if waits == "" {
		return text
	}
	c := status.Condition(r.st, v1alpha1.ConditionSucceeded)
	if c == nil || !strings.Contains(c.Message, missingText(&r.in.Answers, r.found.OutputsWait)) {
		r.warn("TimeoutWaits", strings.TrimSuffix(waits, "; "))
	}
	return bounds.Cut(waits+text, bounds.MaxMessageChars)
}
