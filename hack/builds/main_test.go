// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository is one with a page, and with files of these contents in its index.
func repository(t *testing.T, files map[string]string, mode os.FileMode) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	return root
}

// mutation: a bound that is another, a look at either kind only, and an error of git that
// is dropped fail.
func TestWhatIsNoSourceIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		mode  os.FileMode
		want  string // of the error; "": none
	}{
		"a page":                      {map[string]string{"README.md": "hello"}, 0o600, ""},
		"a page of a mebibyte":        {map[string]string{"large.md": strings.Repeat("x", 1<<20)}, 0o600, ""},
		"more than that":              {map[string]string{"a b.bin": strings.Repeat("x", 1<<20+1)}, 0o600, "a b.bin is larger"},
		"a script":                    {map[string]string{"run": "#!/bin/sh\n"}, 0o700, ""},
		"a small build":               {map[string]string{"manager": "\x7fELF"}, 0o700, "manager is executable"},
		"two of them, beside a page":  {map[string]string{"a": "\x7fELF", "b": "\x7fELF"}, 0o700, "b is executable"},
		"a repository without a file": {nil, 0, "no files"},
	} {
		t.Run(name, func(t *testing.T) {
			err := look(t.Context(), repository(t, c.files, c.mode))
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	if err := look(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "list files") {
		t.Errorf("no repository: %v", err)
	}
}

func TestARemovedFileIsNoError(t *testing.T) {
	root := repository(t, map[string]string{"a": "x", "b": "y"}, 0o600)
	if err := os.Remove(filepath.Join(root, "a")); err != nil {
		t.Fatal(err)
	}
	if err := look(t.Context(), root); err != nil {
		t.Error(err)
	}
}
