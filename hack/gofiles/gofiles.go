// SPDX-License-Identifier: Apache-2.0

// Package gofiles reads the Go files of the repository for the checks beside it.
package gofiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Each calls look for the Go files below root that are wanted, or for root itself if it is a file.
// It skips folders of what others wrote. The errors of all files are one error.
func Each(root string, wanted func(path string) bool, look func(path string, source []byte) error) error {
	var all []error
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && foreign(d.Name()):
			return filepath.SkipDir
		case !d.Type().IsRegular() || !strings.HasSuffix(path, ".go") || !wanted(path):
			return nil
		}
		source, err := os.ReadFile(path) //nolint:gosec // a file of the tree
		if err != nil {
			return err
		}
		all = append(all, look(path, source))
		return nil
	})
	return errors.Join(append(all, err)...)
}

// foreign says whether a folder holds what others wrote.
func foreign(name string) bool {
	return strings.HasPrefix(name, ".") || name == "bin" || name == "node_modules"
}
