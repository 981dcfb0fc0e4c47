// SPDX-License-Identifier: Apache-2.0

package facts

// Codes of step errors which the operator itself gives. Workers give their own.
const (
	CodeTimeout          = "Timeout"          // timeoutSeconds passed after Started
	CodeStartTimeout     = "StartTimeout"     // startTimeoutSeconds passed after dispatch
	CodeExpressionError  = "ExpressionError"  // when or job.input could not be evaluated
	CodeInputTooLarge    = "InputTooLarge"    // the rendered input exceeds bounds.MaxRenderedBytes
	CodeOutputTooLarge   = "OutputTooLarge"   // the output exceeds protocol.MaxPayloadBytes
	CodeOutputLost       = "OutputLost"       // outputs of items are not in the object store any more
	CodeResultRejected   = "ResultRejected"   // the worker's result had an unusable body
	CodeAttemptsExceeded = "AttemptsExceeded" // attempt numbers are used up
	CodeRetryRequested   = "RetryRequested"   // no failure: the worker asked to be asked later, and said of no error
	CodeRejected         = "Rejected"         // an approver said no
	CodeApprovalTimeout  = "ApprovalTimeout"  // nobody decided in time
	CodeChildFailed      = "ChildFailed"      // the child run failed
	CodeChildCancelled   = "ChildCancelled"   // the child run was cancelled
	CodeChildTimedOut    = "ChildTimedOut"    // the child run timed out
	CodeChildDeleted     = "ChildDeleted"     // the child run was deleted before it ended
	CodeNameTaken        = "NameTaken"        // another run has the name of the child run
	CodeInvalidSpec      = "InvalidSpec"      // the API server refused the child run, or its inputs cannot be rendered any more, or the step is of no kind that this operator has
	CodeUnspecified      = "Unspecified"      // the worker failed without a code
)
