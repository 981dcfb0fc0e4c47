// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/waits"
)

// sign is a phase at a glance.
type sign struct {
	mark  string
	color string // SGR parameter; "" is none
}

func signOf(p v1alpha1.StepPhase) sign {
	if s, known := signs()[p]; known {
		return s
	}
	if waits.In(p) != nil {
		return sign{"◇", "33"}
	}
	return sign{"?", ""}
}

func signs() map[v1alpha1.StepPhase]sign {
	return map[v1alpha1.StepPhase]sign{
		v1alpha1.StepPending:    {"·", "2"},
		v1alpha1.StepDispatched: {"◌", "36"},
		v1alpha1.StepRunning:    {"●", "36"},
		v1alpha1.StepBackingOff: {"↻", "33"},
		v1alpha1.StepWaiting:    {"◇", "33"},
		v1alpha1.StepDelayed:    {"◔", "36"},
		v1alpha1.StepSucceeded:  {"✔", "32"},
		v1alpha1.StepFailed:     {"✖", "31"},
		v1alpha1.StepSkipped:    {"○", "2"},
		v1alpha1.StepCancelled:  {"⊘", "33"},
	}
}

func runColor(p v1alpha1.RunPhase) string {
	switch p {
	case v1alpha1.RunSucceeded:
		return "32"
	case v1alpha1.RunFailed, v1alpha1.RunTimedOut:
		return "31"
	case v1alpha1.RunSuspended, v1alpha1.RunCancelled:
		return "33"
	case v1alpha1.RunPending, v1alpha1.RunQueued, v1alpha1.RunRunning:
		return "36"
	default:
		return ""
	}
}

// Text writes the tree for people; color says whether out is a terminal that takes colours.
func (t Tree) Text(out io.Writer, color bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s  %s  %s\n", t.Namespace, t.Name, paint(string(t.Phase), runColor(t.Phase), color), t.Progress)
	fmt.Fprintln(&b, strings.Join(t.facts(), ", "))
	if len(t.Steps) > 0 {
		fmt.Fprintln(&b)
		t.table(&b, color)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (t Tree) facts() []string {
	all := []string{"tenant " + orDash(t.Tenant), "class " + orDash(t.Class)}
	if t.Policy != nil {
		all = append(all, fmt.Sprintf("policy %s (generation %d)", t.Policy.Name, t.Policy.Generation))
	} else {
		all = append(all, "no policy")
	}
	if t.Fence != nil {
		all = append(all, fmt.Sprintf("fence %d", *t.Fence))
	}
	if t.Holder != "" {
		all = append(all, "holder "+t.Holder)
	}
	return append(all, "age "+duration.HumanDuration(time.Duration(t.AgeSeconds)*time.Second))
}

// table pads by characters: colours have no width.
func (t Tree) table(b *strings.Builder, color bool) {
	cells := [][]string{{"STEP", "PHASE", "ATTEMPT", "DURATION", "WHY"}}
	for _, r := range t.Steps {
		cells = append(cells, r.cells())
	}
	widths := make([]int, len(cells[0]))
	for _, row := range cells {
		for c, text := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(text))
		}
	}
	for i, row := range cells {
		var line strings.Builder
		for c, text := range row {
			pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(text)+2)
			if i > 0 {
				text = t.Steps[i-1].painted(c, text, color)
			}
			line.WriteString(text + pad)
		}
		fmt.Fprintln(b, strings.TrimRight(line.String(), " "))
	}
}

func (r Row) cells() []string {
	attempt, took := "-", "-"
	if r.Attempt > 0 {
		attempt = strconv.Itoa(int(r.Attempt))
	}
	if r.DurationMillis != nil {
		took = Span(time.Duration(*r.DurationMillis) * time.Millisecond)
	}
	return []string{r.branch + signOf(r.Phase).mark + " " + r.Name, string(r.Phase), attempt, took, r.Why}
}

// painted colours sign and phase.
func (r Row) painted(column int, text string, color bool) string {
	s := signOf(r.Phase)
	switch column {
	case 0:
		return strings.Replace(text, s.mark, paint(s.mark, s.color, color), 1)
	case 1:
		return paint(text, s.color, color)
	default:
		return text
	}
}

func paint(text, sgr string, color bool) string {
	if !color || sgr == "" {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}
