// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Fields that break a convention for a reason.
var exempt = map[string]string{
	// As in CronJob and Job, whose users know it; a third state would be a new field.
	"WorkflowRunSpec.suspend: bool":                  "suspend is a bool everywhere in Kubernetes",
	"Parameter.required: bool":                       "as in JSON Schema; a third state would be a new field",
	"SemaphoreSpec.namespaces: metav1.LabelSelector": "as wherever Kubernetes selects namespaces",
	// Ends of a wait, not the moments of something.
	"Delay.until: is a point in time, its name should end with At":             "delay: {until: ...} reads as it is said",
	"StepStatus.delayedUntil: is a point in time, its name should end with At": "as delay.until",
	// Slots and ranges of them.
	"SkippedSlots.from: is a point in time, its name should end with At":            "a range of slots",
	"SkippedSlots.to: is a point in time, its name should end with At":              "a range of slots",
	"Backfill.from: is a point in time, its name should end with At":                "a range of slots",
	"Backfill.to: is a point in time, its name should end with At":                  "a range of slots",
	"BackfillStatus.before: is a point in time, its name should end with At":        "a bound of slots",
	"BackfillStatus.doneUntil: is a point in time, its name should end with At":     "a bound of slots",
	"ScheduleStatus.decidedUntil: is a point in time, its name should end with At":  "a bound of slots",
	"ScheduleStatus.failuresSince: is a point in time, its name should end with At": "a bound, not a moment",
	"ScheduleStatus.starting: []metav1.Time":                                        "slots",
	"ScheduleStatus.waiting: []metav1.Time":                                         "slots",
	"ScheduleSpec.suspend: bool":                                                    "suspend is a bool everywhere in Kubernetes",
	"ScheduleTiming.jitterSeconds: is a share without Percent in its name":          "seconds, and no share",
	"RunTemplateMetadata.labels: map":                                               "as metadata.labels",
	"RunTemplateMetadata.annotations: map":                                          "as metadata.annotations",
}

// The conventions of the API, checked on its source, so that a field cannot be added without them.
// TestConventionsFindBadFields shows that the checks can fail.
func TestAPIConventions(t *testing.T) {
	api := parseAPI(t)
	if len(api.structs) < 15 {
		t.Fatalf("only %d structs found; the test looks at the wrong files", len(api.structs))
	}
	for _, s := range api.structs {
		if strings.HasSuffix(s.name, "List") {
			continue // its shape is given by Kubernetes
		}
		for _, f := range s.fields {
			t.Run(s.name+"."+f.json, func(t *testing.T) {
				for _, problem := range api.problems(f) {
					if exempt[s.name+"."+f.json+": "+problem] == "" {
						t.Error(problem)
					}
				}
			})
		}
	}
}

// The checks themselves: each kind of bad field is found, and a good one is not.
func TestConventionsFindBadFields(t *testing.T) {
	a := &api{strings: map[string][]string{"Mode": {"kubebuilder:validation:Enum=A;B"}, "Free": {}}}
	const bounded = "kubebuilder:validation:MaxLength=1"
	for name, c := range map[string]struct {
		field apiField
		want  []string
	}{
		"a good string":           {apiField{"name", "string", "name of it.", []string{"required", bounded}}, nil},
		"a good enum":             {apiField{"mode", "Mode", "mode of it.", []string{"optional"}}, nil},
		"no marker":               {apiField{"name", "string", "name of it.", []string{bounded}}, []string{"needs one of +optional and +required"}},
		"a comment in Go's way":   {apiField{"name", "string", "Name of it.", []string{"required", bounded}}, []string{"its comment does not start with name"}},
		"an unbounded string":     {apiField{"name", "string", "name of it.", []string{"required"}}, []string{"needs +kubebuilder:validation:MaxLength"}},
		"an open enum":            {apiField{"mode", "Free", "mode of it.", []string{"optional"}}, []string{"its type Free is no enum"}},
		"a float":                 {apiField{"level", "float64", "level of it.", []string{"optional"}}, []string{"float64"}},
		"a bool":                  {apiField{"on", "bool", "on or not.", []string{"optional"}}, []string{"bool"}},
		"a map":                   {apiField{"rest", "map", "rest of it.", []string{"optional"}}, []string{"map"}},
		"a time without its unit": {apiField{"timeout", "int32", "timeout of it.", []string{"optional", "kubebuilder:validation:Minimum=1"}}, []string{"is a time without a unit in its name (Seconds, Millis)"}},
		"a list without bounds": {apiField{"names", "[]string", "names of it.", []string{"optional"}}, []string{
			"needs +kubebuilder:validation:items:MaxLength", "needs +listType", "needs +kubebuilder:validation:MaxItems",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, a.problems(c.field)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

type api struct {
	structs []structType
	// strings are the named string types, with their markers.
	strings map[string][]string
}

type structType struct {
	name   string
	fields []apiField
}

type apiField struct {
	json, goType string
	doc          string
	markers      []string
}

func parseAPI(t *testing.T) *api {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	a := &api{strings: map[string][]string{}}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") || strings.HasPrefix(source, "zz_generated") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				a.add(t, d)
			}
		}
	}
	return a
}

func (a *api) add(t *testing.T, d *ast.GenDecl) {
	t.Helper()
	for _, spec := range d.Specs {
		spec, ok := spec.(*ast.TypeSpec)
		if !ok {
			continue
		}
		switch of := spec.Type.(type) {
		case *ast.StructType:
			s := structType{name: spec.Name.Name}
			for _, f := range of.Fields.List {
				if f, ok := newField(t, f); ok {
					s.fields = append(s.fields, f)
				}
			}
			a.structs = append(a.structs, s)
		case *ast.Ident:
			if of.Name == "string" {
				_, a.strings[spec.Name.Name] = docAndMarkers(d.Doc)
			}
		}
	}
}

func newField(t *testing.T, f *ast.Field) (apiField, bool) {
	t.Helper()
	if f.Tag == nil {
		t.Errorf("field %v has no JSON name", f.Names)
		return apiField{}, false
	}
	tag, err := strconv.Unquote(f.Tag.Value)
	if err != nil {
		t.Fatal(err)
	}
	name, options, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	if strings.Contains(options, "inline") {
		return apiField{}, false
	}
	doc, markers := docAndMarkers(f.Doc)
	return apiField{json: name, goType: typeString(f.Type), doc: doc, markers: markers}, true
}

// docAndMarkers splits a comment into its text and the markers in it.
func docAndMarkers(g *ast.CommentGroup) (doc string, markers []string) {
	if g == nil {
		return "", nil
	}
	var text []string
	for _, c := range g.List {
		line := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
		if m, ok := strings.CutPrefix(line, "+"); ok {
			markers = append(markers, m)
		} else {
			text = append(text, line)
		}
	}
	return strings.TrimSpace(strings.Join(text, " ")), markers
}

func typeString(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return typeString(e.X) // a pointer only tells zero from absent
	case *ast.ArrayType:
		return "[]" + typeString(e.Elt)
	case *ast.SelectorExpr:
		return typeString(e.X) + "." + e.Sel.Name
	case *ast.MapType:
		return "map"
	default:
		return fmt.Sprintf("%T", e)
	}
}

func (f apiField) has(prefix string) bool {
	return slices.ContainsFunc(f.markers, func(m string) bool { return m == prefix || strings.HasPrefix(m, prefix+"=") })
}

func (a *api) problems(f apiField) []string {
	return slices.Concat(f.docProblems(), f.presenceProblems(), a.boundProblems(f), f.nameProblems(), a.typeProblems(f))
}

func (f apiField) docProblems() []string {
	var found []string
	if !strings.HasPrefix(f.doc, f.json+" ") {
		found = append(found, "its comment does not start with "+f.json)
	}
	if !strings.HasSuffix(f.doc, ".") {
		found = append(found, "its comment does not end with a period")
	}
	scalar := f.has("default") // nested objects default to {}, their own fields say to what
	if scalar && !strings.Contains(strings.ToLower(f.doc), "default") {
		found = append(found, "its comment does not give the default")
	}
	return found
}

func (f apiField) presenceProblems() []string {
	var found []string
	if f.has("optional") == f.has("required") {
		found = append(found, "needs one of +optional and +required")
	}
	if f.has("default") && !f.has("kubebuilder:default") {
		found = append(found, "has +default, but no +kubebuilder:default")
	}
	if f.has("required") && f.has("kubebuilder:default") {
		found = append(found, "is required and has a default")
	}
	return found
}

// boundProblems: whatever a user or a worker can make long has a bound in the schema.
func (a *api) boundProblems(f apiField) []string {
	var found []string
	need := func(marker string) {
		if !f.has(marker) {
			found = append(found, "needs +"+marker)
		}
	}
	switch {
	case f.goType == "[]string":
		need("kubebuilder:validation:items:MaxLength")
	case f.goType == "string":
		need("kubebuilder:validation:MaxLength")
	case slices.Contains([]string{"[]int32", "[]int64"}, f.goType):
		need("kubebuilder:validation:items:Minimum")
	case a.strings[f.goType] != nil:
		enum := func(m string) bool { return strings.HasPrefix(m, "kubebuilder:validation:Enum=") }
		if !slices.ContainsFunc(a.strings[f.goType], enum) {
			found = append(found, "its type "+f.goType+" is no enum")
		}
	case slices.Contains([]string{"int32", "int64"}, f.goType):
		need("kubebuilder:validation:Minimum")
	}
	if strings.HasPrefix(f.goType, "[]") {
		need("listType")
		need("kubebuilder:validation:MaxItems")
	}
	if f.has("listType=map") {
		need("listMapKey")
	}
	return found
}

var (
	timeWords  = regexp.MustCompile(`(?i)(timeout|deadline|ttl|delay|interval|linger|margin|wait|duration|backoff|period)`)
	shareWords = regexp.MustCompile(`(?i)(jitter|drift|factor|share)`)
)

// units are the suffixes of numbers, with the word that the comment must have.
var units = map[string]*regexp.Regexp{
	"Seconds": regexp.MustCompile(`second`),
	"Millis":  regexp.MustCompile(`millisecond`),
	"Percent": regexp.MustCompile(`percent|share`),
}

func (f apiField) nameProblems() []string {
	var found []string
	if !regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`).MatchString(f.json) {
		found = append(found, "its JSON name is not camelCase")
	}
	if strings.HasPrefix(f.goType, "metav1.") && strings.HasSuffix(f.goType, "Time") && !strings.HasSuffix(f.json, "At") {
		found = append(found, "is a point in time, its name should end with At")
	}
	if f.goType == "int32" || f.goType == "int64" {
		found = append(found, f.unitProblems()...)
	}
	return found
}

func (f apiField) unitProblems() []string {
	var found []string
	if timeWords.MatchString(f.json) && !regexp.MustCompile(`(Seconds|Millis|Percent)($|After)`).MatchString(f.json) {
		found = append(found, "is a time without a unit in its name (Seconds, Millis)")
	}
	if shareWords.MatchString(f.json) && !strings.HasSuffix(f.json, "Percent") {
		found = append(found, "is a share without Percent in its name")
	}
	for suffix, word := range units {
		if strings.HasSuffix(f.json, suffix) && !word.MatchString(f.doc) {
			found = append(found, "its comment does not say "+word.String())
		}
	}
	return found
}

func (a *api) typeProblems(f apiField) []string {
	allowed := []string{
		"string", "int32", "int64", "[]string", "[]int32", "[]int64", "metav1.Time", "metav1.MicroTime", "metav1.ObjectMeta", "[]metav1.Condition",
	}
	named := strings.TrimPrefix(f.goType, "[]")
	switch {
	case f.goType == "runtime.RawExtension":
		if !f.has("kubebuilder:pruning:PreserveUnknownFields") {
			return []string{"holds any JSON, which the API server would prune"}
		}
	case slices.Contains(allowed, f.goType), a.strings[f.goType] != nil:
	case slices.ContainsFunc(a.structs, func(s structType) bool { return s.name == named }):
	default: // floats, ints without size, bools (no room for a third value), maps, durations as text
		return []string{f.goType}
	}
	return nil
}
