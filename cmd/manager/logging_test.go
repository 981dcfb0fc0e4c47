// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
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
			newLogger(&zap.Options{DestWriter: &out}).WithValues("holder", "a").Error(errors.New(c.err), c.message)
			if got := strings.Contains(out.String(), c.message) && strings.Contains(out.String(), c.err); got != c.want {
				t.Errorf("logged: %t, want %t: %s", got, c.want, out.String())
			}
		})
	}
	if (orderly{zapcore.NewNopCore()}).Check(zapcore.Entry{Message: afterStop}, nil) != nil {
		t.Error("a level that is off is logged")
	}
}
