// SPDX-License-Identifier: Apache-2.0

// Package traces says which spans of a run are over, from the run alone. It does no I/O.
//
// A span is made when the status write that ends it was accepted, with the times that are in
// status. Its id comes from what it is a span of, so whichever replica makes it, and however often,
// it is the same span. Nothing has to be remembered from its begin to its end, and a crash loses no
// span that is still open.
//
//	schedule NAME            from the slot to the creation of the run
//	└─ run                   from its creation to its end
//	   ├─ wait for admission
//	   └─ STEP               from when it could begin to its end
//	      ├─ attempt         a job; the worker's own span is below it
//	      ├─ items           all items of a step with forEach; the workers' spans are below it
//	      ├─ approval, delay
//	      └─ child run       the run of the child is below it
//
// An item has no span of its own here: status has no times of an item that is over, so after a
// crash it would be another trace (ADR 53).
package traces
