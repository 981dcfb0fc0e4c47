// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/syncopate-dev/syncopate/internal/check"
)

// UsageError is a command line that makes no sense. No retry helps.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *UsageError) Unwrap() error { return e.Err }

func usagef(format string, args ...any) error { return &UsageError{Err: fmt.Errorf(format, args...)} }

// args makes the errors of a check of arguments usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if err := check(cmd, given); err != nil {
			return usagef("%w; see %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}

// output checks the flag -o.
func output(format string, known ...string) error {
	if slices.Contains(known, format) {
		return nil
	}
	return usagef("--output %q: need one of %v", format, known)
}

// UnansweredError says that the API server did not answer in time, or cannot be reached from here.
// Retry.
type UnansweredError struct{ Err error }

func (e *UnansweredError) Error() string {
	return "the API server does not answer: " + e.Err.Error() + "\nIf the operator cannot reach it either, it cannot write, and no run goes on: workers " +
		"go on with the jobs that they have, and results wait in NATS"
}

// Unwrap gives the cause.
func (e *UnansweredError) Unwrap() error { return e.Err }

// unanswered tells an API server that does not answer from one that refuses, and from what is wrong
// where the question comes from: a kubeconfig, a certificate, a helper that logs in.
func unanswered(err error) error {
	var said apierrors.APIStatus
	if err == nil || errors.As(err, &said) || errors.Is(err, context.Canceled) || !outOfTime(err) && !cutOff(err) {
		return err
	}
	return &UnansweredError{err}
}

func outOfTime(err error) bool {
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, context.DeadlineExceeded)
}

// cutOff says whether there is no connection, or it broke. What TLS says is of that type, too, and
// is an answer.
func cutOff(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	if ok {
		return network.Op != "remote error" && network.Op != "local error"
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// CheckError says that check found a failure, or that it could not tell. Outcome says which.
type CheckError struct {
	Outcome check.Verdict
	Count   int
}

func (e *CheckError) Error() string {
	if e.Outcome == check.Unknown {
		return fmt.Sprintf("%d checks could not tell, and none failed", e.Count)
	}
	return fmt.Sprintf("%d checks failed", e.Count)
}

// AuditError says that an audit found differences, or that a store could not be read. Outcome says
// which.
type AuditError struct {
	Outcome check.Verdict
	Count   int
}

func (e *AuditError) Error() string {
	if e.Outcome == check.Unknown {
		return fmt.Sprintf("%d parts could not be read, and no difference was found in the others", e.Count)
	}
	return fmt.Sprintf("%d differences between the stores", e.Count)
}
