// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

func aSemaphore(name, spec string) string {
	return "apiVersion: syncopate.dev/v1alpha1\nkind: Semaphore\nmetadata: {" + name + "}\nspec: {permits: 1" + spec + "}\n"
}

// mutations: a rule of the selector that is left out, or that asks for values of all operators, and
// a rule of the name without either half, make a case fail.
func TestSemaphoreRules(t *testing.T) {
	selector := func(expressions string) string {
		return aSemaphore("generateName: sem-", ", namespaces: {matchExpressions: ["+expressions+"]}")
	}
	const operator, values, name = "operator of spec.namespaces is In, NotIn, Exists or DoesNotExist",
		"In and NotIn need values, Exists and DoesNotExist have none", "no run could name this Semaphore"
	for what, c := range map[string]struct {
		manifest string
		refused  []string
	}{
		"all namespaces":           {aSemaphore("generateName: sem-", ""), nil},
		"an empty selector":        {aSemaphore("generateName: sem-", ", namespaces: {}"), nil},
		"by labels":                {aSemaphore("generateName: sem-", ", namespaces: {matchLabels: {team: a}}"), nil},
		"all operators":            {selector("{key: a, operator: In, values: [b]}, {key: a, operator: NotIn, values: [c, d]}, {key: a, operator: Exists}, {key: e, operator: DoesNotExist, values: []}"), nil},
		"in, in lower case":        {selector("{key: a, operator: in, values: [b]}"), []string{"spec.namespaces", operator}},
		"the second is wrong":      {selector("{key: a, operator: Exists}, {key: a, operator: exists}"), []string{operator}},
		"In without values":        {selector("{key: a, operator: In}"), []string{"spec.namespaces", values}},
		"NotIn with none":          {selector("{key: a, operator: NotIn, values: []}"), []string{values}},
		"Exists with values":       {selector("{key: a, operator: Exists, values: [b]}"), []string{values}},
		"DoesNotExist with values": {selector("{key: a, operator: DoesNotExist, values: [b]}"), []string{values}},
		"a name of 63":             {aSemaphore("name: "+strings.Repeat("a", 63), ""), nil},
		"a name of 64":             {aSemaphore("name: "+strings.Repeat("a", 64), ""), []string{name}},
		"a name with a dot":        {aSemaphore("name: gpus.eu", ""), []string{name}},
	} {
		t.Run(what, func(t *testing.T) {
			_, err := create(t, c.manifest)
			wantRefused(t, err, c.refused...)
		})
	}
}

// Semaphores that were made before there were these rules can be edited, and the operator can write
// their status.
//
// mutation: a rule of the name that looks at updates, too, makes this fail.
func TestSemaphoresOfBeforeTheRulesCanBeEdited(t *testing.T) {
	const group = "before.syncopate.dev"
	data, err := os.ReadFile(filepath.Join(moduleRoot, "config", "crd", "bases", "syncopate.dev_semaphores.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	install := func(change func(root *apiextensionsv1.JSONSchemaProps)) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			t.Fatal(err)
		}
		crd.Name, crd.Spec.Group = crd.Spec.Names.Plural+"."+group, group
		crd.Spec.Names.ShortNames, crd.Spec.Names.Categories = nil, nil
		change(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
		if _, err := envtest.InstallCRDs(server.env.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}}); err != nil {
			t.Fatal(err)
		}
	}
	install(func(root *apiextensionsv1.JSONSchemaProps) {
		dropRules(root, "", func(string, string) bool { return false })
	})
	of := func(manifest string) string { return strings.Replace(manifest, "syncopate.dev/", group+"/", 1) }
	old := mustCreate(t, of(aSemaphore("name: gpus.eu", ", namespaces: {matchExpressions: [{key: a, operator: in, values: [b]}]}")))
	install(func(*apiextensionsv1.JSONSchemaProps) {})
	n := 0
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		n++
		_, err := create(t, of(aSemaphore(fmt.Sprint("name: probe.", n), "")))
		return apierrors.IsInvalid(err), nil
	}); err != nil {
		t.Fatalf("the rules are not there: %v", err)
	}
	wantRefused(t, patch(t, old, "spec: {permits: 2}"))
	wantRefused(t, patchStatus(t, old, "status: {held: 1, queued: 0, keys: 1}"))
	wantRefused(t, patch(t, old, "spec: {namespaces: {matchExpressions: [{key: a, operator: notin, values: [b]}]}}"), "an operator of spec.namespaces is")
	wantRefused(t, patch(t, old, "spec: {namespaces: {matchExpressions: [{key: a, operator: In, values: [b]}]}}"))
}
