// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// Sizes of a time line, in pixels.
const (
	lineLabels = 190
	lineWidth  = 780
	lineRow    = 22
	lineHead   = 24
	lineTicks  = 5
)

// Timeline shows when each step waited and worked.
type Timeline struct {
	Width, Height int
	Labels        int // where names end
	Rows          []TimelineRow
	Ticks         []Tick
	Summary       string
}

// TimelineRow is a step.
type TimelineRow struct {
	Name, Short string
	Y           int
	Bars        []Segment
}

// Tick is a mark of the axis.
type Tick struct {
	X    int
	Text string
}

// spell is a time in which a step waited, or worked.
type spell struct {
	from, to time.Time
	tone     string
	what     string
}

// TimelineOf shows the last attempts of the steps that have begun.
func TimelineOf(run *v1alpha1.WorkflowRun, tree runview.Tree, now time.Time) Timeline {
	if run.Status == nil {
		return Timeline{}
	}
	spells := make(map[string][]spell, len(run.Status.Steps))
	var from, to time.Time
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		all := spellsOf(s, now)
		spells[s.Name] = all
		for _, one := range all {
			if from.IsZero() || one.from.Before(from) {
				from = one.from
			}
			if one.to.After(to) {
				to = one.to
			}
		}
	}
	if from.IsZero() {
		return Timeline{}
	}
	return drawTimeline(tree.Steps, spells, from, to)
}

func drawTimeline(rows []runview.Row, spells map[string][]spell, from, to time.Time) Timeline {
	t := Timeline{Width: lineLabels + lineWidth + 2*border, Labels: lineLabels}
	whole := max(to.Sub(from), time.Millisecond)
	x := func(at time.Time) int {
		return lineLabels + int(float64(lineWidth)*float64(at.Sub(from))/float64(whole))
	}
	for i := range rows {
		all := spells[rows[i].Name]
		if len(all) == 0 {
			continue
		}
		row := TimelineRow{Name: rows[i].Name, Short: cut(rows[i].Name, nameChars+4), Y: lineHead + len(t.Rows)*lineRow}
		for _, s := range all {
			took := s.to.Sub(s.from)
			row.Bars = append(row.Bars, Segment{x(s.from), max(2, x(s.to)-x(s.from)), s.tone, fmt.Sprintf("%s %s for %s", rows[i].Name, s.what, runview.Span(took))})
		}
		t.Rows = append(t.Rows, row)
	}
	for k := range lineTicks {
		at := whole * time.Duration(k) / (lineTicks - 1)
		t.Ticks = append(t.Ticks, Tick{x(from.Add(at)), span(at)})
	}
	t.Height = lineHead + len(t.Rows)*lineRow + border
	t.Summary = fmt.Sprintf("%d steps have begun, in %s. The table of steps has the figures.", len(t.Rows), span(whole))
	return t
}

func span(d time.Duration) string {
	if d < 10*time.Second {
		return runview.Span(d)
	}
	return duration.HumanDuration(d)
}

// spellsOf is what is known of the last attempt of a step: it waited for a worker, then it worked.
func spellsOf(s *v1alpha1.StepStatus, now time.Time) []spell {
	end := now
	if s.CompletedAt != nil {
		end = s.CompletedAt.Time
	} else if over(s.Phase) {
		return nil
	}
	dispatched, started := s.DispatchedAt, s.StartedAt
	worked := func(from time.Time) spell { return spellOf(from, end, Tone(string(s.Phase)), did(s.Phase)) }
	switch {
	case dispatched != nil && started != nil && !started.Before(dispatched) && s.ForEach == nil:
		return []spell{spellOf(dispatched.Time, started.Time, "wait", "waited for a worker"), worked(started.Time)}
	case started != nil:
		return []spell{worked(started.Time)}
	case dispatched == nil:
		return nil
	case s.Phase == v1alpha1.StepDispatched:
		return []spell{spellOf(dispatched.Time, end, "wait", "waits for a worker")}
	default:
		return []spell{worked(dispatched.Time)}
	}
}

// spellOf is a spell that does not end before it begins, whichever clocks its times are of.
func spellOf(from, to time.Time, tone, what string) spell {
	if to.Before(from) {
		to = from
	}
	return spell{from, to, tone, what}
}

// did is what a bar stands for.
func did(p v1alpha1.StepPhase) string {
	switch p {
	case v1alpha1.StepWaiting:
		return "waits for approval"
	case v1alpha1.StepDelayed:
		return "is delayed"
	case v1alpha1.StepBackingOff:
		return "tried, and backs off"
	case v1alpha1.StepRunning, v1alpha1.StepDispatched:
		return "works"
	default:
		return "worked and ended as " + words(string(p))
	}
}
