// SPDX-License-Identifier: Apache-2.0

// Package losses finds out whether a stream has lost data that it had confirmed. It is pure: it has
// no connection and no clock. Whoever talks to NATS passes on what it sees, and gets the verdict.
//
//	s := watch.Begin(stream)           before each request about a stream
//	s.Stored(seq) s.Read(seq)          what came of it: a PubAck, a message
//	s.Look(created, last)              what the leader says of the stream as a whole
//	watch.Delivered(stream, seq, at)   a message that came
//	s.Intact()                         no loss was noticed since Begin: its sequences still count
//
// # Evidence
//
// Example: JOBS confirmed sequence 7. Its server crashes, comes back with 5 messages, and the next
// job gets sequence 6. This is a loss, although the stream grows. Three kinds of evidence find it,
// and each loss counts once:
//
//	identity   the stream was created at another time than before: somebody made it anew
//	length     its last sequence is below one that it is known to have had
//	order      it gives a sequence again: to a message that was published after another one had
//	           it, or to one that was stored at another time than the one delivered with it before
//
// Order compares with the latest 4,096 deliveries. So it finds a lost end also if as many messages
// were stored since.
//
// # Invariants
//
//   - Evidence counts only if no loss was noticed between Begin and the answer: else it is unclear
//     whether it is of the stream before or of the one after.
//   - The stamps of different sequences are no evidence: clocks are set back, and servers take over
//     from each other.
//   - Count grows before Noticed has a value.
package losses
