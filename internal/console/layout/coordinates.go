// SPDX-License-Identifier: Apache-2.0

package layout

// coordinates stacks each layer, and then moves its vertices towards their neighbours as far as the
// order allows.
func (g *graph) coordinates() {
	for _, layer := range g.layers {
		y := 0
		for _, v := range layer {
			g.vertices[v].y = y
			y += g.vertices[v].height() + gapY
		}
	}
	left := func(v *vertex) []int { return v.left }
	right := func(v *vertex) []int { return v.right }
	for range 2 {
		for l := 1; l < len(g.layers); l++ {
			g.settle(g.layers[l], left)
		}
		for l := len(g.layers) - 2; l >= 0; l-- {
			g.settle(g.layers[l], right)
		}
	}
	for l := 1; l < len(g.layers); l++ {
		g.settle(g.layers[l], left)
	}
	g.raise()
}

// settle moves the vertices of a layer to the mean height of their neighbours, in order and without
// overlaps, and then all together so that they are off by as much to both sides.
func (g *graph) settle(layer []int, beside func(*vertex) []int) {
	wanted := make([]int, len(layer))
	for i, v := range layer {
		wanted[i] = g.wanted(v, beside(&g.vertices[v]))
	}
	off, free := 0, -1<<30
	for i, v := range layer {
		y := max(wanted[i], free)
		g.vertices[v].y, free = y, y+g.vertices[v].height()+gapY
		off += y - wanted[i]
	}
	for _, v := range layer {
		g.vertices[v].y -= off / len(layer)
	}
}

// wanted is where the middle of a vertex is at the mean of the middles of its neighbours.
func (g *graph) wanted(v int, neighbours []int) int {
	if len(neighbours) == 0 {
		return g.vertices[v].y
	}
	sum := 0
	for _, n := range neighbours {
		sum += g.middle(n)
	}
	return sum/len(neighbours) - g.vertices[v].height()/2
}

func (g *graph) middle(v int) int { return g.vertices[v].y + g.vertices[v].height()/2 }

// raise puts the highest vertex at 0.
func (g *graph) raise() {
	top := 1 << 30
	for i := range g.vertices {
		top = min(top, g.vertices[i].y)
	}
	for i := range g.vertices {
		g.vertices[i].y -= top
	}
}

// drawing is the result, without bends where an edge is straight.
func (g *graph) drawing(nodes int) Drawing {
	d := Drawing{Layers: len(g.layers), Nodes: make([]Point, nodes)}
	for i := range nodes {
		d.Nodes[i] = Point{g.x(i), g.vertices[i].y}
		d.Width, d.Height = max(d.Width, d.Nodes[i].X+NodeWidth), max(d.Height, d.Nodes[i].Y+NodeHeight)
	}
	for _, r := range g.routes {
		e := Edge{From: r.from, To: r.to, Points: []Point{{g.x(r.from) + NodeWidth, g.middle(r.from)}}}
		for _, b := range r.bends {
			d.Height = max(d.Height, g.vertices[b].y+bendHeight)
			e.Points = append(e.Points, Point{g.x(b), g.middle(b)}, Point{g.x(b) + NodeWidth, g.middle(b)})
		}
		e.Points = append(e.Points, Point{g.x(r.to), g.middle(r.to)})
		d.Edges = append(d.Edges, e)
	}
	return d
}

func (g *graph) x(v int) int { return g.vertices[v].layer * (NodeWidth + gapX) }
