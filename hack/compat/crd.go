// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

type crd = apiextensionsv1.CustomResourceDefinition

// readCRDs takes the CRDs out of files of manifests, by name.
func readCRDs(files ...string) (map[string]*crd, error) {
	all := map[string]*crd{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := addCRDs(all, text); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no CRD in %v", files)
	}
	return all, nil
}

func addCRDs(to map[string]*crd, text []byte) error {
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	defer func() { _ = documents.Close() }()
	buffer := make([]byte, len(text))
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var c crd
		if err := yaml.Unmarshal(buffer[:n], &c); err != nil {
			return err
		}
		if c.Kind == "CustomResourceDefinition" {
			to[c.Name] = &c
		}
	}
}

func (c *comparison) crds(was, is map[string]*crd) {
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] == nil {
			c.add(name, "kind removed")
			continue
		}
		c.crd(name, was[name].Spec, is[name].Spec)
	}
}

func (c *comparison) crd(name string, was, is apiextensionsv1.CustomResourceDefinitionSpec) {
	c.same(name, "kind", was.Names.Kind, is.Names.Kind)
	c.same(name, "scope", was.Scope, is.Scope)
	c.kept(name, "short name", was.Names.ShortNames, is.Names.ShortNames)
	c.kept(name, "category", was.Names.Categories, is.Names.Categories)
	for _, v := range was.Versions {
		at := name + " " + v.Name
		i := slices.IndexFunc(is.Versions, func(o apiextensionsv1.CustomResourceDefinitionVersion) bool { return o.Name == v.Name })
		switch {
		case i < 0:
			c.add(at, "version removed")
		case v.Served && !is.Versions[i].Served:
			c.add(at, "version not served any more")
		default:
			c.version(at, v, is.Versions[i])
		}
	}
}

func (c *comparison) version(at string, was, is apiextensionsv1.CustomResourceDefinitionVersion) {
	var before, after []string
	for _, f := range was.SelectableFields {
		before = append(before, f.JSONPath)
	}
	for _, f := range is.SelectableFields {
		after = append(after, f.JSONPath)
	}
	c.kept(at, "selectable field", before, after)
	c.same(at, "subresource status", hasStatus(was), hasStatus(is))
	c.schema(at, was.Schema.OpenAPIV3Schema, is.Schema.OpenAPIV3Schema)
}

func hasStatus(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return v.Subresources != nil && v.Subresources.Status != nil
}

// same is for what must not change at all.
func (c *comparison) same(at, what string, was, is any) {
	if was != is {
		c.add(at, "%s changed from %v to %v", what, was, is)
	}
}

// kept is for lists to which only more may come.
func (c *comparison) kept(at, what string, was, is []string) {
	for _, x := range was {
		if !slices.Contains(is, x) {
			c.add(at, "%s %s removed", what, x)
		}
	}
}
