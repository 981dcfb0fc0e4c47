// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"golang.org/x/mod/semver"
)

// release is what all steps know of the version that is made.
type release struct {
	version    string // "v1.2.3"
	root       string // absolute
	out        string // absolute
	repository string
	commit     string    // of git, whole
	time       time.Time // of the commit: what every artifact says it was made at
	notes      string    // the section of CHANGELOG.md

	scratch string // of this call, removed at its end
	dist    string // inside of scratch; the artifacts
}

// prepare refuses what cannot be released, with the reason.
func prepare(ctx context.Context, o options) (*release, error) {
	if err := checkVersion(o.version); err != nil {
		return nil, err
	}
	if _, err := name.NewRepository(o.repository, name.StrictValidation); err != nil {
		return nil, fmt.Errorf("repository %q: %w", o.repository, err)
	}
	root, err := filepath.Abs(o.root)
	if err != nil {
		return nil, err
	}
	r := &release{version: o.version, root: root, out: o.out, repository: o.repository}
	if r.out == "" {
		r.out = filepath.Join(root, "bin", "release", o.version)
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return nil, err
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return nil, err
	}
	if r.notes, err = section(string(changelog), r.version); err != nil {
		return nil, err
	}
	return r, r.readCommit(ctx)
}

// checkVersion takes what both Go and Helm call a version. Build metadata ("+x") is no tag of an
// image.
func checkVersion(v string) error {
	switch {
	case v == "":
		return errors.New("no version: make release VERSION=v1.2.3")
	case !semver.IsValid(v) || semver.Canonical(v) != v:
		return fmt.Errorf("version %q is none: it must be as v1.2.3 or v1.2.3-rc.1 (semver.org, with a v, without +)", v)
	}
	return nil
}

// readCommit refuses a tree that is not its commit: nobody could build the same again.
func (r *release) readCommit(ctx context.Context) error {
	status, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if status != "" {
		return fmt.Errorf("the tree has changes that are in no commit; commit or remove them first:\n%s", status)
	}
	if r.commit, err = r.git(ctx, "rev-parse", "HEAD"); err != nil {
		return err
	}
	at, err := r.git(ctx, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return fmt.Errorf("time of commit %s: %w", r.commit, err)
	}
	r.time = time.Unix(seconds, 0).UTC()
	return nil
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := command(ctx, r.root, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// command runs a program and returns what it prints. Its complaints are in the error.
func command(ctx context.Context, dir string, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, complaints.Bytes())
	}
	return out, nil
}

// publish puts the artifacts in place only when all of them are there, so that nobody takes half
// a release for one.
func (r *release) publish() error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // what is there is for everybody
		return err
	}
	names, err := r.artifacts()
	if err != nil {
		return err
	}
	// The checksums come last: they are what says that the directory is whole.
	for _, n := range append(without(names, sumsFile), sumsFile) {
		if err := copyFile(filepath.Join(r.dist, n), filepath.Join(r.out, n)); err != nil {
			return err
		}
	}
	fmt.Println("made", r.out)
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
