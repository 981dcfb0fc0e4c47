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
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	o := options{}
	flag.StringVar(&o.version, "version", "", "version to release, as v1.2.3 or v1.2.3-rc.1")
	flag.StringVar(&o.root, "root", ".", "root of the repository")
	flag.StringVar(&o.out, "out", "", "directory for the artifacts (default ROOT/bin/release/VERSION); replaced")
	flag.StringVar(&o.repository, "repository", "ghcr.io/syncopate-dev/syncopate", "repository that the image will be pushed to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

type options struct{ version, root, out, repository string }

// run checks first what can be refused, since building takes minutes.
func run(ctx context.Context, o options) error {
	r, err := prepare(ctx, o)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "release")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	r.scratch, r.dist = scratch, filepath.Join(scratch, "dist")
	if err := os.Mkdir(r.dist, 0o700); err != nil {
		return err
	}
	for _, s := range r.steps() {
		fmt.Println(s.name)
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return r.publish()
}

type step struct {
	name string
	do   func(context.Context) error
}

func (r *release) steps() []step {
	return []step{
		{"binaries", r.buildBinaries},
		{"image", quick(r.writeImage)},
		{"the image starts", r.startImage},
		{"plugin", quick(r.writePlugin)},
		{"chart", r.writeChart},
		{"install.yaml", r.writeInstall},
		{"release notes", quick(r.writeNotes)},
		{"bills of materials", quick(r.writeBills)},
		{"provenance", quick(r.writeProvenance)},
		{"checksums", quick(r.writeSums)},
	}
}

// quick is a step that needs not be interrupted.
func quick(do func() error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return do()
	}
}
