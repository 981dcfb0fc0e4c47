package plugin

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
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
