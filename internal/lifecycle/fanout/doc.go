// SPDX-License-Identifier: Apache-2.0

// Package fanout has the items of a step with forEach as a value. It does no I/O and has no run.
//
// For example, of 100 items with maxParallel 10, Free says that 10 may begin, Launch begins
// each, Start and Fail apply what workers said, and Due names those whose wait for another
// attempt is over.
//
//	              place free             Started              result
//	from begun on ──────────> Dispatched ──────> Running ──────────────> over: counted, its output kept
//	                            │  ▲ attempt+1     │
//	                            ▼  │ due           ▼
//	                           BackingOff <── failure, time-out, Retry
//
// Items that need locks of their own are Pending between the place and the first job (Await,
// Awaiting).
//
// Items with the same history and times are one Group, a set of indices. So a status grows with the
// differences among the items under way, not with their number. Store makes groups one where there
// would be too many: the items of both get the later time, which is bounded (bound.go).
//
// Outputs of items are a JSON text of pairs, which grows at its end: what a result costs does not
// depend on how many came before it.
package fanout
