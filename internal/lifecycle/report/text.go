// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

func nothingMore(int) string { return "" }

// stateText tells how far the steps are and what the unfinished ones that began wait for; more adds
// to what one under way does.
func stateText(steps []v1alpha1.StepStatus, more func(int) string) string {
	return stepsText(steps, func(i int) string { return stepText(&steps[i], more(i)) })
}

func stepsText(steps []v1alpha1.StepStatus, text func(int) string) string {
	l := newList(fmt.Sprintf("%s steps finished", strings.Replace(Progress(steps, len(steps)), "/", " of ", 1)))
	for i := range steps {
		if t := text(i); t != "" {
			l.add(t)
		}
	}
	return l.text(bounds.MaxMessageChars)
}

// stepText is what a step that began waits for; "" of one that did not, or is over.
func stepText(s *v1alpha1.StepStatus, more string) string {
	switch s.Phase {
	case v1alpha1.StepRunning:
		switch {
		case s.ChildRun != nil:
			return fmt.Sprintf("%s runs as child run %s since %s%s", s.Name, s.ChildRun.Name, bounds.TimeText(s.StartedAt), more)
		case status.IsForEach(s):
			return itemsStateText(s) + asideItemsText(s) + itemsWaitText(s) + more
		}
		return fmt.Sprintf("%s runs since %s (attempt %d)%s", s.Name, bounds.TimeText(s.StartedAt), s.Attempt, asideText(s))
	case v1alpha1.StepDispatched:
		if strings.Contains(more, stuckWords) { // a worker may have it, and be one of them
			return fmt.Sprintf("%s was dispatched at %s (attempt %d)%s", s.Name, bounds.TimeText(s.DispatchedAt), s.Attempt, more)
		}
		return fmt.Sprintf("%s waits for a worker since %s (attempt %d)%s%s", s.Name, bounds.TimeText(s.DispatchedAt), s.Attempt, asideText(s), more)
	case v1alpha1.StepBackingOff:
		return fmt.Sprintf("%s waits for its next attempt at %s (attempt %d: %s)%s", s.Name, bounds.TimeText(s.NextAttemptAt), s.Attempt, ErrorText(s.Error), more)
	case v1alpha1.StepPending:
		if s.LockWait == nil {
			return ""
		}
		return lockWaitText(s) + more
	default:
		if k := waits.In(s.Phase); k != nil {
			return s.Name + " " + k.Text(s, bounds.TimeText)
		}
		return ""
	}
}

// asideText says that nobody works at an attempt in flight any more.
func asideText(s *v1alpha1.StepStatus) string {
	if s.DeadLetter == "" {
		return ""
	}
	return ": its answer is a dead letter"
}

// asideItemsText is asideText for the items of a step.
func asideItemsText(s *v1alpha1.StepStatus) string {
	var aside itemset.Set
	groups := fanout.Groups(s.ForEach)
	for k := range groups {
		if groups[k].DeadLetter != "" {
			aside = aside.Union(groups[k].Set)
		}
	}
	switch aside.Len() {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf(", the answer of item %s is a dead letter", aside.String())
	default:
		return fmt.Sprintf(", the answers of items %s are dead letters", listOf(&aside, bounds.MaxMessageChars/4))
	}
}

// itemsBegin is how what is said of a step with items begins, whatever became of them.
func itemsBegin(s *v1alpha1.StepStatus) string {
	return s.Name + " runs since " + bounds.TimeText(s.StartedAt) + ": "
}

// itemsStateText tells how far the items of a step are.
func itemsStateText(s *v1alpha1.StepStatus) string {
	f := s.ForEach
	text := itemsBegin(s) + fmt.Sprintf("%d of %d items are over", f.Succeeded+f.Failed, f.Total)
	if f.Failed > 0 {
		text += fmt.Sprintf(" (%d failed)", f.Failed)
	}
	return text
}

func problemsText(problems []string) string {
	l := newList("")
	for _, p := range problems {
		l.add(bounds.Cut(p, bounds.MaxMessageChars))
	}
	return l.text(bounds.MaxProblemsChars)
}

// successText counts the steps that decide about success; those of spec.finally are named apart,
// since status.progress counts them, too.
func successText(steps []v1alpha1.StepStatus, finally int) string {
	skipped, failed := 0, 0
	for i := range steps {
		switch steps[i].Phase {
		case v1alpha1.StepSkipped:
			skipped++
		case v1alpha1.StepFailed:
			failed++
		default:
		}
	}
	text := fmt.Sprintf("%d of %d steps succeeded", len(steps)-skipped-failed, len(steps))
	if skipped > 0 {
		text += fmt.Sprintf(", %d skipped", skipped)
	}
	if failed > 0 {
		text += fmt.Sprintf(", %d failed with onFailure Continue", failed)
	}
	if finally > 0 {
		text += fmt.Sprintf(" (beside them %d of spec.finally)", finally)
	}
	return text
}

func failureText(s *v1alpha1.StepStatus) string {
	if s.Attempt == 0 { // it failed before it was dispatched
		return bounds.Cut(fmt.Sprintf("step %s failed: %s", s.Name, ErrorText(s.Error)), bounds.MaxMessageChars)
	}
	return bounds.Cut(fmt.Sprintf("step %s failed: %s (attempt %d, failures %d)", s.Name, ErrorText(s.Error), s.Attempt, s.Failures), bounds.MaxMessageChars)
}

// ErrorText is an error as messages have it.
func ErrorText(e *v1alpha1.StepError) string {
	switch {
	case e == nil:
		return "not an error"
	case e.Message == "":
		return e.Code
	default:
		return e.Code + ": " + bounds.Cut(e.Message, bounds.MaxMessageChars/2)
	}
}

// Progress is "finished/all"; skipped steps count as finished, cancelled ones do not.
func Progress(steps []v1alpha1.StepStatus, all int) string {
	finished := 0
	for i := range steps {
		if status.Passed(steps[i].Phase) || steps[i].Phase == v1alpha1.StepFailed {
			finished++
		}
	}
	return strconv.Itoa(finished) + "/" + strconv.Itoa(all)
}

// partSeparator is between the parts of a list.
const partSeparator = "; "

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
			b.WriteString(partSeparator)
		}
		b.WriteString(part)
	}
	return bounds.Cut(b.String(), limit)
}

// listOf is a set as a text of so many characters, with how many there are if it is cut.
func listOf(items *itemset.Set, room int) string {
	text := items.String()
	if len(text) <= room {
		return text
	}
	more := fmt.Sprintf(",... (%d in all)", items.Len())
	text = text[:max(0, room-len(more))]
	return text[:max(0, strings.LastIndexByte(text, ','))] + more
}
