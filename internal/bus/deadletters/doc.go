// SPDX-License-Identifier: Apache-2.0

// Package deadletters is the stream of results that were put aside. A Writer puts them aside for
// the operator. A Store lists and redrives them for people's tools.
//
//	results ──Writer.Write──> <PREFIX>_DEADLETTERS ──Store.List, Get──> a person
//	                                     └──Store.Redrive──> <PREFIX>_RESULTS
//
// # Guarantees
//
//   - Write returns when the dead letter is stored. A second try for the same message is the same
//     dead letter.
//   - A dead letter has the body of its message and its headers. Headers that mean something to the
//     server have a prefix. If all of them do not fit, they are left out, and Truncated says so.
//   - Redrive stores the message before it deletes its dead letter. A crash in between leaves the
//     dead letter; redriven again, the message is dropped as a duplicate by the stream or
//     by the run.
//   - Redrive publishes to subjects of results only, whatever the dead letter names.
//
// # Failure handling
//
// Writer repairs streams that vanished. Store makes no streams, needs no keys, and fails at once
// where a bus.Conn would wait.
package deadletters
