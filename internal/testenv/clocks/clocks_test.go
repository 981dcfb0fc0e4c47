// SPDX-License-Identifier: Apache-2.0

package clocks_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/clocks"
)

// program prints its clock, in seconds, and what has passed by its monotonic clock since it began,
// for each line that it reads.
const program = `package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	begin := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		now := time.Now()
		fmt.Println(now.Unix(), now.Sub(begin).Seconds())
	}
}
`

// TestAGoProgramsClockJumps builds a program with the overlay, and has its clock jump
// while it runs.
//
// mutations: an overlay that does not add wrongBy makes this fail, and so does a Set that writes a
// new file.
func TestAGoProgramsClockJumps(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the overlay is for Linux")
	}
	dir := t.TempDir()
	goroot, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := clocks.Overlay(dir, strings.TrimSpace(string(goroot)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "program")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", binary, filepath.Join(dir, "main.go"))
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	clock := clocks.New(t)
	ask := start(t, binary, clock.Env(""))
	for _, wrong := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		clock.Set(wrong)
		wall, passed := ask()
		if off := time.Duration(wall-time.Now().Unix()) * time.Second; (off - wrong).Abs() > time.Minute {
			t.Errorf("a clock that is wrong by %s is wrong by %s", wrong, off)
		}
		if passed < 0 || passed > 60 {
			t.Errorf("a clock that is wrong by %s: %v s have passed", wrong, passed)
		}
	}
}

// start runs a program; what it returns asks it once.
func start(t *testing.T, binary string, env []string) func() (int64, float64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	return func() (int64, float64) {
		t.Helper()
		if _, err := in.Write([]byte("\n")); err != nil || !lines.Scan() {
			t.Fatal("the program ended")
		}
		words := strings.Fields(lines.Text())
		wall, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		passed, err := strconv.ParseFloat(words[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return wall, passed
	}
}
