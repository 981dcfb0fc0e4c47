// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// entry is a file of an archive. Nothing else of it is stored: no owner, no times of its own.
type entry struct {
	path string // with slashes
	mode int64
	data []byte
}

// sorted are the entries in the one order in which archives have them.
func sorted(entries []entry) []entry {
	return slices.SortedFunc(slices.Values(entries), func(a, b entry) int { return strings.Compare(a.path, b.path) })
}

// writeTar writes the entries, each with the directories above it, in order of path. Owner is
// root: what an image's files must belong to, and what an archive's reader ignores.
func writeTar(to io.Writer, at time.Time, entries []entry) error {
	w := tar.NewWriter(to)
	made := map[string]bool{}
	for _, e := range sorted(entries) {
		for _, dir := range parents(e.path) {
			if made[dir] {
				continue
			}
			made[dir] = true
			h := &tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: at, Format: tar.FormatPAX}
			if err := w.WriteHeader(h); err != nil {
				return err
			}
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.path, Mode: e.mode, Size: int64(len(e.data)), ModTime: at, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(e.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// parents are the directories above a path, outermost first.
func parents(path string) (dirs []string) {
	for i, c := range path {
		if c == '/' {
			dirs = append(dirs, path[:i])
		}
	}
	return dirs
}

func tarball(at time.Time, entries []entry) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // its header has no name and no time
	if err != nil {
		return nil, err
	}
	err = errors.Join(writeTar(z, at, entries), z.Close())
	return b.Bytes(), err
}

func zipball(at time.Time, entries []entry) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range sorted(entries) {
		h := &zip.FileHeader{Name: e.path, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(e.mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// tree are the files below a directory, with their paths below prefix. Modes are 0644 whatever
// the umask of the checkout made them.
func tree(dir, prefix string) (entries []entry, err error) {
	files := os.DirFS(dir)
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(files, path)
		entries = append(entries, entry{path: prefix + path, mode: 0o644, data: data})
		return err
	})
	return entries, err
}
