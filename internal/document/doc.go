// SPDX-License-Identifier: Apache-2.0

// Package document holds a JSON document so that it takes little memory, whatever is in it: its
// text, and eight bytes for each value and key. A value takes two bytes of text at least (with its
// comma), so a document takes five times its text at most. Maps and slices take up to ninety times:
// an object with one key has 9 bytes of text and some 380 in a map. So 8 MiB of text could end a
// process of 512 MiB.
//
//	text   [{"a":1},"x"]
//	nodes  "a" 1 | {2 from 0} "x" | [2 from 2]      the parts of a list or an object are neighbours
//
// So Index is one step, Lookup a binary search (the keys of an object are in order), and nothing is
// allocated until text is asked for.
//
// # Meaning
//
// The same as the API server's: of keys that are there twice the last one counts; a number without
// fraction and exponent is an int64 if it fits, else a float64; text that is not UTF-8 has U+FFFD
// in its place. Parse refuses what encoding/json refuses.
//
// A Document does not change: it may be read by several at a time, as long as the text that it was
// made of does not change.
//
// # Bounds
//
// Text has at most MaxBytes, nested at most 10,000 deep. Parse takes O(n) time, and O(n log n)
// where keys are not in order: 8 MiB of small objects take some 100 ms. So whoever checks, reads or
// writes a large text may have a function called every few milliseconds, which may wait.
package document
