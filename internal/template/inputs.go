// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// maxNamed bounds the parameters that a message lists, and the inputs that are none.
const maxNamed = 10

// Inputs are the inputs of a run with the defaults of those that it does not give; or what is wrong
// with those that it gives, each with its field. Inputs that are too large are left to the core.
func (c *Content) Inputs(given *runtime.RawExtension) (inputs []byte, problems []string) {
	raw := bounds.Raw(given)
	if len(raw) > bounds.MaxInputsBytes {
		return raw, nil
	}
	values := valuesOf(raw)
	if values == nil {
		return raw, []string{"spec.inputs: not a JSON object"}
	}
	own, wrong := c.check(values)
	problems = append(append(own, wrong...), c.unknown(values)...)
	if len(problems) > 0 {
		return raw, problems
	}
	return c.merged(raw, values), nil
}

// WithDefaults are the inputs of a run that was checked before, as Inputs makes them.
func (c *Content) WithDefaults(given *runtime.RawExtension) []byte {
	raw := bounds.Raw(given)
	values := valuesOf(raw)
	if values == nil {
		return raw
	}
	return c.merged(raw, values)
}

// valuesOf are the values of inputs by name; nil: they are no object.
func valuesOf(raw []byte) (values map[string]json.RawMessage) {
	if json.Unmarshal(raw, &values) != nil {
		return nil
	}
	return values
}

// merged are inputs with the defaults of those that are not given.
func (c *Content) merged(raw []byte, values map[string]json.RawMessage) []byte {
	if !c.addDefaults(values) {
		return raw
	}
	merged, err := json.Marshal(values)
	if err != nil {
		return raw // each of them was read as JSON
	}
	return merged
}

// addDefaults adds those of parameters that have no value, and says whether there are any.
func (c *Content) addDefaults(values map[string]json.RawMessage) (added bool) {
	for i := range c.parameters {
		p := &c.parameters[i]
		if _, has := values[p.Name]; !has && p.Default != nil {
			values[p.Name], added = p.Default.Raw, true
		}
	}
	return added
}

func rawOf(inputs []byte) *runtime.RawExtension { return &runtime.RawExtension{Raw: inputs} }

// unknown says which inputs are no parameters.
func (c *Content) unknown(values map[string]json.RawMessage) (problems []string) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(c.parameters, func(p v1alpha1.Parameter) bool { return p.Name == name }) {
			names = append(names, name)
		}
	}
	for _, name := range names[:min(len(names), maxNamed)] {
		problems = append(problems, fmt.Sprintf("spec.inputs.%s: Workflow %s has no such parameter%s", bounds.Cut(name, bounds.MaxCodeChars), c.Workflow, c.names()))
	}
	if more := len(names) - maxNamed; more > 0 {
		problems = append(problems, fmt.Sprintf("spec.inputs: and %d more that are no parameters", more))
	}
	return problems
}

func (c *Content) names() string {
	if len(c.parameters) == 0 {
		return ", it has none"
	}
	var names []string
	for i := range c.parameters[:min(len(c.parameters), maxNamed)] {
		names = append(names, c.parameters[i].Name)
	}
	if len(c.parameters) > maxNamed {
		names = append(names, "...")
	}
	return "; it has " + strings.Join(names, ", ")
}

func quote(s string) string { return fmt.Sprintf("%q", bounds.Cut(s, bounds.MaxCodeChars)) }

func typeOf(p *v1alpha1.Parameter) v1alpha1.ParameterType {
	if p.Type == "" {
		return v1alpha1.ParameterString
	}
	return p.Type
}

// kindOf is the type of a JSON value, "null" included.
func kindOf(value any) v1alpha1.ParameterType {
	switch value.(type) {
	case string:
		return v1alpha1.ParameterString
	case bool:
		return v1alpha1.ParameterBoolean
	case int64:
		return v1alpha1.ParameterInteger
	case float64:
		return v1alpha1.ParameterNumber
	case map[string]any:
		return v1alpha1.ParameterObject
	case []any:
		return v1alpha1.ParameterArray
	default:
		return "null"
	}
}
