// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// operator compiles what stands for the manager into a release, for this machine.
func operator(t *testing.T, r *release, mode string) {
	t.Helper()
	path := r.binaryPath(platform{runtime.GOOS, runtime.GOARCH}, "manager")
	if err := os.Remove(path); err != nil { // Go replaces nothing but programs
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-ldflags", "-X 'main.mode="+mode+"'", "-o", path, "./testdata/operator")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := r.writeImage(); err != nil {
		t.Fatal(err)
	}
}

// mutation: programs cannot be executed, the entrypoint is another, the version is not looked at, a
// program that ended passes.
func TestImageIsStartedFromItsArchive(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("images are Linux's")
	}
	commit := strings.Repeat("a", 40)
	for mode, complaint := range map[string]string{
		"v1.0.0 " + commit:      "",
		"v1.0.1 " + commit:      "not version v1.0.0",
		"dies v1.0.0 " + commit: "ended before",
	} {
		r := fake(t)
		operator(t, r, mode)
		err := r.startImage(t.Context())
		if complaint == "" && err != nil || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Errorf("%s: error is %v; want %q", mode, err, complaint)
		}
	}
}

// mutation: links are passed over.
func TestNothingIsUnpackedOutside(t *testing.T) {
	for name, h := range map[string]*tar.Header{
		"above":  {Typeflag: tar.TypeReg, Name: "../x", Mode: 0o644},
		"a link": {Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if unpack(&b, filepath.Join(dir, "in")) == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, "x")); err == nil {
			t.Errorf("%s: written outside", name)
		}
	}
}
