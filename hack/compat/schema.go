// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// schema finds where an object that was valid no longer is, or means something else. A field that
// is new is not looked into: nobody can rely on it.
func (c *comparison) schema(at string, was, is *schema) {
	switch {
	case was == nil:
		return
	case is == nil:
		c.add(at, "schema removed")
		return
	}
	c.types(at, was, is)
	c.values(at, was, is)
	c.numbers(at, was, is)
	c.sizes(at, was, is)
	c.rules(at, was, is)
	c.fields(at, was, is)
	c.inner(at, was, is)
}

func (c *comparison) types(at string, was, is *schema) {
	c.same(at, "type", kind(was), kind(is))
	if is.Format != "" {
		c.same(at, "format", named(was.Format), is.Format)
	}
	if was.Nullable && !is.Nullable {
		c.add(at, "null is refused")
	}
	if yes(was.XPreserveUnknownFields) && !yes(is.XPreserveUnknownFields) {
		c.add(at, "unknown fields are dropped")
	}
	// Who applies on the server's side merges by these.
	c.same(at, "list type", text(was.XListType, "atomic"), text(is.XListType, "atomic"))
	c.same(at, "map type", text(was.XMapType, "granular"), text(is.XMapType, "granular"))
	c.same(at, "keys of the list", plain(was.XListMapKeys), plain(is.XListMapKeys))
}

// kind is the type, or what stands for one.
func kind(s *schema) string {
	if s.XIntOrString {
		return "integer or string"
	}
	return named(s.Type)
}

func named(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func yes(b *bool) bool { return b != nil && *b }

func text(s *string, otherwise string) string {
	if s == nil {
		return otherwise
	}
	return *s
}

func (c *comparison) values(at string, was, is *schema) {
	c.same(at, "default", value(was.Default), value(is.Default))
	if is.Pattern != "" {
		c.same(at, "pattern", named(was.Pattern), is.Pattern)
	}
	if len(is.Enum) == 0 {
		return
	}
	if len(was.Enum) == 0 {
		c.add(at, "enum added: %s", plain(is.Enum))
		return
	}
	var before, after []string
	for i := range was.Enum {
		before = append(before, value(&was.Enum[i]))
	}
	for i := range is.Enum {
		after = append(after, value(&is.Enum[i]))
	}
	c.kept(at, "enum value", before, after)
}

func value(j *apiextensionsv1.JSON) string {
	if j == nil {
		return "none"
	}
	return string(j.Raw)
}

// plain is a value as JSON, in which equal values are equal texts.
func plain(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error() // of a schema that was read from JSON: cannot be
	}
	return string(b)
}

func (c *comparison) numbers(at string, was, is *schema) {
	above(c, at, "minimum", was.Minimum, is.Minimum)
	below(c, at, "maximum", was.Maximum, is.Maximum)
	if is.ExclusiveMinimum && !was.ExclusiveMinimum {
		c.add(at, "minimum itself is refused")
	}
	if is.ExclusiveMaximum && !was.ExclusiveMaximum {
		c.add(at, "maximum itself is refused")
	}
	if is.MultipleOf != nil {
		c.same(at, "multipleOf", plain(was.MultipleOf), plain(is.MultipleOf))
	}
}

func (c *comparison) sizes(at string, was, is *schema) {
	above(c, at, "minLength", was.MinLength, is.MinLength)
	below(c, at, "maxLength", was.MaxLength, is.MaxLength)
	above(c, at, "minItems", was.MinItems, is.MinItems)
	below(c, at, "maxItems", was.MaxItems, is.MaxItems)
	above(c, at, "minProperties", was.MinProperties, is.MinProperties)
	below(c, at, "maxProperties", was.MaxProperties, is.MaxProperties)
	if is.UniqueItems && !was.UniqueItems {
		c.add(at, "items must be unique")
	}
}

// above is for a bound that may only sink.
func above[N int64 | float64](c *comparison, at, what string, was, is *N) {
	if is != nil && (was == nil || *is > *was) {
		c.add(at, "%s narrowed from %s to %s", what, bound(was), bound(is))
	}
}

// below is for a bound that may only rise.
func below[N int64 | float64](c *comparison, at, what string, was, is *N) {
	if is != nil && (was == nil || *is < *was) {
		c.add(at, "%s narrowed from %s to %s", what, bound(was), bound(is))
	}
}

func bound[N int64 | float64](n *N) string {
	if n == nil {
		return "none"
	}
	return plain(n)
}

// rules are texts of CEL: whether another text refuses more, no program can say, so any other is
// a finding.
func (c *comparison) rules(at string, was, is *schema) {
	for _, r := range is.XValidations {
		if !slices.ContainsFunc(was.XValidations, func(o apiextensionsv1.ValidationRule) bool { return o.Rule == r.Rule }) {
			c.add(at, "rule added or changed: %s", r.Rule)
		}
	}
	for what, pair := range map[string][2]any{
		"allOf": {was.AllOf, is.AllOf}, "anyOf": {was.AnyOf, is.AnyOf},
		"oneOf": {was.OneOf, is.OneOf}, "not": {was.Not, is.Not},
	} {
		if before, after := plain(pair[0]), plain(pair[1]); before != after && after != "null" {
			c.add(at, "%s changed from %s to %s", what, before, after)
		}
	}
}

func (c *comparison) fields(at string, was, is *schema) {
	for _, r := range is.Required {
		if !slices.Contains(was.Required, r) {
			c.add(at, "%s is required", r)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was.Properties)) {
		before := was.Properties[name]
		after, there := is.Properties[name]
		if !there {
			c.add(at+"."+name, "field removed")
			continue
		}
		c.schema(at+"."+name, &before, &after)
	}
}

func (c *comparison) inner(at string, was, is *schema) {
	if was.Items != nil {
		var after *schema
		if is.Items != nil {
			after = is.Items.Schema
		}
		c.schema(at+"[]", was.Items.Schema, after)
	}
	before, after := was.AdditionalProperties, is.AdditionalProperties
	if before == nil {
		return
	}
	if after == nil || before.Allows && !after.Allows && after.Schema == nil {
		c.add(at, "further fields are refused or dropped")
		return
	}
	c.schema(at+"{}", before.Schema, after.Schema)
}
