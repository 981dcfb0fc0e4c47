// SPDX-License-Identifier: Apache-2.0

// Command builds fails where git has what is no source: a file larger than 1 MiB, or an executable
// that is no script.
//
//	builds [DIR]
//
// A compiled program that was committed is in each clone for good.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	mostBytes  = 1 << 20
	executable = "100755" // git's mode
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := look(context.Background(), root); err != nil {
		fmt.Fprintln(os.Stderr, "builds:", err)
		os.Exit(1)
	}
}

// look names all files of the index that are no sources, as they are in the working tree. No file
// at all is an error, too.
func look(ctx context.Context, root string) error {
	list := exec.CommandContext(ctx, "git", "ls-files", "--stage", "-z")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	var all []error
	entries := strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
	if len(entries) == 0 {
		return errors.New("git has no files here")
	}
	for _, entry := range entries {
		what, path, _ := strings.Cut(entry, "\t")
		text, err := os.ReadFile(filepath.Join(root, path)) //nolint:gosec // a file of the tree
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed, and git was not told
		case err != nil:
			all = append(all, err)
		case len(text) > mostBytes:
			all = append(all, fmt.Errorf("%s is larger than 1 MiB; a build that was committed?", path))
		case strings.HasPrefix(what, executable) && !bytes.HasPrefix(text, []byte("#!")):
			all = append(all, fmt.Errorf("%s is executable and no script; a build that was committed?", path))
		}
	}
	return errors.Join(all...)
}
