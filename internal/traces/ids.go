// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// TraceID is that of W3C trace context.
type TraceID [16]byte

// SpanID is that of W3C trace context.
type SpanID [8]byte

// Context is where a span is: its trace, itself, and whether the trace is collected.
type Context struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool
}

// traceparent is version, trace, span and flags, and what versions to come may have after them.
var traceparent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// String is the context as a traceparent.
func (c Context) String() string {
	flags := "00"
	if c.Sampled {
		flags = "01"
	}
	return "00-" + hex.EncodeToString(c.Trace[:]) + "-" + hex.EncodeToString(c.Span[:]) + "-" + flags
}

// Parse reads a traceparent. Of versions that are to come it reads what the first one has.
func Parse(text string) (c Context, ok bool) {
	part := traceparent.FindStringSubmatch(text)
	if part == nil || part[1] == "ff" || (part[1] == "00" && part[5] != "") {
		return c, false
	}
	var flags [1]byte
	for i, to := range [][]byte{c.Trace[:], c.Span[:], flags[:]} {
		_, _ = hex.Decode(to, []byte(part[i+2])) // it has such digits only
	}
	c.Sampled = flags[0]&1 == 1
	return c, c.Trace != TraceID{} && c.Span != SpanID{}
}

// kind is what a span is about. It is part of the span's id.
type kind string

const (
	kindSchedule kind = "schedule"
	kindRun      kind = "run"
	kindQueue    kind = "queue"
	kindStep     kind = "step"
	kindAttempt  kind = "attempt"
	kindItems    kind = "items"
	kindApproval kind = "approval"
	kindDelay    kind = "delay"
	kindChild    kind = "child"
	kindLocks    kind = "locks"
)

// spanID is that of a span of a run. No part can have a slash in it.
func spanID(run *v1alpha1.WorkflowRun, step string, attempt int32, k kind) (id SpanID) {
	sum := sha256.Sum256([]byte(string(run.UID) + "/" + step + "/-/" + strconv.Itoa(int(attempt)) + "/" + string(k)))
	copy(id[:], sum[:])
	return id
}

// Of is the context of a run's own span. The trace is the one that the run's annotation names, else
// one of its own, of which the given part in a hundred is collected: each replica says the same.
func Of(run *v1alpha1.WorkflowRun, percent int) Context {
	c, given := Parse(run.Annotations[v1alpha1.AnnotationTraceparent])
	if !given {
		sum := sha256.Sum256([]byte(run.UID))
		copy(c.Trace[:], sum[:])
		c.Sampled = (int(sum[16])<<8|int(sum[17]))*100 < percent<<16
	}
	c.Span = spanID(run, "", 0, kindRun)
	return c
}

// OfJob is the context that a job of a step has: what its worker does is below it.
func OfJob(run *v1alpha1.WorkflowRun, step string, isItem bool, attempt int32, percent int) Context {
	c := Of(run, percent)
	if isItem {
		c.Span = spanID(run, step, 0, kindItems)
	} else {
		c.Span = spanID(run, step, attempt, kindAttempt)
	}
	return c
}

// OfChild is the context of the child run of a step.
func OfChild(run *v1alpha1.WorkflowRun, step string, percent int) Context {
	c := Of(run, percent)
	c.Span = spanID(run, step, 0, kindChild)
	return c
}
