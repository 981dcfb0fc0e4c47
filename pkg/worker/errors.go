// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"time"
)

// Causes with which a handler's context is cancelled; see context.Cause.
var (
	// ErrCancelled: the operator does not want the result any more. What the handler
	// returns is ignored.
	ErrCancelled = errors.New("job cancelled")
	// ErrStopping: the worker's grace period is over. A handler that returns an error now gives the
	// job to another worker. A value counts as the output of a job that is done, so return none for
	// half of the work.
	ErrStopping = errors.New("worker is stopping")
)

// Errors of Run.
var (
	// ErrConfig: a topic, an option or the set of handlers is wrong. A retry does not help.
	ErrConfig = errors.New("worker configuration")
	// ErrConnectionClosed: the NATS connection was closed for good while the worker ran.
	ErrConnectionClosed = errors.New("connection closed")
)

// errJob: a message is no job. It is terminated; the operator notices that nobody started.
var errJob = errors.New("not a job")

// errPullEnded: the server ended a pull for another cause than that no job came.
var errPullEnded = errors.New("the server ended the pull")

// Codes of errors that the SDK itself reports as an attempt's failure.
const (
	CodeError = "Error" // the handler's error has no code
	CodePanic = "Panic" // the handler panicked, or its value or error did when it was read
	// CodeInvalidOutput: the handler's value has no JSON form, or one that is not UTF-8. Final.
	// What a method MarshalJSON makes is taken as it is: if it uses encoding/json, that puts U+FFFD
	// in the place of bytes of a string that are not UTF-8.
	CodeInvalidOutput = "InvalidOutput"
	CodeTooLarge      = "TooLarge" // the output is larger than protocol.MaxPayloadBytes, or than the server takes; final

	CodeDeliveredTooOften = "DeliveredTooOften" // the job was handed out more often than MaxDeliveries allows

	CodeInvalidPayload  = "InvalidPayload"  // what Job.Payload was given is no reference, or the object is not what it promises; final
	CodePayloadNotFound = "PayloadNotFound" // what Job.Payload was to read is not in the object store
	CodeNoObjectStore   = "NoObjectStore"   // Job.Payload was called in a worker with Options.NoObjectStore; final
)

type failureError struct{ code, message string }

func (f *failureError) Error() string { return f.code + ": " + f.message }

// Fail is an error with a code to program against, at most 64 bytes, and a message for people.
func Fail(code, message string) error { return &failureError{code: code, message: message} }

type finalError struct{ error }

func (f *finalError) Unwrap() error { return f.error }

// Final says that another attempt would not help: the step fails without a retry. Nil stays nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

type delayedError struct {
	error
	delay time.Duration
}

func (r *delayedError) Unwrap() error             { return r.error }
func (r *delayedError) RetryDelay() time.Duration { return r.delay }

// RetryAfter says "not now, again in d": the attempt does not count as a failure. The operator caps
// d; below 0 is 0. err says why, and may be nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("asked to be called again")
	}
	return &delayedError{error: err, delay: d}
}

// delayer is what the SDK looks for in an error's chain.
type delayer interface{ RetryDelay() time.Duration }
