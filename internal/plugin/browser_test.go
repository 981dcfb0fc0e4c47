// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// pipe makes a pipe with a name, whose reads end.
func pipe(t *testing.T, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return f
}

// A browser may be what xdg-open becomes, with all the windows of its user.
//
// mutation: a command that ends with the context makes this fail.
func TestTheBrowserOutlivesTheConsole(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("xdg-open is Linux'")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho > " + dir + "/began\nread x < " + dir + "/go\necho > " + dir + "/ended\n"
	if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	began, proceed, ended := pipe(t, dir+"/began"), pipe(t, dir+"/go"), pipe(t, dir+"/ended")
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{Env: Env{Err: io.Discard}}
	remove := a.open(ctx, "http://127.0.0.1:1/")
	if _, err := began.Read(make([]byte, 1)); err != nil {
		t.Fatalf("it was not opened: %v", err)
	}
	cancel()
	remove()
	if _, err := proceed.WriteString("on\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := ended.Read(make([]byte, 1)); err != nil {
		t.Errorf("it did not outlive the console: %v", err)
	}
}
