// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// textOf is a file of the repository.
func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// between is the part of a text after the first begin, up to the next end.
func between(t *testing.T, text, begin, end string) string {
	t.Helper()
	_, after, found := strings.Cut(text, begin)
	part, _, ends := strings.Cut(after, end)
	if !found || !ends {
		t.Fatalf("no text between %q and %q", begin, end)
	}
	return part
}

// packagesListed are the folders of a list of packages. A line that begins with a slash is below
// the last one that is indented less.
func packagesListed(list string) (all []string) {
	type place struct {
		indent int
		path   string
	}
	var above []place
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(above) > 0 && above[len(above)-1].indent >= indent {
			above = above[:len(above)-1]
		}
		name := fields[0]
		if below, is := strings.CutPrefix(name, "/"); is && len(above) > 0 {
			name = path.Join(above[len(above)-1].path, below)
		}
		above = append(above, place{indent, name})
		all = append(all, name)
	}
	return all
}

// packagesThere are the folders that have Go code beside tests.
func packagesThere(t *testing.T, below ...string) []string {
	t.Helper()
	all := map[string]bool{}
	for _, top := range below {
		err := filepath.WalkDir(filepath.Join(moduleRoot, top), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") {
				return err
			}
			dir, err := filepath.Rel(moduleRoot, filepath.Dir(file))
			all[filepath.ToSlash(dir)] = true
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Whoever looks for the part of the operator that does something finds it in one list, and all that
// is in the list is there.
//
// mutation: a line that is taken out of the list, written twice, or indented below another one
// makes this fail; so does packagesListed that does not look at how far a line is indented.
func TestTheListOfPackagesIsWhole(t *testing.T) {
	section := between(t, textOf(t, "docs/architecture.md"), "\n## Packages\n", "\n## ")
	listed := packagesListed(between(t, section, "\n```\n", "\n```\n"))
	there := packagesThere(t, "api", "cmd", "internal", "pkg")
	for _, p := range there {
		if !slices.Contains(listed, p) {
			t.Errorf("docs/architecture.md does not list the package %s", p)
		}
	}
	for i, p := range listed {
		if !slices.Contains(there, p) || slices.Contains(listed[:i], p) {
			t.Errorf("docs/architecture.md lists %s, which is no package, or is listed twice", p)
		}
	}
	if len(there) < 50 {
		t.Errorf("%d packages were found", len(there))
	}
}

// What breaks a guarantee is said in one list. Who speaks of the guarantee elsewhere links to it,
// and counts nothing: the count was false in three places, a case later.
//
// mutation: a link that is taken out, or "in three cases" in README.md, makes this fail.
func TestExceptionsToGuaranteesAreListedOnce(t *testing.T) {
	counted := regexp.MustCompile(`(?i)\b(one|two|three|four|five|six|[0-9]+) (exceptions?\b|moments\b|cases an attempt)`)
	for list, places := range map[string][]string{
		"architecture.md#where-an-attempt-may-go-out-twice": {
			"README.md", "docs/checkpoints.md", "docs/locks.md", "docs/runbooks/SyncopateRunsContinuingUnlocked.md",
			"internal/controller/workflowrun/doc.go", "internal/controller/workflowrun/dispatch/doc.go",
		},
		"admission.md#where-the-limit-is-exceeded": {"README.md", "docs/architecture.md", "docs/tutorial.md", "internal/quota/controller/doc.go"},
	} {
		for _, place := range places {
			text := textOf(t, place)
			if !strings.Contains(text, list) {
				t.Errorf("%s does not name %s", place, list)
			}
			if found := counted.FindString(text); found != "" {
				t.Errorf("%s says %q: the list says how many there are", place, found)
			}
		}
	}
}

// What an administrator does by the pages breaks guarantees, too, and is in the lists
// with the rest.
//
// mutation: a bullet about it that is taken out, or a count in CHANGELOG.md, makes this fail.
func TestListsOfExceptionsHaveWhatAnAdministratorDoes(t *testing.T) {
	attempts := between(t, textOf(t, "docs/architecture.md"), "\n### Where an attempt may go out twice\n", "\n## ")
	limits := between(t, textOf(t, "docs/admission.md"), "\n### Where the limit is exceeded\n", "\n## ")
	for link, list := range map[string]string{
		"(production.md#backups)": attempts, "(install.md#another-prefix-or-another-nats)": attempts, "(install.md#another-redis)": limits,
	} {
		if !strings.Contains(list, link) {
			t.Errorf("the list does not name what %s tells of:\n%s", link, list)
		}
	}
	entry := between(t, textOf(t, "CHANGELOG.md"), "[an attempt may go out twice](", "\n- ")
	if found := regexp.MustCompile(`\b(one|two|three|four|five|six|seven)\b`).FindString(entry); found != "" {
		t.Errorf("CHANGELOG.md says %q: the list says how many there are", found)
	}
}

// The package says the same moments as the page for users, in its own words.
//
// mutation: a moment that is taken out of either makes this fail.
func TestThePackageOfQuotasHasTheMomentsOfThePage(t *testing.T) {
	page := between(t, textOf(t, "docs/admission.md"), "\n### Where the limit is exceeded\n", "\n## ")
	doc := between(t, textOf(t, "internal/quota/controller/doc.go"), "\n// # Limits of this\n", "\n// # ")
	if on, in := strings.Count(page, "\n- "), strings.Count(doc, "\n//   - "); on != in || on == 0 {
		t.Errorf("docs/admission.md has %d moments in which the limit is exceeded, internal/quota/controller %d", on, in)
	}
}

// valuesListed are the values that the rows of the table name. A name that begins with a dot is
// beside the last one that does not.
func valuesListed(table string) map[string]bool {
	all := map[string]bool{}
	for row := range strings.Lines(table) {
		beside := ""
		for _, span := range codeSpan.FindAllString(row, -1) {
			name := strings.Trim(span, "`")
			if strings.HasPrefix(name, ".") {
				name = beside + name
			} else {
				beside = strings.TrimSuffix(name, path.Ext(name))
			}
			all[name] = true
		}
	}
	return all
}

// missing are the values below a place that are not in the table, neither by their own name nor by
// that of what they belong to.
func missing(at string, value any, listed map[string]bool) (all []string) {
	below, is := value.(map[string]any)
	switch {
	case listed[at]:
		return nil
	case !is || len(below) == 0:
		return []string{at}
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		all = append(all, missing(strings.TrimPrefix(at+"."+name, "."), below[name], listed)...)
	}
	return all
}

// The page says "all values". Those of the network policy have a part of their own.
//
// mutation: a row that is taken out of the table, but for two that name the same, makes this fail.
func TestTheTableOfValuesHasThemAll(t *testing.T) {
	listed := valuesListed(between(t, textOf(t, "docs/install.md"), "\n| value | default | |\n", "\n\n"))
	listed["networkPolicy"] = true
	var values map[string]any
	if err := yaml.Unmarshal([]byte(textOf(t, "charts/syncopate/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	if left := missing("", values, listed); len(left) > 0 {
		t.Errorf("docs/install.md does not list %s", strings.Join(left, ", "))
	}
}
