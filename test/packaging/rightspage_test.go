// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// said is a resource of the table of docs/security.md: all objects of it, or the one with a name.
type said struct{ resource, name, where string }

// inBackticks is what a cell of the table names.
var inBackticks = regexp.MustCompile("`([^`]+)`")

// The table "Rights of the operator" of docs/security.md says what operatorRights do, of which
// TestWhatTheOperatorMayDo knows that it is so.
// mutation: a verb taken out of the page's row of leases, or its row of the ConfigMap
// syncopate-audit taken out, makes this fail; so does a row of a resource that is not asked for.
func TestThePageSaysWhatTheOperatorMayDo(t *testing.T) {
	page := rightsOfThePage(t)
	asked := map[said]bool{}
	for _, row := range operatorRights {
		var verbs []string
		for _, where := range placesOf(row.namespace) {
			for _, name := range []string{"", row.name} {
				key := said{row.resource, name, where}
				asked[key] = true
				verbs = append(verbs, page[key]...)
			}
		}
		for verb := range strings.FieldsSeq(row.verbs) {
			if may := slices.Contains(strings.Fields(row.want), verb); may != slices.Contains(verbs, verb) {
				t.Errorf("%s of %s %q in %q: allowed %v; the page has %q", verb, row.resource, row.name, row.namespace, may, verbs)
			}
		}
	}
	for key := range page {
		if !asked[key] {
			t.Errorf("the page has %s %q (%s), which no row of operatorRights asks for", key.resource, key.name, key.where)
		}
	}
}

// placesOf are the words of the page under which a right in a namespace may be; "" is all.
func placesOf(namespace string) []string {
	switch namespace {
	case "":
		return []string{"everywhere", "cluster"}
	case own:
		return []string{"everywhere", "its namespace"}
	default:
		return []string{"everywhere"}
	}
}

// rightsOfThePage are the verbs of the page.
func rightsOfThePage(t *testing.T) map[said][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(moduleRoot, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Rights of the operator\n")
	section, _, _ = strings.Cut(section, "\n## ")
	page := map[said][]string{}
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(line, "|")
		const whole = 5 // three cells, and what is before and after the bars
		if len(cells) != whole || !strings.Contains(cells[1], "`") {
			continue
		}
		verbs, _, _ := strings.Cut(cells[3], ":") // after it is what they are for
		for _, key := range saidOf(t, cells[1], strings.TrimSpace(cells[2])) {
			page[key] = strings.Split(strings.ReplaceAll(verbs, " ", ""), ",")
		}
	}
	return page
}

// saidOf are the resources of a cell: names of resources, or a kind and the name of an object.
func saidOf(t *testing.T, cell, where string) (keys []said) {
	t.Helper()
	kind := strings.Fields(cell)[0]
	for _, m := range inBackticks.FindAllStringSubmatch(cell, -1) {
		if strings.Contains(kind, "`") {
			keys = append(keys, said{resource: resource(t, m[1]), where: where})
		} else {
			keys = append(keys, said{resource: resource(t, strings.ToLower(kind)+"s"), name: m[1], where: where})
		}
	}
	return keys
}

// resource is one with its group, as operatorRights have it.
func resource(t *testing.T, name string) string {
	t.Helper()
	for _, group := range []string{"", "/", "syncopate.dev/", "coordination.k8s.io/", "admissionregistration.k8s.io/"} {
		for _, row := range operatorRights {
			if row.resource == group+name {
				return row.resource
			}
		}
	}
	t.Fatalf("no row of operatorRights asks for %s", name)
	return ""
}
