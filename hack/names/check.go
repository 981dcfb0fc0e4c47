// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	url      = regexp.MustCompile(`[a-z]+://\S+|\b[a-z0-9-]+(\.[a-z0-9-]+)*\.(com|org|dev|io|net|in)/\S+`)
	fileName = regexp.MustCompile(`[A-Za-z0-9_./*{}-]*[A-Za-z0-9_*}]\.(?:go|lua|sh)\b`)
	mutation = regexp.MustCompile(`^//\s+- ([a-z0-9_/]+\.go) ([A-Za-z]\w*)`)
	selector = regexp.MustCompile(`(?:^|[^\w./-])([a-z][a-z0-9]*)\.([A-Z]\w*)`)
	capital  = regexp.MustCompile(`[a-z0-9][A-Z]`)
	marker   = regexp.MustCompile(`^\s*// ?\+.*|^\s*//[a-z]+:.*|\+[a-z]+:\S+`)
	number   = regexp.MustCompile(`^\d`)
	wildcard = regexp.MustCompile(`\w+\*|[$<{\\]\w+`)
)

// check says what a text names that does not exist.
func (t *tree) check(x text) (problems []string) {
	line := marker.ReplaceAllString(url.ReplaceAllString(x.line, " "), " ")
	problems = t.checkFiles(x.dir, line)
	line = fileName.ReplaceAllString(line, " ")
	return append(append(problems, t.checkSelectors(x.dir, line)...), t.checkWords(wildcard.ReplaceAllString(line, " "))...)
}

func (t *tree) checkFiles(dir, line string) (problems []string) {
	for _, name := range fileName.FindAllString(line, -1) {
		if !t.hasFile(name) {
			problems = append(problems, "no file "+name)
		}
	}
	if m := mutation.FindStringSubmatch(line); m != nil && !t.declares(dir, m[1], m[2]) {
		problems = append(problems, fmt.Sprintf("%s declares no %s", m[1], m[2]))
	}
	return problems
}

func (t *tree) checkSelectors(dir, line string) (problems []string) {
	for _, m := range selector.FindAllStringSubmatch(line, -1) {
		names, ours := t.packages[m[1]]
		if ours && !t.beside[dir][m[1]] && !names[m[2]] && !t.selected[m[1]+"."+m[2]] {
			problems = append(problems, fmt.Sprintf("package %s declares no %s", m[1], m[2]))
		}
	}
	return problems
}

func (t *tree) checkWords(line string) (problems []string) {
	for _, w := range word.FindAllString(line, -1) {
		if capital.MatchString(w) && !number.MatchString(w) && !t.hasWord(w) {
			problems = append(problems, "no name "+w)
		}
	}
	return problems
}

// hasFile says whether a path, or the last part of one, is that of a file. A pattern is one
// of some file, and what is below bin is made by whoever reads this.
func (t *tree) hasFile(name string) bool {
	name = strings.TrimPrefix(strings.TrimLeft(name, "."), "/")
	if strings.ContainsAny(name, "*{") || strings.HasPrefix(name, "bin/") || others[name] {
		return true
	}
	return slices.ContainsFunc(t.files, func(f string) bool { return f == name || strings.HasSuffix(f, "/"+name) })
}

// declares says whether the file of that name in a folder declares a name; if there is none,
// whether one of another folder does.
func (t *tree) declares(dir, file, name string) bool {
	if names, beside := t.declared[dir+"/"+file]; beside {
		return names[name]
	}
	for path, names := range t.declared {
		if strings.HasSuffix(path, "/"+file) && names[name] {
			return true
		}
	}
	return false
}

// hasWord also finds the plural of a name.
func (t *tree) hasWord(w string) bool {
	forms := []string{w, strings.TrimSuffix(w, "s"), strings.TrimSuffix(w, "es"), "Benchmark" + w}
	if stem, ok := strings.CutSuffix(w, "ies"); ok {
		forms = append(forms, stem+"y")
	}
	for _, form := range forms {
		if t.words[form] || others[form] {
			return true
		}
	}
	return false
}
