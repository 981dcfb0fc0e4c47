// SPDX-License-Identifier: Apache-2.0

// Package secretdir reads a Secret that is mounted as a directory with a file for each entry. The
// kubelet replaces these files when the Secret changes, so whoever reads them for each login needs
// no restart after a rotation.
package secretdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errNoDirectory is returned by Check for a path that is a file. Not worth a retry.
var errNoDirectory = errors.New("is no directory")

// Check says whether dir can be read as a Secret.
func Check(dir string) error {
	switch info, err := os.Stat(dir); {
	case err != nil:
		return fmt.Errorf("read Secret: %w", err)
	case !info.IsDir():
		return fmt.Errorf("read Secret: %s: %w", dir, errNoDirectory)
	default:
		return nil
	}
}

// Read gives an entry without the line ends behind it; "" if the Secret has no such entry.
func Read(dir, entry string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, entry))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read Secret: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}
