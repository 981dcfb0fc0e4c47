// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRun checks a small tree; each line of a comment and of the page with a name that is gone says
// what is reported.
func TestRun(t *testing.T) {
	err := run(write(t, map[string]string{
		"go.mod":           "module example.org/m\n",
		"data/limits.yaml": "# inComment: 1\nmaxItems: 3\n",
		"scripts/check.sh": "#!/bin/sh\n",
		"lease/lease.go":   "package lease\n\n// Lease is held; see gone.go, lease.go and check.sh.\ntype Lease struct{ validUntil int }\n\n// Take is one of three: Take, lostVerb, maxItems.\nfunc (Lease) Take() {}\n",
		"lease/lease_test.go": "package lease\n\n// mutation: a Lease without validUntil, or with validFrom.\n//   - lease.go Take that waits\n//   - lease.go Renew that waits\n//   - lost.go Take\n//   - other.go poliCy that is declared elsewhere\n" +
			"func TestLease_Take() {}\n",
		"other/other.go": "// Package other uses lease.Lease, lease.Take and lease.Gone, not io.Reader or v.Gone; Leases, poliCies.\n//\n//nolint:somethingElse\npackage other\n\nvar poliCy = store.Repeats\n",
		"README.md":      "The `maxItems` of lease.Lease: TestLease_Take, TestLease_Renew, inComment, bin/made.go.\nhttps://example.org/notHere.go TestLease_* 20T15Z\n",
		"docs/adr/1.md":  "A record of oldName.\n",
	}))
	want := []string{
		"README.md:1: no name TestLease_Renew",
		"README.md:1: no name inComment",
		"lease/lease.go:3: no file gone.go",
		"lease/lease.go:6: no name lostVerb",
		"lease/lease_test.go:3: no name validFrom",
		"lease/lease_test.go:5: lease.go declares no Renew",
		"lease/lease_test.go:6: no file lost.go",
		"lease/lease_test.go:6: lost.go declares no Take",
		"other/other.go:1: package lease declares no Gone",
	}
	if err == nil {
		t.Fatal("nothing was found")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestRun_RightTree(t *testing.T) {
	if err := run(write(t, map[string]string{"a.go": "// Package a has all that is named in a.go: a.Name, aName.\npackage a\n\nvar aName, Name int\n"})); err != nil {
		t.Error(err)
	}
}

func TestRun_NoComments(t *testing.T) {
	if err := run(write(t, map[string]string{"a.go": "package a\n"})); err == nil {
		t.Error("a tree without a comment passes: are comments still found?")
	}
}

func write(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
