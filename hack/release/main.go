// SPDX-License-Identifier: Apache-2.0

// Command release makes everything that a version is published as, on one machine and without a
// container daemon:
//
//	release -version v1.2.3 [-root DIR] [-out DIR] [-repository NAME]
//
// Two calls at one commit, with one version of Go, make the same bytes: nothing in the artifacts
// is taken from the clock, from the machine or from the order of a directory. docs/releasing.md
// lists them.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	o := options{}
	flag.StringVar(&o.version, "version", "", "version to release, as v1.2.3 or v1.2.3-rc.1")
	flag.StringVar(&o.root, "root", ".", "root of the repository")
	flag.StringVar(&o.out, "out", "", "directory for the artifacts (default ROOT/bin/release/VERSION); replaced")
	flag.StringVar(&o.repository, "repository", "ghcr.io/syncopate-dev/syncopate", "repository that the image will be pushed to")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type options struct{ version, root, out, repository string }

// run checks first what can be refused, since building takes minutes.
func run(o options) error {
	r, err := prepare(o)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	r.scratch, r.dist = scratch, filepath.Join(scratch, "dist")
	if err := os.Mkdir(r.dist, 0o755); err != nil {
		return err
	}
	for _, s := range r.steps() {
		fmt.Println(s.name)
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.publish()
}

type step struct {
	name string
	do   func() error
}

func (r *release) steps() []step {
	return []step{
		{"binaries", r.buildBinaries},
		{"image", r.writeImage},
		{"plugin", r.writePlugin},
		{"chart", r.writeChart},
		{"install.yaml", r.writeInstall},
		{"release notes", r.writeNotes},
		{"bills of materials", r.writeBills},
		{"provenance", r.writeProvenance},
		{"checksums", r.writeSums},
	}
}
