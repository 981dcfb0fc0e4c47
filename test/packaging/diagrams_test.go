// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Each picture of docs/diagrams is drawn from the text beside it as that is now.
func TestDiagramsAreDrawnFromTheirTexts(t *testing.T) {
	texts, err := filepath.Glob(filepath.Join(moduleRoot, "docs/diagrams/*.d2"))
	if err != nil || len(texts) == 0 {
		t.Fatalf("%d texts of diagrams: %v", len(texts), err)
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		picture, err := os.ReadFile(strings.TrimSuffix(path, ".d2") + ".svg")
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("drawn from sha256:%x", sha256.Sum256(text)); !strings.Contains(string(picture), want) {
			t.Errorf("%s has changed: make diagrams", filepath.Base(path))
		}
	}
}

// The diagrams of a run's and a step's life have each phase that the API server accepts,
// and no other.
func TestDiagramsHaveEachPhase(t *testing.T) {
	var kind apiextensionsv1.CustomResourceDefinition
	definition, err := os.ReadFile(filepath.Join(moduleRoot, "config/crd/bases/syncopate.dev_workflowruns.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(definition, &kind); err != nil {
		t.Fatal(err)
	}
	status := kind.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	for name, phase := range map[string]apiextensionsv1.JSONSchemaProps{
		"run":  status.Properties["phase"],
		"step": status.Properties["steps"].Items.Schema.Properties["phase"],
	} {
		var want []string
		for _, value := range phase.Enum {
			want = append(want, strings.Trim(string(value.Raw), `"`))
		}
		text, err := os.ReadFile(filepath.Join(moduleRoot, "docs/diagrams/life-of-a-"+name+".d2"))
		if err != nil {
			t.Fatal(err)
		}
		var drawn []string
		for _, m := range phaseNode.FindAllStringSubmatch(string(text), -1) {
			if m[1] == m[2] {
				drawn = append(drawn, m[1])
			}
		}
		slices.Sort(want)
		slices.Sort(drawn)
		if len(want) == 0 || !slices.Equal(drawn, want) {
			t.Errorf("a %s: drawn %v, phases %v", name, drawn, want)
		}
	}
}

// A phase is drawn as a node with its own name: "Running: Running".
var phaseNode = regexp.MustCompile(`(?m)^ *(\w+): (\w+)( \{)?$`)
