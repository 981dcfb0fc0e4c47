// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	service = "apiVersion: v1\nkind: Service\nmetadata: {name: a, namespace: ns}\nspec: {ports: [{port: 1}]}\n"
	budget  = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b, namespace: ns}\n"
	space   = "apiVersion: v1\nkind: Namespace\nmetadata: {name: ns}\n"
)

// mutation: each of these makes its row fail: a comparison of common objects only, in one direction
// or by name; labels that are all ignored; -only-first for what is not there or in both.
func TestTwoRenderings(t *testing.T) {
	join := func(docs ...string) string { return strings.Join(docs, "---\n") }
	labelled := func(label string) string {
		return strings.Replace(service, "namespace: ns", "namespace: ns, labels: {"+label+"}", 1)
	}
	for name, c := range map[string]struct {
		first, second, onlyFirst string
		want                     string // in the error or the output; empty: they are the same
	}{
		"the order does not count":              {join(service, budget), join(budget, service), "", ""},
		"the layout does not count":             {service, `{"kind":"Service","apiVersion":"v1","spec":{"ports":[{"port":1}]},"metadata":{"namespace":"ns","name":"a"}}`, "", ""},
		"empty documents do not count":          {service, join("# nothing\n", service, "\n"), "", ""},
		"Helm's labels do not count":            {service, labelled("helm.sh/chart: x, app.kubernetes.io/version: v1"), "", ""},
		"other labels count":                    {service, labelled("app.kubernetes.io/component: x"), "", "app.kubernetes.io/component"},
		"a value differs":                       {service, strings.Replace(service, "port: 1", "port: 2", 1), "", "v1 ns Service/a (-first +second)"},
		"a namespace differs":                   {service, strings.Replace(service, "namespace: ns", "namespace: other", 1), "", "only in the second"},
		"the second lacks an object":            {join(service, budget), service, "", "PodDisruptionBudget/b: only in the first"},
		"the first lacks an object":             {service, join(service, budget), "", "PodDisruptionBudget/b: only in the second"},
		"what only the first is to have":        {join(space, service), service, "Namespace/ns", ""},
		"what only the first is to have, twice": {join(space, service), join(space, service), "Namespace/ns", "is in both"},
		"what only the first is to have, never": {service, service, "Namespace/ns", "is not in the first"},
		"an object twice":                       {join(service, service), service, "", "is there twice"},
		"no YAML":                               {"a: [", service, "", "read an object"},
	} {
		t.Run(name, func(t *testing.T) {
			paths := []string{write(t, c.first), write(t, c.second)}
			var out strings.Builder
			err := compareFiles(&out, paths, c.onlyFirst)
			if c.want == "" {
				if err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
				return
			}
			if err == nil || !strings.Contains(err.Error()+out.String(), c.want) {
				t.Errorf("error %v, output %q, want %q", err, out.String(), c.want)
			}
		})
	}
	if err := compareFiles(&strings.Builder{}, []string{"one"}, ""); err == nil {
		t.Error("one file was enough")
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifests.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
