// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/expr/budget"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

const (
	// tooLarge is said of the pattern for which nothing is left.
	tooLarge = "too large: all patterns together may have some 40,000 states"
	// tooLong is said of the value for which nothing is left.
	tooLong = "takes too long to match its pattern: a shorter text, or a pattern of fewer states, takes less"
)

// Problems are what is wrong with the parameters themselves, each with its field.
func (c *Content) Problems() []string {
	own, _ := c.check(nil)
	return own
}

// check is what is wrong with the parameters themselves, and with values; nil values: only the
// former. Patterns are compiled here, one at a time, and not kept: 250 characters can take a
// megabyte, and a run is checked once. All of them share a budget, and so do all matches.
func (c *Content) check(values map[string]json.RawMessage) (own, given []string) {
	compiling, defaults, inputs := budget.New(bounds.MaxPatternsCost), budget.New(bounds.MaxMatchCost), budget.New(bounds.MaxMatchCost)
	for i := range c.parameters {
		p, field := &c.parameters[i], fmt.Sprintf("spec.parameters[%d]", i)
		pattern, why := compile(compiling, p.Pattern)
		if why != "" {
			own = append(own, field+".pattern: "+why)
		}
		if p.Default != nil {
			if why := wrong(p, p.Default.Raw, pattern, defaults); why != "" {
				own = append(own, field+".default: "+why)
			}
		}
		if values == nil {
			continue
		}
		if why := c.wrongInput(p, values, pattern, inputs); why != "" {
			given = append(given, fmt.Sprintf("spec.inputs.%s: %s", p.Name, why))
		}
	}
	return own, given
}

// compile compiles a pattern, or says what is wrong with it: of those that are too large together
// only with the first one.
func compile(b *budget.Budget, pattern string) (compiled *budget.Pattern, why string) {
	if pattern == "" || b.Err() != nil {
		return nil, ""
	}
	compiled, err := b.Compile(pattern)
	switch {
	case errors.Is(err, budget.ErrTooCostly):
		return nil, tooLarge
	case err != nil:
		return nil, err.Error()
	}
	return compiled, ""
}

// wrongInput says what is wrong with the input of a run for a parameter; "": nothing.
func (c *Content) wrongInput(p *v1alpha1.Parameter, values map[string]json.RawMessage, pattern *budget.Pattern, b *budget.Budget) string {
	value, has := values[p.Name]
	switch {
	case has:
		return wrong(p, value, pattern, b)
	case p.Required && p.Default == nil:
		return fmt.Sprintf("Workflow %s requires this %s", c.Workflow, typeOf(p))
	}
	return ""
}

// wrong says what is wrong with the value of a parameter; "": nothing.
func wrong(p *v1alpha1.Parameter, raw []byte, pattern *budget.Pattern, b *budget.Budget) string {
	var value any
	if err := utiljson.Unmarshal(raw, &value); err != nil {
		return "not JSON"
	}
	if is := kindOf(value); is != typeOf(p) && (is != v1alpha1.ParameterInteger || typeOf(p) != v1alpha1.ParameterNumber) {
		return fmt.Sprintf("is of type %s, and has to be of type %s", is, typeOf(p))
	}
	text, isText := value.(string)
	switch {
	case !isText:
		return ""
	case len(p.Enum) > 0 && !slices.Contains(p.Enum, text):
		return fmt.Sprintf("%s is not one of %s", quote(text), bounds.Cut(strings.Join(p.Enum, ", "), bounds.MaxToolChars))
	}
	return mismatch(p, text, pattern, b)
}

// mismatch says that a text does not match a pattern; of those that take too long together only the
// first one is told. nil pattern: there is none, or it is a problem itself.
func mismatch(p *v1alpha1.Parameter, text string, pattern *budget.Pattern, b *budget.Budget) string {
	if pattern == nil || b.Err() != nil {
		return ""
	}
	switch matches, err := pattern.Match(b, text); {
	case err != nil:
		return tooLong
	case !matches:
		return fmt.Sprintf("%s does not match %s", quote(text), p.Pattern)
	}
	return ""
}
