// SPDX-License-Identifier: Apache-2.0

// Package pacing says when the next status write of a run may begin. It is pure: time
// is an argument.
//
// For example: a write took 20 ms and applied 50 results. The next one begins 120 ms after its end,
// or 20 ms after it as soon as 100 results wait.
//
// All runs share one API server, and each write of a run costs the same however many results it
// applies. So two rules have results wait for company, and each has a bound:
//
//	LastWrite.Next  The pause after a write is the duration of that write, and once more for each ten
//	                results that it applied; 10 ms at least, a second at most. The last few results
//	                after a large write do not pay for it. A chain, of which no other result can
//	                come before the write, waits 10 ms.
//	BatchReadyAt    News that a job began waits 100 ms, and a second if it is of an item. Results of
//	                items wait 100 ms, or until an eighth of what is in flight has come.
//
// A write that the API server refuses is followed by a wait that doubles: Refused for a result,
// NoRoom for a run whose object is full, or whose status is refused without a result.
package pacing
