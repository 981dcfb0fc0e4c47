// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Job is one attempt of one step.
type Job struct {
	// ID names the attempt; it is the same if the job is delivered again.
	ID protocol.JobID
	// Topic is the kind of work.
	Topic string
	// Input is the step's input, a JSON object. Decode reads it, and changes no whole number that
	// has no type; json.Unmarshal into any changes those beyond 2^53.
	Input json.RawMessage
	// Fence is the fencing token of the writer that dispatched the job: it only grows within a run.
	Fence int64
	// LockFences are those of the locks across runs that protect the job, by lock:
	// "mutex:team-a/deploy-eu", or "gpu-pool/eu". Each grows with each holder of its lock: what a
	// mutex protects should refuse work with a lower one than it has seen. A Semaphore, as the
	// second one is, has several holders at a time: its fences tell them apart, and must not be
	// compared. All attempts under one hold have the same fence; ID.Attempt tells which is later.
	// Nil: there are none.
	LockFences map[string]int64
	// Deadline is when nobody waits for the result any more; the handler's context has it
	// too. Zero: none.
	Deadline time.Time
	// Source says which run of which cluster the job belongs to (CloudEvents source).
	Source string
	// TraceParent is the span of the job as W3C trace context, of which what the handler does is a
	// part; see Options.Trace. Empty: the operator makes no traces.
	TraceParent string
	// Delivery counts how often the server handed the job out, from 1.
	Delivery uint64
	// Payload reads a large output of an earlier step, to which the input refers as {"name",
	// "digest", "size"}, and checks that it is the one that the reference promises. It waits for a
	// server that is away until ctx ends. Its errors may be returned as they are: the step fails
	// for good with CodeInvalidPayload if the object is another one, and the attempt with
	// CodePayloadNotFound if there is none. With Options.NoObjectStore it fails for good with
	// CodeNoObjectStore. In a test of a handler it is what the test sets.
	//
	// json.Unmarshal of what it gives, into any, changes whole numbers beyond 2^53. This does not:
	//
	//	d := json.NewDecoder(bytes.NewReader(output))
	//	d.UseNumber()
	//	err := d.Decode(&v)
	Payload func(ctx context.Context, ref protocol.OutputRef) (json.RawMessage, error) `json:"-"`
}

// Decode reads the input, a JSON object, into v, as encoding/json does. Its error is final, code
// InvalidInput: the next attempt has the same input.
//
// A whole number beyond 2^53, or -2^53, where a float64 has not all of them, is a json.Number where
// it has no type of its own, as in a map[string]any: it goes out as it came. All other numbers
// there are float64, as ever. For the value of such a one use a field of the type int64 or uint64,
// or the method Int64 of json.Number. A field of the type float64 rounds it, and so may a type with
// a method UnmarshalJSON, which decodes itself.
func (j Job) Decode(v any) error {
	// encoding/json leaves v as it is for null, and takes a list for a slice.
	if !bytes.HasPrefix(bytes.TrimLeft(j.Input, " \t\r\n"), []byte("{")) {
		return Final(Fail(codeInvalidInput, "the input is no JSON object"))
	}
	if err := decode(j.Input, v); err != nil {
		return Final(Fail(codeInvalidInput, err.Error()))
	}
	return nil
}

// codeInvalidInput is that of docs/protocol.md for a body that is no JSON object, and of one that
// is not what the handler decodes.
const codeInvalidInput = "InvalidInput"

// task is a job and what it takes to answer it. The token stays here, so that no handler
// can log it.
type task struct {
	Job
	reply string
	token string
	place place
}

// parseTask reads a job message. Its error wraps errJob.
func parseTask(names protocol.Names, topic, subject string, header nats.Header, body []byte, delivery uint64) (task, error) {
	id, err := protocol.ParseJobID(header.Get(protocol.HeaderMsgID))
	if err != nil {
		return task{}, fmt.Errorf("%w: %w", errJob, err)
	}
	t := task{
		Job: Job{
			ID: id, Topic: topic, Input: body, Delivery: delivery,
			Source: header.Get(protocol.HeaderCESource), TraceParent: header.Get(protocol.HeaderTraceParent),
		},
		reply: header.Get(protocol.HeaderReply),
		token: header.Get(protocol.HeaderToken),
	}
	if err := t.checkSubjects(names, subject); err != nil {
		return task{}, err
	}
	if s := header.Get(protocol.HeaderFence); s != "" {
		if t.Fence, err = strconv.ParseInt(s, 10, 64); err != nil {
			return task{}, fmt.Errorf("%w: %s: %w", errJob, protocol.HeaderFence, err)
		}
	}
	if t.LockFences, err = protocol.ParseLockFences(header.Values(protocol.HeaderLockFence)); err != nil {
		return task{}, fmt.Errorf("%w: %w", errJob, err)
	}
	if s := header.Get(protocol.HeaderDeadline); s != "" {
		if t.Deadline, err = time.Parse(time.RFC3339Nano, s); err != nil {
			return task{}, fmt.Errorf("%w: %s: %w", errJob, protocol.HeaderDeadline, err)
		}
	}
	return t, nil
}

// checkSubjects wants the message to be where the operator puts this job, and its answer to go
// where the operator waits for it: who can write a header must not make workers publish elsewhere.
func (t task) checkSubjects(names protocol.Names, subject string) error {
	if want := names.Job(t.Topic, t.ID); subject != want {
		return fmt.Errorf("%w: subject of %s is %s", errJob, t.ID, want)
	}
	if want := names.Result(t.ID); t.reply != want {
		return fmt.Errorf("%w: %s is not %s", errJob, protocol.HeaderReply, want)
	}
	return nil
}

// expired says whether nobody waits for the result any more.
func (t task) expired(now time.Time) bool {
	return !t.Deadline.IsZero() && !now.Before(t.Deadline)
}
