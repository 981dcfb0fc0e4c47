// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeSpan  = regexp.MustCompile("`[^`\n]*`")
	pageLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchorTag = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages are README.md and what else people read, from the root of the repository.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(moduleRoot, path)
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// anchors are the headings of a page as links name them, on the site and where the repository is.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range anchorTag.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	for _, m := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		plain := linkText.ReplaceAllString(m[1], "$1")
		found[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsSpace(r):
				return '-'
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(plain))] = true
	}
	return found
}

// Every link of a page that is not to another host leads to a file, and to a heading of it.
// mutation: a heading that is renamed in one of its two places makes this fail.
func TestEveryLinkOfAPageLeadsSomewhere(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		text = codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(text, ""), "")
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(moduleRoot, target)); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
			} else if to, is := all[target]; is && anchor != "" && !anchors(to)[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

// The first page of the docs lists every page, as the side bar of the site does, but those of the
// directories that it names.
// mutation: a page that is taken out of docs/README.md makes this fail.
func TestThePageOfPagesListsThemAll(t *testing.T) {
	all := pages(t)
	for page := range all {
		inDocs, is := strings.CutPrefix(page, "docs/")
		if !is || inDocs == "README.md" {
			continue
		}
		if dir := filepath.Dir(inDocs); dir != "." {
			inDocs = dir + "/README.md"
		}
		if !strings.Contains(all["docs/README.md"], "]("+inDocs+")") {
			t.Errorf("docs/README.md does not list %s", inDocs)
		}
	}
}
