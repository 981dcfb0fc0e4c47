// SPDX-License-Identifier: Apache-2.0

// Package report says what a decision did: conditions, events, the ends of runs and the errors of
// steps. It has all the prose of the core.
//
// A stage records a transition as it happens, by a constructor:
//
//	d.event(report.StepSucceeded(s))
//	endRun(d, report.DeadlineExceeded(run, st, ""))
//
// Conditions are derived when all stages are done. A Report has the status before and after, the
// facts, and what the stages found that the status does not say (Found). Each of its methods is
// about one kind of write:
//
//	Written    under the lock, or one that ends the run
//	Waits      without the lock: why the run waits for it
//	LeaseLost  without the lock: this process lost a lease
//
// Messages name moments, never durations or the present: they change only with a transition. All of
// them are bounded, and have no control characters.
package report
