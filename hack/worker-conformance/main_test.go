// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	workers "github.com/syncopate-dev/syncopate/test/workers"
)

// mutation: run that forgets its outcomes ends with 0, and this fails.
func TestTheExitCodeTellsHowItWent(t *testing.T) {
	skip := "-skip=" + strings.Join(slices.DeleteFunc(workers.IDs(), func(id string) bool { return id == "reply" }), ",")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no worker":                            {nil, exitUnable, "give -nats, the worker's command, or both"},
		"an unknown flag":                      {[]string{"-nonsense"}, exitUnable, "nonsense"},
		"an unknown check":                     {[]string{"-skip=nonsense", "--", "sleep", "600"}, exitUnable, `no check "nonsense"`},
		"a command that is none":               {[]string{"--", "./no-such-worker"}, exitUnable, "no-such-worker"},
		"help":                                 {[]string{"-help"}, 0, "-ack-wait"},
		"a worker that does nothing but speak": {[]string{"-patience=500ms", skip, "--", "sh", "-c", "echo hello; sleep 600"}, exitFailed, "the worker said: hello"},
		"nothing to check":                     {[]string{skip + ",reply", "--", "sleep", "600"}, 0, "0 ok, 0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if code := run(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("exit code %d:\n%s", code, out.String())
			}
		})
	}
}
