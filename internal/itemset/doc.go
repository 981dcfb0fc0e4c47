// SPDX-License-Identifier: Apache-2.0

// Package itemset holds sets of item indices as status shows them: "0-5,7".
//
// A step with forEach has up to MaxItems items, and each is pending, running, succeeded or failed.
// Status says which in a few characters, because items end more or less in order: what is over is
// mostly one range.
//
// # Text
//
// A set has exactly one text. Ranges are in ascending order and separated by commas; a range of one
// index is that index alone; two ranges have at least one index between them, for otherwise they
// would be one; numbers have no leading zeros; there are no spaces. The empty set is the empty
// text. So two sets are equal if and only if their texts are. Parse takes nothing else: a text that
// is written otherwise was not written by this package, and is refused. The longest text, every
// second index of 10,000, has 24 KB.
//
// # Values
//
// The zero Set is empty. A Set is a value: a copy does not change with its original,
// because a change makes new ranges and never touches the old ones. A single Set is not
// safe for concurrent changes.
//
// # Cost
//
// Contains takes time in the logarithm of the number of ranges. Changes, Len and Union copy
// or visit the ranges, 4 bytes each and never more than 5,000; none looks at single items. Every
// function is total: an index outside 0..MaxItems-1 is in no set, and adding it does nothing.
package itemset
