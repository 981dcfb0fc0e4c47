// SPDX-License-Identifier: Apache-2.0

// Package waits is the table of the kinds of steps that wait, and need no worker for it.
//
// For example, an approval waits for a StepApproval. Its row says all that differs from a delay:
//
//	Field, Phase, Reason   what spec and status call it
//	Problem, Bytes         what validation asks of it
//	Begin, End             when its wait is over by time alone
//	Answer                 what a signal from outside makes of it: the decision
//	TimeOut                what becomes of it when no signal came in time
//	Began, Text, ...       what people read
//
// The rest of the core treats all kinds alike. Validation, starts, time-outs, wake-ups and
// texts ask the table, and so does kubectl syncopate. A new kind is a file with its row, and a
// line in All.
//
// A step that is of no kind has no row (nil): whoever asks says so, and takes it for no other kind.
//
//	Pending ──> Phase ── the first signal that came before End, or End ──> Succeeded | Failed
//
// All functions are pure. Jobs and child runs are not in the table: they take a place of
// maxParallelSteps.
package waits
