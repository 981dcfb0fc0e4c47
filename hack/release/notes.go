// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// section is what a changelog says of a version: the lines below "## VERSION" or
// "## VERSION - DATE" up to the next heading of that level. It must say something.
func section(changelog, version string) (string, error) {
	var lines []string
	found := false
	for line := range strings.Lines(changelog) {
		if title, isTitle := strings.CutPrefix(line, "## "); isTitle {
			if found {
				break
			}
			fields := strings.Fields(title)
			found = len(fields) > 0 && fields[0] == version
			continue
		}
		if found {
			lines = append(lines, line)
		}
	}
	text := strings.TrimSpace(strings.Join(lines, ""))
	switch {
	case !found:
		return "", fmt.Errorf("CHANGELOG.md has no section %q: write what the version changes before it is released", "## "+version)
	case text == "":
		return "", fmt.Errorf("the section %q of CHANGELOG.md is empty", "## "+version)
	}
	return text + "\n", nil
}

func (r *release) writeNotes() error {
	return r.write("release-notes.md", []byte(r.notes))
}
