// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

const (
	// childAckWait leaves a process that shares a busy machine with compilers time to ping.
	childAckWait   = 1500 * time.Millisecond
	installTimeout = 90 * time.Second
	examples       = "../../examples"
)

// mutations: of all three, a "sleep" that gives its value when it is told to stop, and a name that
// does not begin with SYNCOPATE_PREFIX makes this fail; so does one that takes any text in
// NO_OBJECT_STORE for a yes; in Go a Decode that makes doubles of all numbers that have no type.
func TestTheGoSDK(t *testing.T) {
	t.Parallel()
	conforms(t, "", buildGo(t))
}

// buildGo gives the program of the sample in Go.
func buildGo(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "worker-go")
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	build.Dir = filepath.Join(examples, "worker-go")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build worker-go: %v\n%s", err, out)
	}
	return program
}

func TestThePythonWorker(t *testing.T) {
	t.Parallel()
	needs(t, "python3")
	conforms(t, filepath.Join(examples, "worker-python"), "python3", "-B", "worker.py", DefaultTopic)
}

func TestTheNodeWorker(t *testing.T) {
	t.Parallel()
	conforms(t, installNode(t), "node", "worker.mjs", DefaultTopic)
}

// prefix is that of another installation than the first one at its NATS.
const prefix = "team-a"

// conforms runs the kit against a program with a NATS server of its own.
func conforms(t *testing.T, dir string, args ...string) {
	t.Helper()
	server := start(t)
	command := Command{Dir: dir, Args: args, Env: []string{"NATS_URL=" + server.URL(), "SYNCOPATE_PREFIX=" + prefix, "NO_OBJECT_STORE=0"}}
	hasty := command
	hasty.Env = append(slices.Clone(command.Env), "GRACE_SECONDS=1")
	var last Process
	starts := func(c Command) func() (Process, error) {
		return func() (Process, error) {
			p, err := c.Start()
			last = p
			return p, err
		}
	}
	Test(t, Config{
		URL: server.URL(), Prefix: prefix, AckWait: childAckWait, References: true, RestartNATS: server.Restart,
		Start: starts(command), StartHasty: starts(hasty),
	})
	if t.Failed() && last != nil {
		t.Logf("output of the worker:\n%s", last.Output())
	}
}

// needs skips the test where programs are missing, or fails it where REQUIRE_WORKERS says that they
// must be there.
func needs(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			unable(t, "%s is not installed", program)
		}
	}
}

func unable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("REQUIRE_WORKERS") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format+"; REQUIRE_WORKERS=1 makes this a failure", args...)
}

// installNode copies the worker to a directory of its own and installs what it needs.
func installNode(t *testing.T) string {
	t.Helper()
	needs(t, "node", "npm")
	dir := t.TempDir()
	for _, file := range []string{"worker.mjs", "short.mjs", "json.mjs", "nats.mjs", "traces.mjs", "package.json", "package-lock.json", ".npmrc"} {
		b, err := os.ReadFile(filepath.Join(examples, "worker-node", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), installTimeout)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		unable(t, "npm ci does not work here (%v), no network? %s", err, out)
	}
	return dir
}
