// SPDX-License-Identifier: Apache-2.0

package expr

import "slices"

// ConditionSteps checks a condition: it compiles, its type is bool, or unknown until it is
// evaluated, and the fields that it reads are there. It lists the steps that the condition reads by
// name, steps.NAME or steps["NAME"], each once. Optional reads, steps.?NAME, do not count: they are
// a question whether there is such a step. Its error is an *Error, or ErrUnread.
func ConditionSteps(src string, with ...Option) ([]string, error) {
	o := optionsOf(with)
	p, err := condition(src, o)
	if err != nil {
		return nil, err
	}
	return p.steps, p.fieldsKnown(o)
}

// TemplateSteps checks every expression of a template, and lists the steps that they read, as
// ConditionSteps does. Its error is an *Error, or wraps ErrTemplate, ErrTooLarge or ErrUnread.
func TemplateSteps(raw []byte, with ...Option) ([]string, error) {
	var names []string
	o := optionsOf(with)
	r := renderer{check: true, options: o, value: func(p *program) (any, error) {
		names = append(names, p.steps...)
		return nil, p.fieldsKnown(o)
	}}
	if _, err := r.document(raw); err != nil {
		return nil, err
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Outputs says of which steps an expression reads the output, so that nobody has to
// load the others.
type Outputs struct {
	Names []string // steps whose output, or which as a whole, it reads by name; sorted
	All   bool     // it reads steps in a way that their names do not tell: any of them may be meant
}

// ConditionOutputs says which outputs a condition reads. Its error is an *Error, or ErrUnread.
func ConditionOutputs(src string, with ...Option) (Outputs, error) {
	p, err := condition(src, optionsOf(with))
	if err != nil {
		return Outputs{}, err
	}
	return p.outputs, nil
}

// TemplateOutputs says which outputs the expressions of a template read. Its error is
// an *Error, or wraps ErrTemplate, ErrTooLarge or ErrUnread.
func TemplateOutputs(raw []byte, with ...Option) (Outputs, error) {
	var all Outputs
	r := renderer{options: optionsOf(with), value: func(p *program) (any, error) {
		all.Names = append(all.Names, p.outputs.Names...)
		all.All = all.All || p.outputs.All
		return nil, nil
	}}
	if _, err := r.document(raw); err != nil {
		return Outputs{}, err
	}
	slices.Sort(all.Names)
	all.Names = slices.Compact(all.Names)
	return all, nil
}
