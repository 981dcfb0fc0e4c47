// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"cmp"
	"slices"
)

// order sorts each layer by the mean place of the neighbours in the layer before, then after, and
// so on, and keeps the order with the fewest crossings.
func (g *graph) order() {
	best, fewest := clone(g.layers), g.crossings()
	for sweep := range sweeps {
		if fewest == 0 {
			break
		}
		if sweep%2 == 0 {
			for l := 1; l < len(g.layers); l++ {
				g.sort(l, func(v *vertex) []int { return v.left })
			}
		} else {
			for l := len(g.layers) - 2; l >= 0; l-- {
				g.sort(l, func(v *vertex) []int { return v.right })
			}
		}
		if n := g.crossings(); n < fewest {
			best, fewest = clone(g.layers), n
		}
	}
	g.layers = best
}

func clone(layers [][]int) [][]int {
	all := make([][]int, len(layers))
	for i := range layers {
		all[i] = slices.Clone(layers[i])
	}
	return all
}

// sort orders one layer. A vertex without neighbours on that side stays where it is.
func (g *graph) sort(layer int, beside func(*vertex) []int) {
	place := g.places()
	mean := make(map[int]float64, len(g.layers[layer]))
	for at, v := range g.layers[layer] {
		mean[v] = float64(at)
		if neighbours := beside(&g.vertices[v]); len(neighbours) > 0 {
			sum := 0
			for _, n := range neighbours {
				sum += place[n]
			}
			mean[v] = float64(sum) / float64(len(neighbours))
		}
	}
	slices.SortStableFunc(g.layers[layer], func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
}

// places are where the vertices are in their layers.
func (g *graph) places() []int {
	place := make([]int, len(g.vertices))
	for _, layer := range g.layers {
		for at, v := range layer {
			place[v] = at
		}
	}
	return place
}

// crossings counts pairs of edges between neighbouring layers that cross.
func (g *graph) crossings() int {
	place, total := g.places(), 0
	for l := 0; l+1 < len(g.layers); l++ {
		seen := make([]int, len(g.layers[l+1])+1) // a Fenwick tree of the ends so far
		count := 0
		for _, v := range g.layers[l] {
			ends := make([]int, 0, len(g.vertices[v].right))
			for _, r := range g.vertices[v].right {
				ends = append(ends, place[r])
			}
			for _, end := range ends {
				total += count - upTo(seen, end)
			}
			for _, end := range ends {
				insert(seen, end)
			}
			count += len(ends)
		}
	}
	return total
}

// upTo is how many were inserted at or before a place.
func upTo(tree []int, at int) (n int) {
	for i := at + 1; i > 0; i -= i & -i {
		n += tree[i]
	}
	return n
}

func insert(tree []int, at int) {
	for i := at + 1; i < len(tree); i += i & -i {
		tree[i]++
	}
}
