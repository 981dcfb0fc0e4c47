// SPDX-License-Identifier: Apache-2.0

package layout_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/syncopate-dev/syncopate/internal/console/layout"
)

// mutation: assign that does not add 1 to the layer of what it comes after makes this fail.
func TestPlacePutsEachNodeOneLayerAfterTheLastThatItComesAfter(t *testing.T) {
	t.Parallel()
	d := layout.Place([]layout.Node{
		{Name: "a"},
		{Name: "b", After: []string{"a"}},
		{Name: "c", After: []string{"a"}},
		{Name: "d", After: []string{"b", "c"}},
		{Name: "e", After: []string{"a", "d"}},
	})
	var layers []int
	for _, p := range d.Nodes {
		layers = append(layers, p.X/(layout.NodeWidth+1))
	}
	if diff := cmp.Diff([]int{0, 1, 1, 2, 3}, layers); diff != "" {
		t.Error(diff)
	}
	if d.Layers != 4 || len(d.Edges) != 6 {
		t.Errorf("%d layers, %d edges: want 4 and 6", d.Layers, len(d.Edges))
	}
}

// A spec that cannot be run is shown, too.
//
// mutation: acyclic that keeps an edge to an open node makes this fail.
func TestPlaceIsTotal(t *testing.T) {
	t.Parallel()
	for name, nodes := range map[string][]layout.Node{
		"nothing":                           nil,
		"a node that nobody has":            {{Name: "a", After: []string{"gone"}}},
		"a node after itself":               {{Name: "a", After: []string{"a"}}},
		"a cycle of two":                    {{Name: "a", After: []string{"b"}}, {Name: "b", After: []string{"a"}}},
		"a cycle of three, and one outside": {{Name: "a", After: []string{"c"}}, {Name: "b", After: []string{"a"}}, {Name: "c", After: []string{"b", "d"}}, {Name: "d"}},
		"two nodes of one name":             {{Name: "a"}, {Name: "a"}, {Name: "b", After: []string{"a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sound(t, layout.Place(nodes), len(nodes))
		})
	}
}

// sound fails if nodes overlap, or if an edge goes to the left.
func sound(t rapid.TB, d layout.Drawing, nodes int) {
	t.Helper()
	if len(d.Nodes) != nodes {
		t.Fatalf("%d nodes are placed, want %d", len(d.Nodes), nodes)
	}
	for i, a := range d.Nodes {
		if a.X < 0 || a.Y < 0 || a.X+layout.NodeWidth > d.Width || a.Y+layout.NodeHeight > d.Height {
			t.Fatalf("node %d at %v is outside of %dx%d", i, a, d.Width, d.Height)
		}
		for k, b := range d.Nodes[:i] {
			if a.X == b.X && a.Y < b.Y+layout.NodeHeight && b.Y < a.Y+layout.NodeHeight {
				t.Fatalf("nodes %d and %d overlap: %v, %v", i, k, a, b)
			}
		}
	}
	for _, e := range d.Edges {
		for i := 1; i < len(e.Points); i++ {
			if e.Points[i].X <= e.Points[i-1].X {
				t.Fatalf("an edge goes to the left: %v", e.Points)
			}
		}
	}
}

// mutation: settle without free (the end of the vertex above) makes nodes overlap.
func TestNoDrawingHasOverlapsOrEdgesToTheLeft(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 40).Draw(t, "nodes")
		nodes := make([]layout.Node, n)
		for i := range nodes {
			nodes[i].Name = fmt.Sprint(i)
			for range rapid.IntRange(0, 4).Draw(t, "edges") {
				nodes[i].After = append(nodes[i].After, fmt.Sprint(rapid.IntRange(0, n).Draw(t, "after")))
			}
		}
		d := layout.Place(nodes)
		sound(t, d, n)
		if diff := cmp.Diff(d, layout.Place(nodes)); diff != "" {
			t.Fatalf("it is not the same again: %s", diff)
		}
	})
}

// mutation: order that keeps the first order makes this fail.
func TestOrderTakesCrossingsAway(t *testing.T) {
	t.Parallel()
	d := layout.Place([]layout.Node{
		{Name: "a"},
		{Name: "b"},
		{Name: "c"},
		{Name: "of-c", After: []string{"c"}},
		{Name: "of-b", After: []string{"b"}},
		{Name: "of-a", After: []string{"a"}},
	})
	for i := range 3 {
		if from, to := d.Nodes[i].Y, d.Nodes[5-i].Y; from != to {
			t.Errorf("node %d is at %d, and its next at %d: the edge is not straight", i, from, to)
		}
	}
}

// 200 steps with as many edges as spec lets them have, in a time that nobody notices.
func TestTheLargestGraphIsPlacedSoon(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) // the same graph each time
	nodes := make([]layout.Node, 200)
	for i := range nodes {
		nodes[i].Name = fmt.Sprint(i)
		for range min(i, 50) {
			nodes[i].After = append(nodes[i].After, fmt.Sprint(random.IntN(i)))
		}
	}
	begin := time.Now()
	sound(t, layout.Place(nodes), len(nodes))
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}
