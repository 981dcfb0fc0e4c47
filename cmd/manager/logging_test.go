// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// mutation: Write that drops all, or nothing, fails; so do a With and a Check that forget to ask,
// and a Check that takes messages of any level.
func TestALeadThatIsGivenBackIsNoError(t *testing.T) {
	for name, c := range map[string]struct {
		message, err string
		want         bool // it is logged
	}{
		"the lead is given back":          {afterStop, givenBack, false},
		"something else ends badly":       {afterStop, "cannot close", true},
		"another message, the same error": {"problem running manager", givenBack, true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			newLogger(t.Context(), &zap.Options{DestWriter: &out}).WithValues("holder", "a").Error(errors.New(c.err), c.message)
			if got := strings.Contains(out.String(), c.message) && strings.Contains(out.String(), c.err); got != c.want {
				t.Errorf("logged: %t, want %t: %s", got, c.want, out.String())
			}
		})
	}
	if (orderly{zapcore.NewNopCore(), t.Context()}).Check(zapcore.Entry{Message: afterStop}, nil) != nil {
		t.Error("a level that is off is logged")
	}
}

// mutation: a Write that asks not for the error, or not for the stop, or that keeps the stack, or
// writes what the level leaves out, makes this fail; so does a Check that keeps the level.
func TestWhatAStopCutsOffIsNoError(t *testing.T) {
	cut := fmt.Errorf("write an event: %w", context.Canceled)
	for name, c := range map[string]struct {
		stopped bool
		level   zapcore.Level // from which on there are logs
		err     error
		want    string // "": nothing
	}{
		"a stop cuts it off":                  {true, zapcore.InfoLevel, cut, `"level":"info"`},
		"a stop, and only errors are wanted":  {true, zapcore.ErrorLevel, cut, ""},
		"another error while it stops":        {true, zapcore.InfoLevel, errors.New("refused"), `"level":"error"`},
		"somebody else has ended the context": {false, zapcore.InfoLevel, cut, `"level":"error"`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			if c.stopped {
				stop()
			}
			var out bytes.Buffer
			newLogger(ctx, &zap.Options{DestWriter: &out, Level: c.level}).WithName("events").Error(c.err, "Unable to write event", "lock", "a")
			got := out.String()
			if c.want == "" {
				if got != "" {
					t.Errorf("logged: %s", got)
				}
				return
			}
			if !strings.Contains(got, c.want) || !strings.Contains(got, c.err.Error()) || strings.Contains(got, "stacktrace") == strings.Contains(c.want, "info") {
				t.Errorf("logged: %s; want %s, with a stack trace if it is an error", got, c.want)
			}
		})
	}
}
