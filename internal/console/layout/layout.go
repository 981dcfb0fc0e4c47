// SPDX-License-Identifier: Apache-2.0

package layout

import "slices"

// Sizes of a drawing, in pixels.
const (
	NodeWidth  = 176
	NodeHeight = 48
	gapX       = 56
	gapY       = 18
	bendHeight = 10 // the room of an edge that passes a layer
	maxBends   = 4000
	sweeps     = 12
)

// Node is one node; After names those that it comes after.
type Node struct {
	Name  string
	After []string
}

// Point is a place; the origin is the corner at the top left.
type Point struct{ X, Y int }

// Edge is the line from one node to another, by their indices.
type Edge struct {
	From, To int
	Points   []Point // from the right side of From to the left side of To
}

// Drawing is where nodes and edges are. Nodes has the corner at the top left of each node, in the
// order in which they were given.
type Drawing struct {
	Width, Height int
	Layers        int
	Nodes         []Point
	Edges         []Edge
}

// vertex is a node, or a bend of an edge that passes a layer.
type vertex struct {
	layer       int
	bend        bool
	left, right []int // neighbours in the layers beside
	y           int
}

func (v *vertex) height() int {
	if v.bend {
		return bendHeight
	}
	return NodeHeight
}

// graph is what the stages work on.
type graph struct {
	vertices []vertex // the nodes first, then bends
	layers   [][]int
	routes   []route
}

// route is an edge with the bends on its way.
type route struct {
	from, to int
	bends    []int
}

// Place draws nodes.
func Place(nodes []Node) Drawing {
	g := &graph{vertices: make([]vertex, len(nodes))}
	edges := acyclic(len(nodes), edgesOf(nodes))
	g.assign(edges)
	g.connect(edges)
	g.order()
	g.coordinates()
	return g.drawing(len(nodes))
}

// edgesOf are the edges to nodes that there are, each once.
func edgesOf(nodes []Node) [][]int {
	index := make(map[string]int, len(nodes))
	for i := range nodes {
		if _, taken := index[nodes[i].Name]; !taken {
			index[nodes[i].Name] = i
		}
	}
	after := make([][]int, len(nodes))
	for i := range nodes {
		for _, name := range nodes[i].After {
			if at, ok := index[name]; ok && at != i && !slices.Contains(after[i], at) {
				after[i] = append(after[i], at)
			}
		}
	}
	return after
}

// acyclic leaves out the edges that close a cycle. Its recursion is bounded by the nodes.
func acyclic(n int, after [][]int) [][]int {
	const (
		open = 1
		done = 2
	)
	state, kept := make([]int, n), make([][]int, n)
	var visit func(i int)
	visit = func(i int) {
		state[i] = open
		for _, at := range after[i] {
			if state[at] == open {
				continue
			}
			kept[i] = append(kept[i], at)
			if state[at] == 0 {
				visit(at)
			}
		}
		state[i] = done
	}
	for i := range n {
		if state[i] == 0 {
			visit(i)
		}
	}
	return kept
}

// assign puts each node one layer after the last of those that it comes after.
func (g *graph) assign(after [][]int) {
	known := make([]bool, len(after))
	var layer func(i int) int
	layer = func(i int) int {
		if known[i] {
			return g.vertices[i].layer
		}
		known[i] = true
		for _, at := range after[i] {
			g.vertices[i].layer = max(g.vertices[i].layer, layer(at)+1)
		}
		return g.vertices[i].layer
	}
	for i := range after {
		layer(i)
	}
	for i := range g.vertices {
		g.layers = add(g.layers, g.vertices[i].layer, i)
	}
}

func add(layers [][]int, layer, vertex int) [][]int {
	for len(layers) <= layer {
		layers = append(layers, nil)
	}
	layers[layer] = append(layers[layer], vertex)
	return layers
}

// connect makes the routes of edges.
func (g *graph) connect(after [][]int) {
	bends := 0
	for to := range after {
		for _, from := range after[to] {
			bends += g.vertices[to].layer - g.vertices[from].layer - 1
		}
	}
	for to := range after {
		for _, from := range after[to] {
			r := route{from: from, to: to}
			last := from
			for layer := g.vertices[from].layer + 1; layer < g.vertices[to].layer && bends <= maxBends; layer++ {
				at := len(g.vertices)
				g.vertices = append(g.vertices, vertex{layer: layer, bend: true})
				g.layers = add(g.layers, layer, at)
				g.join(last, at)
				r.bends, last = append(r.bends, at), at
			}
			if bends <= maxBends || g.vertices[to].layer == g.vertices[last].layer+1 {
				g.join(last, to)
			}
			g.routes = append(g.routes, r)
		}
	}
}

func (g *graph) join(from, to int) {
	g.vertices[from].right = append(g.vertices[from].right, to)
	g.vertices[to].left = append(g.vertices[to].left, from)
}
