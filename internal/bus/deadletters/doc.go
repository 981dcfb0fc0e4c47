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
//   - A dead letter that may be applied has the body of its message and its headers. Headers that
//     mean something to the server have a prefix. If all of them do not fit, they are left out, and
//     Truncated says so.
//   - One that can never be applied has the first 4 KiB of its message, its token if that may be
//     one of ours, no other headers of it, and the size of its body. Those without a valid token
//     are on one subject, whatever run they name.
//   - A subject has a limit of letters, and the oldest goes first. So forged results push out
//     forged results, and take a quarter of a stream that has a limit. What may be applied has a
//     subject of its attempt, and pushes out nothing else.
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
