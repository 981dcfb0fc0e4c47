// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Headers of a job. MsgID is JetStream's own; the ce- ones are CloudEvents 1.0, binary mode.
const (
	HeaderMsgID       = "Nats-Msg-Id"
	HeaderFence       = "Syncopate-Fence"      // decimal fence of the writer that dispatched the job
	HeaderLockFence   = "Syncopate-Lock-Fence" // "<lock>=<decimal fence>", once for each lock across runs that protects the job
	HeaderDeadline    = "Syncopate-Deadline"   // RFC 3339; after it nobody waits for the result
	HeaderReply       = "Syncopate-Reply"      // subject of the result
	HeaderToken       = "Syncopate-Token"      //nolint:gosec // a name, no credential; to be sent with the result: only who got the job can answer it
	HeaderTraceParent = "traceparent"          // W3C trace context: what a worker does for the job is below it; absent: nowhere
	HeaderCEID        = "ce-id"
	HeaderCEType      = "ce-type"
	HeaderCESource    = "ce-source"
	HeaderCESubject   = "ce-subject"
	HeaderCESpec      = "ce-specversion"

	CETypeJob = "dev.syncopate.job.v1"
)

// ResultMsgID is the Nats-Msg-Id of a result: nobody without the token can take it first, and so
// make the good result vanish as a duplicate.
func ResultMsgID(id JobID, token string) string { return id.String() + "/" + token }

// StartedMsgID is the Nats-Msg-Id of the Started message of a job.
func StartedMsgID(id JobID, token string) string { return ResultMsgID(id, token) + "/started" }

// ResultStatus says what a result is.
type ResultStatus string

// The statuses of a result. Progress is reserved: until it means something, it fails the attempt as
// any other does that is not here.
const (
	StatusStarted   ResultStatus = "Started"   // the worker began; more than one does no harm
	StatusSucceeded ResultStatus = "Succeeded" // with an output
	StatusFailed    ResultStatus = "Failed"    // with an error; retried as the step says unless final
	StatusRetry     ResultStatus = "Retry"     // not now, in retryAfterMillis; does not count as a failure
)

// ErrResult is returned for a body that is not a result. Not worth a retry: the attempt
// failed as ResultRejected.
var ErrResult = errors.New("not a result")

// Result is what a worker publishes about a job.
type Result struct {
	Status           ResultStatus    `json:"status"`
	Output           json.RawMessage `json:"output,omitempty"`           // any JSON; with Succeeded
	OutputRef        *OutputRef      `json:"outputRef,omitempty"`        // with Succeeded, instead of output: where a large one is
	Error            *ResultError    `json:"error,omitempty"`            // with Failed, and optionally Retry
	Final            bool            `json:"final,omitempty"`            // with Failed: no retry
	RetryAfterMillis int64           `json:"retryAfterMillis,omitempty"` // with Retry; >= 0
}

// ResultError says why a job failed.
type ResultError struct {
	Code    string `json:"code,omitempty"` // a word to program against, at most 64 bytes
	Message string `json:"message,omitempty"`
}

// DecodeResult reads a result's body. Unknown members are allowed, so that the protocol can grow;
// one whose name differs from a known one in case is unknown, too. Of two with one name the last
// one counts. Allowed is also 1500.0 where the whole number 1500 is meant. Beside a reference an
// output that is null is none: many serializers write null for what is absent. Its error wraps
// ErrResult.
func DecodeResult(body []byte) (Result, error) {
	// encoding/json would let it pass inside an output, and nobody who gets the output
	// could store it.
	if !utf8.Valid(body) {
		return Result{}, fmt.Errorf("%w: not UTF-8", ErrResult)
	}
	var r Result
	var ref *wireRef
	var failure *wireError
	if err := readMembers(body,
		member{"status", &r.Status}, member{"output", &r.Output}, member{"outputRef", &ref},
		member{"error", &failure}, member{"final", &r.Final}, member{"retryAfterMillis", (*wholeNumber)(&r.RetryAfterMillis)},
	); err != nil {
		return Result{}, fmt.Errorf("%w: %.400s", ErrResult, err.Error()) // errtext: it repeats numbers, however long
	}
	r.OutputRef, r.Error = (*OutputRef)(ref), (*ResultError)(failure)
	if r.OutputRef != nil && string(r.Output) == "null" {
		r.Output = nil
	}
	return r, r.check()
}

// wireRef is an OutputRef as it is read.
type wireRef OutputRef

// UnmarshalJSON is called for what is not null.
func (r *wireRef) UnmarshalJSON(b []byte) error {
	return readMembers(b, member{"name", &r.Name}, member{"digest", &r.Digest}, member{"size", (*wholeNumber)(&r.Size)})
}

// wireError is a ResultError as it is read.
type wireError ResultError

// UnmarshalJSON is called for what is not null.
func (e *wireError) UnmarshalJSON(b []byte) error {
	return readMembers(b, member{"code", &e.Code}, member{"message", &e.Message})
}

// wholeNumber is an integer as JSON Schema has it: 1500.0 is one. A worker whose language knows
// only one kind of number writes it so, and its own look at the schema finds nothing wrong.
type wholeNumber int64

// UnmarshalJSON leaves what is beyond a float's precision, or no whole number, to the rules for an
// int64.
func (n *wholeNumber) UnmarshalJSON(b []byte) error {
	if f, err := strconv.ParseFloat(string(b), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		*n = wholeNumber(f)
		return nil
	}
	return json.Unmarshal(b, (*int64)(n))
}

func (r Result) check() error {
	switch r.Status {
	case StatusStarted:
		return nil
	case StatusSucceeded:
		if r.OutputRef != nil && len(r.Output) > 0 {
			return fmt.Errorf("%w: both output and outputRef", ErrResult)
		}
		return nil
	case StatusFailed:
		if r.Error == nil {
			return fmt.Errorf("%w: status Failed needs an error", ErrResult)
		}
		return nil
	case StatusRetry:
		if r.RetryAfterMillis < 0 {
			return fmt.Errorf("%w: retryAfterMillis %d is negative", ErrResult, r.RetryAfterMillis)
		}
		return nil
	default:
		return fmt.Errorf("%w: status %.64q", ErrResult, r.Status)
	}
}
