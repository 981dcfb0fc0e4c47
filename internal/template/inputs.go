// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

// maxNamed bounds the parameters that a message lists.
const maxNamed = 10

// Inputs are the inputs of a run with the defaults of those that it does not give; or what is wrong
// with those that it gives, each with its field. Inputs that are too large are left to the core.
func (c *Content) Inputs(given *runtime.RawExtension) (inputs []byte, problems []string) {
	raw := bounds.Raw(given)
	var values map[string]json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil || values == nil {
		return raw, []string{"spec.inputs: not a JSON object"}
	}
	problems = append(slices.Clone(c.problems), c.problemsOf(values)...)
	problems = append(problems, c.unknown(values)...)
	if len(problems) > 0 || !c.addDefaults(values) {
		return raw, problems
	}
	merged, err := json.Marshal(values)
	if err != nil {
		return raw, []string{"spec.inputs: " + err.Error()}
	}
	return merged, nil
}

// problemsOf is what is wrong with the values of parameters, in their order.
func (c *Content) problemsOf(values map[string]json.RawMessage) (problems []string) {
	for i := range c.parameters {
		p := &c.parameters[i]
		value, has := values[p.Name]
		switch {
		case has:
			if why := c.wrong(p, value); why != "" {
				problems = append(problems, fmt.Sprintf("spec.inputs.%s: %s", p.Name, why))
			}
		case p.Required && p.Default == nil:
			problems = append(problems, fmt.Sprintf("spec.inputs.%s: Workflow %s requires this %s", p.Name, c.Workflow, typeOf(p)))
		}
	}
	return problems
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
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(c.parameters, func(p v1alpha1.Parameter) bool { return p.Name == name }) {
			problems = append(problems, fmt.Sprintf("spec.inputs.%s: Workflow %s has no such parameter%s", bounds.Cut(name, bounds.MaxCodeChars), c.Workflow, c.names()))
		}
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

// wrong says what is wrong with the value of a parameter; "": nothing.
func (c *Content) wrong(p *v1alpha1.Parameter, raw []byte) string {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return "not JSON"
	}
	if is := kindOf(value); is != typeOf(p) && (is != v1alpha1.ParameterInteger || typeOf(p) != v1alpha1.ParameterNumber) {
		return fmt.Sprintf("is of type %s, and has to be of type %s", is, typeOf(p))
	}
	text, isText := value.(string)
	switch pattern := c.patterns[p.Name]; {
	case !isText:
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, text):
		return fmt.Sprintf("%s is not one of %s", quote(text), bounds.Cut(strings.Join(p.Enum, ", "), bounds.MaxToolChars))
	case pattern != nil && !pattern.MatchString(text):
		return fmt.Sprintf("%s does not match %s", quote(text), p.Pattern)
	}
	return ""
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

// checkParameters compiles the patterns, and notes what is wrong with the parameters.
func (c *Content) checkParameters() {
	c.patterns = map[string]*regexp.Regexp{}
	for i := range c.parameters {
		p, field := &c.parameters[i], fmt.Sprintf("spec.parameters[%d]", i)
		if p.Pattern != "" {
			pattern, err := regexp.Compile(p.Pattern)
			if err != nil {
				c.problems = append(c.problems, fmt.Sprintf("%s.pattern: %v", field, err))
			} else {
				c.patterns[p.Name] = pattern
			}
		}
		if p.Default == nil {
			continue
		}
		if why := c.wrong(p, p.Default.Raw); why != "" {
			c.problems = append(c.problems, fmt.Sprintf("%s.default: %s", field, why))
		}
	}
}
