// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Each line of before and after is the schema of spec.x. What is not found here, the gate lets
// pass.
// mutation: fields, required, items or bounds are not compared.
func TestWhatOfASchemaBreaksSomebody(t *testing.T) {
	for name, s := range map[string]struct{ before, after, want string }{
		"field removed":        {`{properties: {a: {type: string}}}`, `{properties: {}}`, ".a: field removed"},
		"removed further down": {`{items: {properties: {a: {}}}}`, `{items: {}}`, "[].a: field removed"},
		"type changed":         {`{type: integer}`, `{type: string}`, ": type changed from integer to string"},
		"int-or-string":        {`{x-kubernetes-int-or-string: true}`, `{type: integer}`, ": type changed from integer or string to integer"},
		"format added":         {`{type: string}`, `{type: string, format: date-time}`, ": format changed from none to date-time"},
		"null refused":         {`{nullable: true}`, `{}`, ": null is refused"},
		"unknown dropped":      {`{x-kubernetes-preserve-unknown-fields: true}`, `{}`, ": unknown fields are dropped"},
		"merge of lists":       {`{x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name]}`, `{x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id]}`, `: keys of the list changed from ["name"] to ["id"]`},
		"kind of list":         {`{x-kubernetes-list-type: set}`, `{}`, ": list type changed from set to atomic"},
		"kind of map":          {`{}`, `{x-kubernetes-map-type: atomic}`, ": map type changed from granular to atomic"},
		"default changed":      {`{default: 3}`, `{default: 4}`, ": default changed from 3 to 4"},
		"default added":        {`{}`, `{default: {a: 1}}`, `: default changed from none to {"a":1}`},
		"pattern added":        {`{}`, `{pattern: "^a"}`, ": pattern changed from none to ^a"},
		"pattern changed":      {`{pattern: "^b"}`, `{pattern: "^a"}`, ": pattern changed from ^b to ^a"},
		"enum value removed":   {`{enum: [A, B]}`, `{enum: [B, C]}`, `: enum value "A" removed`},
		"enum added":           {`{}`, `{enum: [B]}`, `: enum added: ["B"]`},
		"required added":       {`{properties: {a: {}}, required: [b]}`, `{properties: {a: {}}, required: [a, b]}`, ": a is required"},
		"minimum risen":        {`{minimum: 0}`, `{minimum: 1}`, ": minimum narrowed from 0 to 1"},
		"maximum added":        {`{}`, `{maximum: 9}`, ": maximum narrowed from none to 9"},
		"minimum excluded":     {`{minimum: 0}`, `{minimum: 0, exclusiveMinimum: true}`, ": minimum itself is refused"},
		"maximum excluded":     {`{maximum: 0}`, `{maximum: 0, exclusiveMaximum: true}`, ": maximum itself is refused"},
		"multiples":            {`{}`, `{multipleOf: 2}`, ": multipleOf changed from null to 2"},
		"longer":               {`{minLength: 1}`, `{minLength: 2}`, ": minLength narrowed from 1 to 2"},
		"shorter":              {`{maxLength: 9}`, `{maxLength: 8}`, ": maxLength narrowed from 9 to 8"},
		"more items":           {`{}`, `{minItems: 1}`, ": minItems narrowed from none to 1"},
		"fewer items":          {`{maxItems: 9}`, `{maxItems: 8}`, ": maxItems narrowed from 9 to 8"},
		"more entries":         {`{}`, `{minProperties: 1}`, ": minProperties narrowed from none to 1"},
		"fewer entries":        {`{maxProperties: 9}`, `{maxProperties: 8}`, ": maxProperties narrowed from 9 to 8"},
		"unique":               {`{}`, `{uniqueItems: true}`, ": items must be unique"},
		"rule added":           {`{}`, `{x-kubernetes-validations: [{rule: "self > 1"}]}`, ": rule added or changed: self > 1"},
		"rule changed":         {`{x-kubernetes-validations: [{rule: "self > 0"}]}`, `{x-kubernetes-validations: [{rule: "self > 1"}]}`, ": rule added or changed: self > 1"},
		"one of":               {`{}`, `{oneOf: [{required: [a]}]}`, `: oneOf changed from null to [{"required":["a"]}]`},
		"no map":               {`{additionalProperties: {type: string}}`, `{}`, ": further fields are refused or dropped"},
		"values of a map":      {`{additionalProperties: {type: string}}`, `{additionalProperties: {type: integer}}`, "{}: type changed from string to integer"},

		"field added":        {`{}`, `{properties: {a: {type: string, maxLength: 1, x-kubernetes-validations: [{rule: "false"}]}}}`, ""},
		"all bounds widened": {`{minimum: 1, maximum: 2, minLength: 1, maxLength: 2, minItems: 1, maxItems: 2}`, `{minimum: 0, maxLength: 3, maxItems: 3}`, ""},
		"enum value added":   {`{enum: [A]}`, `{enum: [A, B]}`, ""},
		"enum opened":        {`{enum: [A]}`, `{}`, ""},
		"rule removed":       {`{x-kubernetes-validations: [{rule: "self > 1", message: a}]}`, `{}`, ""},
		"other words":        {`{description: a, x-kubernetes-validations: [{rule: "true", message: a}]}`, `{description: b, x-kubernetes-validations: [{rule: "true", message: b}]}`, ""},
		"optional now":       {`{required: [a]}`, `{}`, ""},
		"pattern removed":    {`{pattern: a, format: date-time}`, `{}`, ""},
	} {
		var was, is schema
		for text, to := range map[string]*schema{s.before: &was, s.after: &is} {
			if err := yaml.UnmarshalStrict([]byte(text), to); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		c := &comparison{}
		c.schema("x", &was, &is)
		if got := strings.Join(c.changes, "\n"); got != strings.TrimSpace("x"+s.want) && got+s.want != "" {
			t.Errorf("%s: found %q; want %q", name, got, "x"+s.want)
		}
	}
}

func TestWhatOfAKindBreaksSomebody(t *testing.T) {
	const whole = `
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  scope: Namespaced
  names: {kind: Thing, shortNames: [th], categories: [all]}
  versions:
  - name: v1
    served: true
    schema: {openAPIV3Schema: {type: object}}
    subresources: {status: {}}
    selectableFields: [{jsonPath: .status.phase}]
`
	for want, change := range map[string][2]string{
		"things.example.com: kind removed":                                     {"things.example", "other.example"},
		"things.example.com: kind changed from Thing to Ding":                  {"kind: Thing", "kind: Ding"},
		"things.example.com: scope changed from Namespaced to Cluster":         {"Namespaced", "Cluster"},
		"things.example.com: short name th removed":                            {"[th]", "[]"},
		"things.example.com: category all removed":                             {"[all]", "[]"},
		"things.example.com v1: version removed":                               {"name: v1", "name: v2"},
		"things.example.com v1: version not served any more":                   {"served: true", "served: false"},
		"things.example.com v1: selectable field .status.phase removed":        {".status.phase", ".status.other"},
		"things.example.com v1: subresource status changed from true to false": {"{status: {}}", "{}"},
	} {
		was, is := map[string]*crd{}, map[string]*crd{}
		changed := strings.Replace(whole, change[0], change[1], 1)
		for to, text := range map[*map[string]*crd]string{&was: whole, &is: changed} {
			if err := addCRDs(*to, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		c := &comparison{}
		c.crds(was, is)
		if !slices.Equal(c.changes, []string{want}) {
			t.Errorf("%v: found %q; want %q", change, c.changes, want)
		}
	}
}

// mutation: what differs inside of a keyword is not compared.
func TestWhatOfAMessagesSchemaBreaksSomebody(t *testing.T) {
	const whole = `{"title": "t", "required": ["a"], "properties": {"a": {"type": "string", "enum": ["x"]}, "title": {"type": "string"}}}`
	for _, s := range []struct{ from, to, want string }{
		{`"title": "t"`, `"title": "u"`, ""},
		{`"title": {"type": "string"}`, `"title": {"type": "string"}, "b": {}`, ""},
		{`, "title": {"type": "string"}`, ``, "m.title: field removed"},
		{`["a"]`, `["a", "b"]`, `m.required: changed from ["a"] to ["a","b"]`},
		{`["a"]`, `[]`, `m.required: changed from ["a"] to []`}, // an old reader relies on it
		{`["x"]`, `["x", "y"]`, `m.a.enum: changed from ["x"] to ["x","y"]`},
		{`"enum": ["x"]`, `"pattern": "x"`, `m.a.enum: removed` + "\n" + `m.a.pattern: added: "x"`},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "was"), whole)
		write(t, filepath.Join(dir, "is"), strings.Replace(whole, s.from, s.to, 1))
		c := &comparison{}
		if err := c.file("m", filepath.Join(dir, "was"), filepath.Join(dir, "is"), c.message); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(c.changes, "\n"); got != s.want {
			t.Errorf("%s for %s: found %q; want %q", s.to, s.from, got, s.want)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tree is what the command reads of this repository, to be changed.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"hack/compat/last", "config/crd/bases", "config/samples", "docs/protocol"} {
		if err := os.CopyFS(filepath.Join(root, dir), os.DirFS(filepath.Join("..", "..", dir))); err != nil {
			t.Fatal(err)
		}
	}
	allow(t, root, noneAllowed)
	return root
}

func allow(t *testing.T, root, text string) {
	t.Helper()
	write(t, filepath.Join(root, "hack", "compat", "allowed.yaml"), text)
}

// replace changes the first such text of a file, which must be there.
func replace(t *testing.T, file, from, to string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), from, to, 1)
	if changed == string(text) {
		t.Fatalf("%s has no %q", file, from)
	}
	write(t, file, changed)
}

// With the last release's own files in place of this tree's: what this tree has changed since, and
// is allowed, is of no matter here.
func sameAsLast(t *testing.T) string {
	t.Helper()
	root := tree(t)
	last := filepath.Join(root, "hack", "compat", "last")
	for _, dir := range []string{"config/crd/bases", "docs/protocol"} {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.CopyFS(filepath.Join(root, "docs", "protocol"), os.DirFS(filepath.Join(last, "protocol"))); err != nil {
		t.Fatal(err)
	}
	manifests, err := os.ReadFile(filepath.Join(last, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "config", "crd", "bases", "all.yaml"), string(manifests))
	if err := check(root); err != nil {
		t.Fatalf("the last release differs from itself: %v", err)
	}
	return root
}

// mutation: fields that are gone are passed over.
func TestARemovedFieldIsCaught(t *testing.T) {
	root := sameAsLast(t)
	// Renamed, which is a removal for all who used it. The name is there once.
	replace(t, filepath.Join(root, "config", "crd", "bases", "all.yaml"), "ttlSecondsAfterFinished:", "ttlSeconds:")
	err := check(root)
	if err == nil || !strings.Contains(err.Error(), "ttlSecondsAfterFinished: field removed") {
		t.Errorf("error is %v; want one that names the field", err)
	}
}

// mutation: golden messages are not compared, or a file that is gone is passed over.
func TestAChangedGoldenMessageIsCaught(t *testing.T) {
	for name, change := range map[string]func(golden string){
		"changed": func(golden string) {
			replace(t, filepath.Join(golden, "job.json"), `"Syncopate-Fence"`, `"Syncopate-Fences"`)
		},
		"removed": func(golden string) { _ = os.Remove(filepath.Join(golden, "job.json")) },
	} {
		root := sameAsLast(t)
		change(filepath.Join(root, "docs", "protocol", "golden"))
		err := check(root)
		if err == nil || !strings.Contains(err.Error(), "golden/job.json: ") {
			t.Errorf("%s: error is %v; want one that names the file", name, err)
		}
	}
}

func TestAChangeOfASchemaIsCaught(t *testing.T) {
	root := sameAsLast(t)
	replace(t, filepath.Join(root, "docs", "protocol", "result.schema.json"), `"required": [`, `"required": ["x", `)
	if err := check(root); err == nil || !strings.Contains(err.Error(), "result.schema.json") {
		t.Errorf("error is %v; want one that names the file", err)
	}
}

// mutation: an entry needs no reason, or may allow nothing.
func TestOnlyWhatIsListedWithAReasonPasses(t *testing.T) {
	root := sameAsLast(t)
	replace(t, filepath.Join(root, "docs", "protocol", "golden", "job.json"), `"Syncopate-Fence"`, `"Syncopate-Fences"`)
	for list, complaint := range map[string]string{
		`[{change: "golden/job.json: golden message changed", reason: it was wrong}]`:                                                      "",
		`[{change: "golden/job.json: golden message changed", reason: " "}]`:                                                               "no reason",
		`[{change: "golden/job.json: golden message changed"}]`:                                                                            "no reason",
		`[{change: "golden/job.json", reason: all of it}]`:                                                                                 "is no change",
		`[{change: "golden/job.json: golden message changed", reason: a}, {change: "golden/job.json: golden message changed", reason: a}]`: "twice",
		`[{changed: a, reason: b}]`: "unknown field",
		`[]`:                        "golden message changed",
	} {
		allow(t, root, list)
		err := check(root)
		if complaint == "" && err != nil || complaint != "" && (err == nil || !strings.Contains(err.Error(), complaint)) {
			t.Errorf("%s: error is %v; want %q", list, err, complaint)
		}
	}
}

// mutation: what was allowed stays so.
func TestWhatIsRecordedIsTheLastRelease(t *testing.T) {
	root := sameAsLast(t)
	manifests := filepath.Join(root, "config", "crd", "bases", "all.yaml")
	replace(t, manifests, "ttlSecondsAfterFinished:", "ttlSeconds:")
	allow(t, root, `[{change: "x", reason: y}]`)
	if err := run(root, "1.2.3", manifests); err == nil {
		t.Error("1.2.3 passes for a version")
	}
	if err := run(root, "v1.2.3", ""); err == nil {
		t.Error("a version without manifests passes")
	}
	if err := run(root, "v1.2.3", manifests); err != nil {
		t.Fatal(err)
	}
	if err := check(root); err != nil {
		t.Errorf("after it was recorded: %v", err)
	}
	replace(t, manifests, "ttlSeconds:", "ttl:")
	if err := check(root); err == nil || !strings.Contains(err.Error(), "since v1.2.3") {
		t.Errorf("error is %v; want one since v1.2.3", err)
	}
}
