// SPDX-License-Identifier: Apache-2.0

// Package clocks gives processes of tests a wall clock that is wrong, and may jump while they run.
// Monotonic clocks stay right, as they do when somebody sets the clock of a machine.
//
//	Clock        a file of eight bytes: by how many seconds the clock is wrong
//	Preload      for programs that ask the C library, such as redis-server
//	Overlay      for programs in Go, which ask the kernel themselves: they are built with it
//
// A program reads the file through memory that it shares, at each look at its clock, so a jump is
// seen at once.
package clocks

import (
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// variable names the file of a clock in the environment of a process.
const variable = "WRONG_CLOCK"

//go:embed testdata/preload.c
var source []byte

// Clock is by how much processes are wrong.
type Clock struct {
	tb   testing.TB
	path string
}

// New makes a clock that is right.
func New(tb testing.TB) *Clock {
	tb.Helper()
	c := &Clock{tb: tb, path: filepath.Join(tb.TempDir(), "clock")}
	c.Set(0)
	return c
}

// Set makes the clock wrong by d, in whole seconds; positive: ahead.
func (c *Clock) Set(d time.Duration) {
	c.tb.Helper()
	// The file stays the same one: processes have it in their memory.
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		c.tb.Fatal(err)
	}
	var text [8]byte
	binary.NativeEndian.PutUint64(text[:], uint64(int64(d/time.Second)))
	_, err = f.Write(text[:])
	if err := closed(f, err); err != nil {
		c.tb.Fatal(err)
	}
}

func closed(f *os.File, err error) error {
	if closing := f.Close(); err == nil {
		return closing
	}
	return err
}

// Env is what a process needs to have this clock; preload is that of Preload, and empty for a
// program that is built with Overlay.
func (c *Clock) Env(preload string) []string {
	env := []string{variable + "=" + c.path}
	if preload != "" {
		env = append(env, "LD_PRELOAD="+preload)
	}
	return env
}

// Preload compiles the library that stands before the C library. It skips the test where there is
// no C compiler.
func Preload(tb testing.TB) string {
	tb.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		tb.Skipf("no C compiler: %v", err)
	}
	dir := tb.TempDir()
	code, library := filepath.Join(dir, "preload.c"), filepath.Join(dir, "preload.so")
	if err := os.WriteFile(code, source, 0o600); err != nil {
		tb.Fatal(err)
	}
	if out, err := exec.CommandContext(tb.Context(), cc, "-shared", "-fPIC", "-O1", "-o", library, code).CombinedOutput(); err != nil {
		tb.Fatalf("compile: %v\n%s", err, out)
	}
	return library
}

// What Overlay adds to package time of Go.
const (
	overlaid = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
	overlay  = "\tsec, nsec, mono := runtimeNow()\n\tsec += wrongBy()\n\tif mono == 0 {"
	addition = `// SPDX-License-Identifier: Apache-2.0

package time

import (
	"syscall"
	"unsafe"
)

var wrong = func() *int64 {
	path, ok := syscall.Getenv("` + variable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic("open the clock: " + err.Error())
	}
	text, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("read the clock: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&text[0]))
}()

func wrongBy() int64 { return *wrong }
`
)

// Overlay writes, into a directory, what go build -overlay takes for a program whose wall clock can
// be made wrong, and returns its path. The directory must be the same from call to call: what was
// built stays in the build cache for it.
func Overlay(dir, goroot string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	original := filepath.Join(goroot, "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), overlaid) != 1 {
		return "", os.ErrInvalid // this Go tells the time in another way
	}
	files := map[string]string{
		"time.go":  strings.Replace(string(text), overlaid, overlay, 1),
		"wrong.go": addition,
	}
	replace := map[string]string{}
	for name, text := range files {
		if err := replaced(filepath.Join(dir, name), text); err != nil {
			return "", err
		}
		replace[filepath.Join(goroot, "src", "time", name)] = filepath.Join(dir, name)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, replaced(path, string(list))
}

// replaced writes a file at once: others may be building with it.
func replaced(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "new")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := closed(f, err); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
