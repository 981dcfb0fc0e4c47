// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// late can be read, and is written by the operator as 10000-01-01T11:59:59Z, which is no date-time.
const late = "9999-12-31T23:59:59-12:00"

// timeFields are manifests with a time in each field of type Time that users write.
func timeFields(at string) map[string]string {
	workflow := "apiVersion: syncopate.dev/v1alpha1\nkind: Workflow\nmetadata: {generateName: w-, namespace: default}\nspec:\n  template:\n    "
	schedule := "apiVersion: syncopate.dev/v1alpha1\nkind: Schedule\nmetadata: {generateName: s-, namespace: default}\n" +
		"spec:\n  cron: ['0 * * * *']\n  runTemplate: {spec: {steps: [{name: a, job: {topic: t}}]}}\n  backfill: "
	job, wait := "[{name: a, job: {topic: t}}]", "[{name: b, delay: {until: '"+at+"'}}]"
	return map[string]string{
		"workflowruns spec.steps[].delay.until":         aRunOf("  steps: " + wait),
		"workflowruns spec.finally[].delay.until":       aRun("  finally: " + wait),
		"workflows spec.template.steps[].delay.until":   workflow + "steps: " + wait + "\n",
		"workflows spec.template.finally[].delay.until": workflow + "steps: " + job + "\n    finally: " + wait + "\n",
		"schedules spec.backfill.from":                  schedule + "{from: '" + at + "', to: '9999-12-31T00:00:00Z'}\n",
		"schedules spec.backfill.to":                    schedule + "{from: '2026-01-01T00:00:00Z', to: '" + at + "'}\n",
	}
}

// What Go cannot read would make each list of runs fail in each replica, for one object. The
// schema's format takes these texts; that a rule reads the field keeps them out.
//
// mutations: a rule with a year taken away from Delay or Backfill, and a bound of the one of Delay
// left out make this fail.
func TestATimeThatCannotBeReadOrWrittenIsRefused(t *testing.T) {
	for _, at := range []string{
		"2027-12-01t00:00:00Z", "2027-12-01T00:00:00z", "2027-12-01T00:00:00+99:00", "2027-12-01T00:00:00+00:99", "2027-12-01T00:00:00Zt",
		"2027-12-01T00:00:00x5Z", "2027-12-01T00:00:00", "2027-12-01", "2027-12-01 00:00:00Z", "2027-12-01T23:59:60Z", "",
		late, "9999-12-31T23:59:59-00:01", "0000-01-01T00:00:00+12:00", "0001-01-01T00:00:00Z", "1999-12-31T23:59:59Z",
	} {
		for field, manifest := range timeFields(at) {
			if o, err := create(t, manifest); err == nil {
				t.Errorf("%s: %q is accepted: %s", field, at, o.GetName())
			} else if !apierrors.IsInvalid(err) {
				t.Errorf("%s: %q: %v", field, at, err)
			}
		}
	}
	for _, at := range []string{"2027-12-01T00:00:00Z", "2027-12-01T00:00:00.5+14:00", "8999-12-31T23:59:59-12:00"} {
		for field, manifest := range timeFields(at) {
			if _, err := create(t, manifest); err != nil {
				t.Errorf("%s: %q: %v", field, at, err)
			}
		}
	}
	for _, field := range []string{"workflowruns spec.steps[].delay.until", "schedules spec.backfill.to"} {
		if _, err := create(t, timeFields("9999-12-31T23:59:59Z")[field]); err != nil {
			t.Errorf("the last second in %s: %v", field, err)
		}
	}
}

// mutations: a field of timeFields left out makes this fail, and so does a new field of type Time
// in a spec.
func TestAllTimesThatUsersWriteAreTried(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(moduleRoot, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	var found []string
	for _, file := range files {
		crd := crdOf(t, file)
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		found = append(found, timesIn(&spec, crd.Spec.Names.Plural+" spec")...)
	}
	slices.Sort(found)
	if tried := slices.Sorted(maps.Keys(timeFields(late))); !slices.Equal(found, tried) {
		t.Errorf("tried are %q, and there are %q", tried, found)
	}
}

func timesIn(s *apiextensionsv1.JSONSchemaProps, path string) (found []string) {
	if s.Format == "date-time" {
		return []string{path}
	}
	for name := range s.Properties {
		p := s.Properties[name]
		found = append(found, timesIn(&p, path+"."+name)...)
	}
	if s.Items != nil {
		found = append(found, timesIn(s.Items.Schema, path+"[]")...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		found = append(found, timesIn(s.AdditionalProperties.Schema, path+"{}")...)
	}
	return found
}

func crdOf(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(data, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// An object that was stored before the rules keeps its time. Its status can be written, by an
// operator that writes the time as one of the year 10000, it can be shut down, and
// its metadata change.
//
// mutation: the rule on the backfill's to as one of the spec, of which users change other
// fields, makes this fail.
func TestAnObjectFromBeforeTheRulesOnTimesIsNotStuck(t *testing.T) {
	const group = "before.syncopate.dev"
	for kind, c := range map[string]struct {
		field       string
		time        []string // in spec, up to the field that has it
		status      map[string]any
		step, other string // patches of spec
	}{
		"workflowruns": {"workflowruns spec.steps[].delay.until", []string{"steps"}, map[string]any{"phase": "Running"}, "spec: {shutdown: Cancel}", ""},
		"workflows": {
			"workflows spec.template.steps[].delay.until",
			[]string{"template", "steps"},
			map[string]any{"revision": "abc"},
			"spec: {revisionHistoryLimit: 3}", "spec: {template: {steps: [{name: c, delay: {until: '" + late + "'}}]}}",
		},
		"schedules": {
			"schedules spec.backfill.to",
			[]string{"backfill"},
			map[string]any{"started": int64(1)},
			"spec: {suspend: true}", "spec: {backfill: {from: '2026-02-01T00:00:00Z'}}",
		},
	} {
		t.Run(kind, func(t *testing.T) {
			manifest := strings.Replace(timeFields(late)[c.field], "syncopate.dev/", group+"/", 1)
			o := storedBefore(t, group, kind, manifest)
			held, ok, err := unstructured.NestedFieldNoCopy(o.Object, append([]string{"spec"}, c.time...)...)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			writeLate(t, held)
			o.Object["status"] = c.status
			if err := server.client.Status().Update(t.Context(), o); err != nil {
				t.Errorf("status: %v", err)
			}
			for _, text := range []string{"metadata: {labels: {team: a}}", c.step} {
				if err := patch(t, o, text); err != nil {
					t.Errorf("%s: %v", text, err)
				}
			}
			if c.other != "" {
				wantRefused(t, patch(t, o, c.other), "year")
			}
		})
	}
}

// writeLate puts the time into steps, or into a backfill, as the operator writes it.
func writeLate(t *testing.T, held any) {
	t.Helper()
	const written = "10000-01-01T11:59:59Z"
	switch is := held.(type) {
	case []any:
		if err := unstructured.SetNestedField(mapOf(t, is[0]), written, "delay", "until"); err != nil {
			t.Fatal(err)
		}
	default:
		mapOf(t, held)["to"] = written
	}
}

func mapOf(t *testing.T, value any) map[string]any {
	t.Helper()
	is, ok := value.(map[string]any)
	if !ok {
		t.Fatalf("%T is no object", value)
	}
	return is
}

// storedBefore is an object of a kind whose CRD, in a group of its own, gets its rules afterwards.
func storedBefore(t *testing.T, group, kind, manifest string) *unstructured.Unstructured {
	t.Helper()
	install := func(change func(*apiextensionsv1.JSONSchemaProps)) {
		crd := crdOf(t, filepath.Join(moduleRoot, "config", "crd", "bases", "syncopate.dev_"+kind+".yaml"))
		crd.Name, crd.Spec.Group, crd.Spec.Names.ShortNames = kind+"."+group, group, nil
		change(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if _, err := envtest.InstallCRDs(server.env.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
			t.Fatal(err)
		}
	}
	install(func(s *apiextensionsv1.JSONSchemaProps) {
		dropRules(s, "", func(_, rule string) bool { return !strings.Contains(rule, "timestamp('9999") })
	})
	o := mustCreate(t, manifest)
	install(func(*apiextensionsv1.JSONSchemaProps) {})
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = server.client.Create(t.Context(), parse(t, manifest), client.DryRunAll); apierrors.IsInvalid(err) {
			return o
		}
	}
	t.Fatal(fmt.Errorf("the rules do not come into force: %w", err))
	return nil
}
