// SPDX-License-Identifier: Apache-2.0

package secretdir

import (
	"os"
	"path/filepath"
	"testing"
)

// mutation: a Read that keeps line ends, or fails where an entry is missing, makes this fail.
func TestAnEntryIsReadAsItIsNow(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []struct {
		write, want string
		remove      bool
	}{{remove: true}, {write: "old\n", want: "old"}, {write: " new\r\n\n", want: " new"}, {remove: true}} {
		path := filepath.Join(dir, "password")
		if step.remove {
			_ = os.Remove(path)
		} else if err := os.WriteFile(path, []byte(step.write), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Read(dir, "password"); err != nil || got != step.want {
			t.Errorf("after %q: %q, %v", step.write, got, err)
		}
	}
}

func TestWhatIsNoSecretIsAnError(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(dir); err != nil {
		t.Error(err)
	}
	for _, path := range []string{file, filepath.Join(dir, "missing")} {
		if err := Check(path); err == nil {
			t.Errorf("%s is taken for a Secret", path)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "password"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "password"); err == nil {
		t.Error("an entry that is a directory is no error")
	}
}
