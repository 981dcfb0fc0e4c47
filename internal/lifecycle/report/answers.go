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

// Lacking is what a time-out that is due waits for.
type Lacking int

// What a time-out waits for.
const (
	LacksAnswers Lacking = iota // of workers
	LacksOutputs                // of what is over
	LacksSignals                // to steps that wait for one: decisions of people
)

// missingText says why what a time-out waits for cannot be had; "" if it can. It is the same for as
// long as that lasts.
func missingText(a *facts.Answers, lacking Lacking) string {
	if a.MissingSince.IsZero() {
		return ""
	}
	what := "whether workers answered in time cannot be found out"
	switch lacking {
	case LacksOutputs:
		what = "outputs of what is over cannot be read or stored"
	case LacksSignals:
		what = "whether somebody decided in time cannot be found out"
	case LacksAnswers:
	}
	return fmt.Sprintf("%s since %s: %s", what, a.MissingSince.UTC().Format(time.RFC3339), bounds.Printable(a.Cause, bounds.MaxMessageChars/4))
}

// deferredText says that a time-out waits for answers that cannot be had; "" if none does.
func (r *Report) deferredText() string {
	missing := missingText(&r.in.Answers, r.found.Lacking)
	if !r.found.Deferred || missing == "" {
		return ""
	}
	return fmt.Sprintf("time-outs wait until %s at most, because %s; ", r.in.Answers.PatienceEnd().UTC().Format(time.RFC3339), missing)
}

// unheardText is added to the words about a time-out at a moment that was decided without that
// knowledge.
func unheardText(a *facts.Answers, at, now time.Time) string {
	if missing := missingText(a, LacksAnswers); missing != "" && a.GivenUp(now) && !a.Cover(at) {
		return "; " + missing
	}
	return ""
}

// DeadlineUnheard is added to the words about a deadline of the run that was decided without
// answers which may be there, or without outputs or signals that waited; "" if it was not.
func DeadlineUnheard(a *facts.Answers, lacking Lacking, at, now time.Time) string {
	if lacking != LacksAnswers && a.GivenUp(now) {
		return "; " + missingText(a, lacking)
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
	if c == nil || !strings.Contains(c.Message, missingText(&r.in.Answers, r.found.Lacking)) {
		r.warn("TimeoutWaits", strings.TrimSuffix(waits, "; "))
	}
	return bounds.Cut(waits+text, bounds.MaxMessageChars)
}
