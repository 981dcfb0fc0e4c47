package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// waitsFor says what a run under way waits for: the reason and message of Succeeded=Unknown. The message names moments, never
// durations or the present, so that it changes only with a transition.
func (d *decider) waitsFor() (reason, message string) {
	if c := condition(&d.st, v1alpha1.ConditionAdmitted); d.queued() && c != nil {
		return v1alpha1.ReasonQueued, cut(c.Message, maxMessageChars)
	}
	active, backing := 0, 0
	for i := range d.st.Steps {
		switch {
		case inFlight(d.st.Steps[i].Phase):
			active++
		case d.st.Steps[i].Phase == v1alpha1.StepBackingOff:
			backing++
		}
	}
	text := stateText(d.st.Steps)
	switch {
	case d.run.Spec.Suspend:
		return v1alpha1.ReasonSuspended, cut("suspended by spec.suspend; "+text, maxMessageChars)
	case active == 0 && backing > 0:
		return v1alpha1.ReasonBackingOff, text
	default:
		return v1alpha1.ReasonRunning, text
	}
}

// stateText tells how far the steps are and what the unfinished ones that began wait for.
func stateText(steps []v1alpha1.StepStatus) string {
	l := newList(fmt.Sprintf("%s steps finished", strings.Replace(progress(steps, len(steps)), "/", " of ", 1)))
	for i := range steps {
		switch s := &steps[i]; s.Phase {
		case v1alpha1.StepRunning:
			l.add(fmt.Sprintf("%s runs since %s (attempt %d)", s.Name, timeText(s.StartedAt), s.Attempt))
		case v1alpha1.StepDispatched:
			l.add(fmt.Sprintf("%s waits for a worker since %s (attempt %d)", s.Name, timeText(s.DispatchedAt), s.Attempt))
		case v1alpha1.StepPending, v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
		case v1alpha1.StepBackingOff:
			l.add(fmt.Sprintf("%s waits for its next attempt at %s (attempt %d: %s)", s.Name, timeText(s.NextAttemptAt), s.Attempt, errorText(s.Error)))
		}
	}
	return l.text(maxMessageChars)
}

func problemsText(problems []string) string {
	l := newList("")
	for _, p := range problems {
		l.add(cut(p, maxMessageChars))
	}
	return l.text(maxProblemsChars)
}

func successText(steps, skipped int) string {
	text := fmt.Sprintf("%d of %d steps succeeded", steps-skipped, steps)
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	return text
}

func failureText(s *v1alpha1.StepStatus) string {
	if s.Attempt == 0 { // it failed before it was dispatched
		return cut(fmt.Sprintf("step %s failed: %s", s.Name, errorText(s.Error)), maxMessageChars)
	}
	return cut(fmt.Sprintf("step %s failed: %s (attempt %d, failures %d)", s.Name, errorText(s.Error), s.Attempt, s.Failures), maxMessageChars)
}

func errorText(e *v1alpha1.StepError) string {
	switch {
	case e == nil:
		return "not an error"
	case e.Message == "":
		return e.Code
	default:
		return e.Code + ": " + cut(e.Message, maxMessageChars/2)
	}
}

// progress is "finished/all"; skipped steps count as finished, cancelled ones do not.
func progress(steps []v1alpha1.StepStatus, all int) string {
	finished := 0
	for i := range steps {
		if passed(steps[i].Phase) || steps[i].Phase == v1alpha1.StepFailed {
			finished++
		}
	}
	return strconv.Itoa(finished) + "/" + strconv.Itoa(all)
}

// list is "head; a; b; and N more" within a bound.
type list struct{ parts []string }

func newList(head string) *list {
	if head == "" {
		return &list{}
	}
	return &list{parts: []string{head}}
}

func (l *list) add(part string) { l.parts = append(l.parts, part) }

// text joins what fits in limit characters and counts the rest. The first part always stands.
func (l *list) text(limit int) string {
	const reserve = len("; and 200 more")
	var b strings.Builder
	for i, part := range l.parts {
		if i > 0 && b.Len()+len(part)+reserve > limit {
			fmt.Fprintf(&b, "; and %d more", len(l.parts)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(part)
	}
	return cut(b.String(), limit)
}

// cut bounds a text to n characters and makes it valid UTF-8.
func cut(s string, n int) string {
	if len(s) > n*utf8.UTFMax {
		s = s[:n*utf8.UTFMax] // bounds the work on a text of any length
	}
	s = strings.ToValidUTF8(s, "?")
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// cutBytes bounds a text to n bytes.
func cutBytes(s string, n int) string {
	s = cut(s, maxMessageChars)
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// printable replaces control characters: a worker's text must not cut or colour the lines of whoever reads it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// cutStored bounds a text to what takes at most n bytes in JSON.
func cutStored(s string, n int) string {
	if storedBytes(s) <= n {
		return s
	}
	used := storedBytes("")
	for i, r := range s {
		if used += storedBytes(string(r)) - storedBytes(""); used > n {
			return s[:i]
		}
	}
	return s
}
