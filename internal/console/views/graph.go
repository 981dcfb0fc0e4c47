// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/layout"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const (
	maxNodes   = 200
	nameChars  = 20
	border     = 12
	finallyGap = 72
	barInset   = 10
)

// Graph is the DAG of a run. A step with items is one node with a bar.
type Graph struct {
	Width, Height int
	TooMany       int // steps, if they are too many to be drawn; else 0
	Summary       string
	Nodes         []GraphNode
	Edges         []GraphEdge
	FinallyX      int // where a line sets off the steps of finally; 0: there are none
}

// GraphNode is a step.
type GraphNode struct {
	X, Y        int
	Name, Short string
	Phase, Tone string
	Mark, Line  string
	Title       string
	Bar         []Segment
	Dashed      bool // it has not begun
}

// Segment is a part of a bar.
type Segment struct {
	X, W int
	Tone string
	Text string
}

// GraphEdge is a dependency.
type GraphEdge struct {
	Path   string
	Passed bool
}

// GraphOf draws the steps of a run.
func GraphOf(run *v1alpha1.WorkflowRun, tree runview.Tree) Graph {
	if n := len(tree.Steps); n > maxNodes {
		return Graph{TooMany: n}
	}
	rows := make(map[string]*runview.Row, len(tree.Steps))
	for i := range tree.Steps {
		rows[tree.Steps[i].Name] = &tree.Steps[i]
	}
	before, after := layout.Place(nodesOf(run.Spec.Steps)), layout.Place(nodesOf(run.Spec.Finally))
	g := Graph{Width: before.Width, Height: max(before.Height, after.Height), Summary: summary(tree.Steps)}
	g.add(run.Spec.Steps, before, rows, border)
	if len(run.Spec.Finally) > 0 {
		g.FinallyX = border + g.Width + finallyGap/2
		g.add(run.Spec.Finally, after, rows, border+g.Width+finallyGap)
		g.Width += finallyGap + after.Width
	}
	g.Width, g.Height = g.Width+2*border, g.Height+2*border
	return g
}

func nodesOf(steps []v1alpha1.Step) []layout.Node {
	nodes := make([]layout.Node, len(steps))
	for i := range steps {
		nodes[i] = layout.Node{Name: steps[i].Name, After: steps[i].DependsOn}
	}
	return nodes
}

// add draws steps to the right of x, in the middle of the height.
func (g *Graph) add(steps []v1alpha1.Step, d layout.Drawing, rows map[string]*runview.Row, x int) {
	y := border + (g.Height-d.Height)/2
	for i, p := range d.Nodes {
		row := rows[steps[i].Name]
		if row == nil {
			row = &runview.Row{Name: steps[i].Name, Phase: v1alpha1.StepPending}
		}
		g.Nodes = append(g.Nodes, node(row, p.X+x, p.Y+y))
	}
	for _, e := range d.Edges {
		from := rows[steps[e.From].Name]
		g.Edges = append(g.Edges, GraphEdge{path(e.Points, x, y), from != nil && over(from.Phase)})
	}
}

func node(r *runview.Row, x, y int) GraphNode {
	phase := string(r.Phase)
	n := GraphNode{
		X: x, Y: y, Name: r.Name, Short: cut(r.Name, nameChars), Phase: phase, Tone: Tone(phase), Mark: Mark(phase),
		Dashed: r.Phase == v1alpha1.StepPending,
	}
	n.Line = words(phase)
	if r.DurationMillis != nil {
		n.Line += " · " + runview.Span(time.Duration(*r.DurationMillis)*time.Millisecond)
	}
	if r.Attempt > 1 {
		n.Line += fmt.Sprintf(" · try %d", r.Attempt)
	}
	if r.Items != nil {
		n.Line = fmt.Sprintf("%d of %d items", r.Items.Succeeded+r.Items.Failed, r.Items.Total)
		n.Bar = bar(r.Items, x+barInset, layout.NodeWidth-2*barInset)
	}
	n.Title = strings.TrimSuffix(text(fmt.Sprintf("%s: %s. %s", r.Name, words(phase), r.Why)), " ")
	return n
}

// bar shows how far items are. Each kind that there is has a pixel at least.
func bar(items *runview.Items, x, width int) []Segment {
	total := int(items.Total)
	if total == 0 {
		return nil
	}
	var all []Segment
	at := x
	for _, part := range []struct {
		count int
		tone  string
		what  string
	}{
		{int(items.Succeeded), "good", "succeeded"},
		{int(items.Failed), "bad", "failed"},
		{items.BackingOff, "warn", "backing off"},
		{items.Running, "busy", "running"},
		{items.Dispatched, "wait", "waiting for workers"},
		{items.Aside, "warn", "with a dead letter as answer"},
		{items.Locking, "wait", "waiting for locks"},
		{int(items.Pending), "idle", "to begin"},
	} {
		if part.count <= 0 {
			continue
		}
		w := min(max(1, part.count*width/total), x+width-at)
		all = append(all, Segment{at, w, part.tone, fmt.Sprintf("%d %s", part.count, part.what)})
		at += w
	}
	return all
}

// path is an edge as SVG has it: curves between its points.
func path(points []layout.Point, dx, dy int) string {
	var b strings.Builder
	for i, p := range points {
		x, y := p.X+dx, p.Y+dy
		if i == 0 {
			fmt.Fprintf(&b, "M%d %d", x, y)
			continue
		}
		last := points[i-1]
		middle := (last.X + p.X) / 2
		fmt.Fprintf(&b, "C%d %d %d %d %d %d", middle+dx, last.Y+dy, middle+dx, y, x, y)
	}
	return b.String()
}

// summary says in words what the drawing shows, for who cannot see it.
func summary(rows []runview.Row) string {
	counts := map[string]int{}
	var order []string
	for i := range rows {
		phase := words(string(rows[i].Phase))
		if counts[phase] == 0 {
			order = append(order, phase)
		}
		counts[phase]++
	}
	parts := make([]string, len(order))
	for i, phase := range order {
		parts[i] = fmt.Sprintf("%d %s", counts[phase], phase)
	}
	return fmt.Sprintf("%d steps: %s. The table below has each of them.", len(rows), strings.Join(parts, ", "))
}

// words is a phase in words: "timed out".
func words(phase string) string {
	if phase == string(v1alpha1.StepWaiting) {
		return "needs approval"
	}
	var b strings.Builder
	for i, r := range phase {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

func over(p v1alpha1.StepPhase) bool {
	switch p {
	case v1alpha1.StepSucceeded, v1alpha1.StepFailed, v1alpha1.StepSkipped, v1alpha1.StepCancelled:
		return true
	default:
		return false
	}
}
