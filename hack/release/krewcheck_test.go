// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func manifest() krewManifest {
	m := newKrewManifest("v1.0.0")
	for _, p := range pluginPlatforms {
		m.Spec.Platforms = append(m.Spec.Platforms, newKrewPlatform(p, "v1.0.0", "x.tar.gz", nil))
	}
	return m
}

func TestKrewTakesTheManifest(t *testing.T) {
	text, err := yaml.Marshal(manifest())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(validateKrew("syncopate.yaml", text)...); err != nil {
		t.Error(err)
	}
	if validateKrew("other.yaml", text) == nil {
		t.Error("a file that is not called after the plugin passes")
	}
	if validateKrew("syncopate.yaml", append(text, "more: x\n"...)) == nil {
		t.Error("a field that krew does not know passes")
	}
}

// Each manifest is broken in one way, and must be refused for that one only.
func TestKrewRefusesBrokenManifests(t *testing.T) {
	for complaint, breakIt := range map[string]func(*krewManifest){
		"apiVersion is":             func(m *krewManifest) { m.APIVersion = "krew.googlecontainertools.github.com/v1" },
		"kind is":                   func(m *krewManifest) { m.Kind = "Plugins" },
		"spec.version":              func(m *krewManifest) { m.Spec.Version = "1.0.0" },
		"spec.shortDescription":     func(m *krewManifest) { m.Spec.ShortDescription = "two\nlines" },
		"spec.platforms is empty":   func(m *krewManifest) { m.Spec.Platforms = nil },
		"all match linux-amd64":     func(m *krewManifest) { m.Spec.Platforms[0].Selector = m.Spec.Platforms[2].Selector },
		"no https URL":              func(m *krewManifest) { m.Spec.Platforms[0].URI = "http://example.com/x.zip" },
		"is none of [.tar.gz .zip]": func(m *krewManifest) { m.Spec.Platforms[0].URI += ".xz" },
		"sha256":                    func(m *krewManifest) { m.Spec.Platforms[0].SHA256 = strings.Repeat("A", 64) },
		"bin":                       func(m *krewManifest) { m.Spec.Platforms[0].Bin = "a/../../x" },
		"files: from":               func(m *krewManifest) { m.Spec.Platforms[0].Files = []krewFile{{From: "/x", To: "."}} },
		"selector is empty": func(m *krewManifest) {
			m.Spec.Platforms = m.Spec.Platforms[:1]
			m.Spec.Platforms[0].Selector = &krewSelector{}
		},
		"is neither os nor arch": func(m *krewManifest) { m.Spec.Platforms[0].Selector.MatchLabels["cpu"] = "x" },
		`operator "Is" is none of`: func(m *krewManifest) {
			m.Spec.Platforms[0].Selector.MatchExpressions = []krewExpression{{Key: "os", Operator: "Is"}}
		},
	} {
		m := manifest()
		breakIt(&m)
		text, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all := validateKrew("syncopate.yaml", text)
		if len(all) != 1 || !strings.Contains(all[0].Error(), complaint) {
			t.Errorf("%s: refused for %v", complaint, all)
		}
	}
	for _, name := range []string{"", "Upper", "kubectl-x", "a_b", "../x"} {
		m := manifest()
		m.Metadata.Name = name
		text, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(validateKrew(name+".yaml", text)) != 1 {
			t.Errorf("the name %q passes", name)
		}
	}
}
