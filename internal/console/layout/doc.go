// SPDX-License-Identifier: Apache-2.0

// Package layout places the nodes of a DAG for a drawing from left to right. It is pure: the same
// nodes give the same places.
//
// For example: b and c come after a, and d after both. Place puts a into the first layer, b and c
// into the second, d into the third, and draws four edges.
//
//	nodes ──> layers (longest path) ──> order in each layer (barycentre) ──> coordinates, edges
//
// # Guarantees
//
//   - It is total. Names that no node has, a node that comes after itself, edges that close a cycle
//     are left out of the drawing; each node is placed.
//   - No two nodes of a layer overlap, and each edge goes to the right.
//   - It is bounded: 200 nodes with 50 edges each take milliseconds. An edge that skips layers is
//     led around the nodes between, unless that takes more than 4,000 bends in all: then edges are
//     straight.
package layout
