// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

var versions = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// record makes a version the one that the next is compared with: its manifests as they were
// published, and the messages and samples of this tree, which must be the release's. What was
// allowed until then has had its time.
func record(root, version, manifests string) error {
	if !versions.MatchString(version) {
		return fmt.Errorf("%q is no version as v1.2.3", version)
	}
	text, err := os.ReadFile(manifests)
	if err != nil {
		return err
	}
	if _, err := readCRDs(manifests); err != nil {
		return err
	}
	last := filepath.Join(root, "hack", "compat", "last")
	if err := os.RemoveAll(last); err != nil {
		return err
	}
	for _, kept := range []struct{ from, pattern, to string }{
		{"docs/protocol", "*.schema.json", "protocol"},
		{"docs/protocol/golden", "*.json", "protocol/golden"},
		{"config/samples", "*.yaml", "samples"}, // test/packaging applies them to this tree's CRDs
	} {
		if err := copyAll(filepath.Join(root, kept.from), kept.pattern, filepath.Join(last, kept.to)); err != nil {
			return err
		}
	}
	return errors.Join(
		save(filepath.Join(last, "install.yaml"), text),
		save(filepath.Join(last, "VERSION"), []byte(version+"\n")),
		save(filepath.Join(root, "hack", "compat", "allowed.yaml"), []byte(noneAllowed)),
	)
}

const noneAllowed = `# Changes since the last release that break somebody, and why all the same. compat prints the lines; CHANGELOG.md tells users.
# - change: "workflowruns.syncopate.dev v1alpha1.spec.example: field removed"
#   reason: ...
[]
`

func copyAll(from, pattern, to string) error {
	files, err := filepath.Glob(filepath.Join(from, pattern))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("no file %s in %s", pattern, from)
	}
	if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // of the tree
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := save(filepath.Join(to, filepath.Base(file)), text); err != nil {
			return err
		}
	}
	return nil
}

func save(file string, text []byte) error {
	return os.WriteFile(file, text, 0o644) //nolint:gosec // of the tree
}
