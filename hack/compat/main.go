// SPDX-License-Identifier: Apache-2.0

// Command compat compares what others rely on with what it was in the last release: the CRDs, the
// schemas of the wire protocol and its golden messages.
//
//	compat [-root DIR]                      ends with 1 and lists what may break somebody
//	compat -record VERSION -manifests FILE  makes this tree, and the install.yaml of its release, the last
//
// What hack/compat/allowed.yaml lists, with a reason, passes. docs/stability.md says what is
// promised. make verify calls it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

var errBreaks = errors.New("what others rely on has changed: undo it, or list it in hack/compat/allowed.yaml with the reason, and in CHANGELOG.md under Breaking")

func main() {
	root := flag.String("root", ".", "root of the repository")
	version := flag.String("record", "", "version that becomes the last release")
	manifests := flag.String("manifests", "", "install.yaml of that version")
	flag.Parse()
	err := run(*root, *version, *manifests)
	if err != nil {
		fmt.Fprintln(os.Stderr, "compat:", err)
		os.Exit(1)
	}
}

func run(root, version, manifests string) error {
	if (version == "") != (manifests == "") {
		return errors.New("-record VERSION and -manifests FILE go together")
	}
	if version != "" {
		return record(root, version, manifests)
	}
	return check(root)
}

// check compares the tree with the last release.
func check(root string) error {
	last := filepath.Join(root, "hack", "compat", "last")
	version, err := os.ReadFile(filepath.Join(last, "VERSION"))
	if err != nil {
		return err
	}
	was, err := readCRDs(filepath.Join(last, "install.yaml"))
	if err != nil {
		return err
	}
	bases, err := filepath.Glob(filepath.Join(root, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return err
	}
	is, err := readCRDs(bases...)
	if err != nil {
		return err
	}
	c := &comparison{}
	c.crds(was, is)
	if err := c.protocol(filepath.Join(last, "protocol"), filepath.Join(root, "docs", "protocol")); err != nil {
		return err
	}
	left, err := without(c.changes, filepath.Join(root, "hack", "compat", "allowed.yaml"))
	if err != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("since %s:\n  %s\n%w", strings.TrimSpace(string(version)), strings.Join(left, "\n  "), errBreaks)
}

// comparison collects what may break somebody, one line each.
type comparison struct{ changes []string }

func (c *comparison) add(where, format string, args ...any) {
	c.changes = append(c.changes, where+": "+fmt.Sprintf(format, args...))
}
