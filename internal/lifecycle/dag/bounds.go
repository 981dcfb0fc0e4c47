// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// The bounds of the schema of a WorkflowRun, for specs that are stored in other objects, where the
// API server knows nothing of them. TestAChildRunHasTheBoundsOfTheSchema, and likewise
// TestARunOfAScheduleHasTheBoundsOfTheSchema, compare the two.
const (
	maxSeconds      = 365 * 24 * 60 * 60
	maxMillis       = 24 * 60 * 60 * 1000
	maxFinally      = 20
	maxDependencies = 50
	maxOnCodes      = 20
	maxFailures     = 1000
	maxText         = 1024 // of an expression, or of the message of an approval
	maxName         = 63
	maxPermits      = 100_000
	maxPriority     = 1_000_000
)

var (
	className    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	workflowName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	revisionName = regexp.MustCompile(`^[a-z0-9]+$`)
)

// OutOfBounds lists the values of a spec that the API server refuses in a WorkflowRun, each with
// its field, in spec order. It leaves out what Validate says, and the fields that no spec
// in another object may have. 0 and the empty text are absent values, where their absence
// has a meaning.
func OutOfBounds(spec *v1alpha1.WorkflowRunSpec) []string {
	l := &limits{}
	l.name("spec.workloadClass", spec.WorkloadClass, className)
	l.name("spec.tenant", spec.Tenant, className)
	l.within("spec.priority", int64(spec.Priority), -maxPriority, maxPriority)
	l.optional("spec.queueTimeoutSeconds", spec.QueueTimeoutSeconds)
	l.optional("spec.activeDeadlineSeconds", spec.ActiveDeadlineSeconds)
	l.number("spec.finallyTimeoutSeconds", int64(spec.FinallyTimeoutSeconds), 1, maxSeconds)
	l.number("spec.maxParallelSteps", int64(spec.MaxParallelSteps), 1, bounds.MaxSteps)
	l.permits("spec.locks", spec.Locks)
	if ref := spec.WorkflowRef; ref != nil {
		l.name("spec.workflowRef.name", ref.Name, workflowName)
		l.name("spec.workflowRef.revision", ref.Revision, revisionName)
	}
	l.items("spec.finally", len(spec.Finally), maxFinally)
	for i := range spec.Steps {
		l.step(fmt.Sprintf("spec.steps[%d]", i), &spec.Steps[i])
	}
	for i := range spec.Finally {
		l.step(fmt.Sprintf("spec.finally[%d]", i), &spec.Finally[i])
	}
	return l.problems
}

// limits collects what is out of bounds.
type limits struct{ problems []string }

func (l *limits) add(field, format string, args ...any) {
	l.problems = append(l.problems, field+": "+fmt.Sprintf(format, args...))
}

// number is of a field in which 0 is the same as none.
func (l *limits) number(field string, n, least, most int64) {
	if n != 0 {
		l.within(field, n, least, most)
	}
}

func (l *limits) within(field string, n, least, most int64) {
	if n < least || n > most {
		l.add(field, "%d is not in %d..%d", n, least, most)
	}
}

// optional is of a field in seconds.
func (l *limits) optional(field string, n *int32) {
	if n != nil {
		l.within(field, int64(*n), 1, maxSeconds)
	}
}

func (l *limits) items(field string, n, most int) {
	if n > most {
		l.add(field, "%d items, more than %d", n, most)
	}
}

func (l *limits) text(field, text string, most int) {
	if n := utf8.RuneCountInString(text); n > most {
		l.add(field, "%d characters, more than %d", n, most)
	}
}

func (l *limits) name(field, name string, of *regexp.Regexp) {
	if l.text(field, name, maxName); name != "" && !of.MatchString(name) {
		l.add(field, "%s is not what a name of that kind is made of", quote(name))
	}
}

// oneOf is of a field in which the empty text is the default.
func oneOf[T ~string](l *limits, field string, value T, of ...T) {
	if value == "" || slices.Contains(of, value) {
		return
	}
	words := make([]string, len(of))
	for i, word := range of {
		words[i] = string(word)
	}
	l.add(field, "%s is not one of %s", quote(string(value)), strings.Join(words, ", "))
}

func (l *limits) step(field string, s *v1alpha1.Step) {
	l.items(field+".dependsOn", len(s.DependsOn), maxDependencies)
	l.text(field+".when", s.When, maxText)
	l.permits(field+".locks", s.Locks)
	oneOf(l, field+".onFailure", s.OnFailure, v1alpha1.FailRun, v1alpha1.FailureContinue)
	l.number(field+".timeoutSeconds", int64(s.TimeoutSeconds), 1, maxSeconds)
	l.number(field+".startTimeoutSeconds", int64(s.StartTimeoutSeconds), 1, maxSeconds)
	l.retry(field+".retry", &s.Retry)
	if f := s.ForEach; f != nil {
		l.text(field+".forEach.items", f.Items, maxText)
		oneOf(l, field+".forEach.onItemFailure", f.OnItemFailure, v1alpha1.FailStep, v1alpha1.Collect)
		l.permits(field+".forEach.locks", f.Locks)
	}
	if a := s.Approval; a != nil {
		l.text(field+".approval.message", a.Message, maxText)
		l.optional(field+".approval.timeoutSeconds", a.TimeoutSeconds)
		oneOf(l, field+".approval.onTimeout", a.OnTimeout, v1alpha1.Approve, v1alpha1.Reject)
	}
	if d := s.Delay; d != nil && bounds.ValueOr(d.Seconds, 0) > maxSeconds {
		l.optional(field+".delay.seconds", d.Seconds)
	}
}

func (l *limits) retry(field string, r *v1alpha1.Retry) {
	l.items(field+".onCodes", len(r.OnCodes), maxOnCodes)
	for i, code := range r.OnCodes {
		at := fmt.Sprintf("%s.onCodes[%d]", field, i)
		if l.text(at, code, bounds.MaxCodeChars); code == "" {
			l.add(at, "a code is not empty")
		}
	}
	l.number(field+".maxFailures", int64(r.MaxFailures), 1, maxFailures)
	b, field := &r.Backoff, field+".backoff"
	l.within(field+".initialMillis", bounds.ValueOr(b.InitialMillis, 0), 0, maxMillis)
	l.number(field+".factorPercent", int64(b.FactorPercent), 100, 1000)
	l.within(field+".maxMillis", bounds.ValueOr(b.MaxMillis, 0), 0, maxMillis)
	l.within(field+".jitterPercent", int64(bounds.ValueOr(b.JitterPercent, 0)), 0, 100)
}

func (l *limits) permits(field string, requests []v1alpha1.LockRequest) {
	for i := range requests {
		if n := bounds.ValueOr(requests[i].Permits, 1); n > maxPermits {
			l.add(field, "%d permits, more than %d", n, maxPermits)
		}
	}
}
