// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// variant is the CRD of runs without some of its rules, in a group of its own.
type variant struct {
	name, group string
	whole       bool                         // its times are shown, too
	drops       func(path, rule string) bool // nil: the shipped CRD
}

// variantsOf are the shipped CRD, first, and what is measured beside it.
func variantsOf(root *apiextensionsv1.JSONSchemaProps) []variant {
	below := func(prefix string) func(string, string) bool {
		return func(path, _ string) bool { return strings.HasPrefix(path, prefix) && (prefix != "" || path == "") }
	}
	all := []variant{
		{name: "shipped", whole: true},
		{name: "nothing left out", whole: true, drops: func(string, string) bool { return false }},
		{name: "without any rule", whole: true, drops: func(string, string) bool { return true }},
		{name: "without rules of the object", drops: below("")},
		{name: "without rules of spec and below", drops: below(".spec")},
		{name: "without rules below spec", drops: below(".spec.")},
		{name: "without rules of status", drops: below(".status")},
	}
	eachRule(root, "", func(path string, r apiextensionsv1.ValidationRule) {
		said, _, _ := strings.Cut(r.Message, ": delete the run first")
		where := cmp.Or(strings.TrimPrefix(path, "."), "object")
		all = append(all, variant{name: where + ": " + said, drops: func(at, rule string) bool { return at == path && rule == r.Rule }})
	})
	for i := range all[1:] {
		all[i+1].group = fmt.Sprintf("v%d.syncopate.dev", i+1)
	}
	all[0].group = "syncopate.dev"
	return all
}

// eachRule visits all rules of a schema.
func eachRule(s *apiextensionsv1.JSONSchemaProps, path string, visit func(string, apiextensionsv1.ValidationRule)) {
	for _, r := range s.XValidations {
		visit(path, r)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		eachRule(&p, path+"."+name, visit)
	}
	if s.Items != nil && s.Items.Schema != nil {
		eachRule(s.Items.Schema, path+"[]", visit)
	}
}

// dropRules leaves rules out of a schema.
func dropRules(s *apiextensionsv1.JSONSchemaProps, path string, drops func(path, rule string) bool) {
	s.XValidations = slices.DeleteFunc(s.XValidations, func(r apiextensionsv1.ValidationRule) bool { return drops(path, r.Rule) })
	for name := range s.Properties {
		p := s.Properties[name]
		dropRules(&p, path+"."+name, drops)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		dropRules(s.Items.Schema, path+"[]", drops)
	}
}

// installVariants installs the CRDs of all variants but the shipped one, which is there.
func (w *world) installVariants(ctx context.Context) ([]variant, error) {
	shipped, err := w.shippedCRD()
	if err != nil {
		return nil, err
	}
	variants := variantsOf(shipped.Spec.Versions[0].Schema.OpenAPIV3Schema)
	crds := make([]*apiextensionsv1.CustomResourceDefinition, len(variants)-1)
	for i, v := range variants[1:] {
		crd := shipped.DeepCopy()
		crd.Name, crd.Spec.Group, crd.Spec.Names.ShortNames = crd.Spec.Names.Plural+"."+v.group, v.group, nil
		dropRules(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, "", v.drops)
		crds[i] = crd
	}
	if _, err := envtest.InstallCRDs(w.env.Config, envtest.CRDInstallOptions{CRDs: crds, MaxTime: time.Minute}); err != nil {
		return nil, fmt.Errorf("install variants of the CRD: %w", err)
	}
	w.cleanups = append(w.cleanups, func() {
		for _, crd := range crds {
			o := &unstructured.Unstructured{}
			o.SetName(crd.Name)
			o.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
			if err := client.IgnoreNotFound(w.k8s.Delete(context.WithoutCancel(ctx), o)); err != nil {
				fmt.Fprintln(os.Stderr, "delete a variant of the CRD:", err)
			}
		}
	})
	return variants, nil
}

func (w *world) shippedCRD() (*apiextensionsv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(filepath.Join(w.options.root, "config", "crd", "bases", "syncopate.dev_workflowruns.yaml"))
	if err != nil {
		return nil, fmt.Errorf("read the CRD: %w", err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		return nil, fmt.Errorf("decode the CRD: %w", err)
	}
	return crd, nil
}
