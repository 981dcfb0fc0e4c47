// SPDX-License-Identifier: Apache-2.0

package dag

import "github.com/syncopate-dev/syncopate/internal/expr"

// runFields are the fields of the variable run, as package render gives them. From spec.finally
// the end of the run is there, too.
func runFields(finally bool) []string {
	fields := []string{"name", "namespace", "uid", "tenant", "workloadClass"}
	if finally {
		fields = append(fields, "phase", "reason", "message")
	}
	return fields
}

// place is where the expressions of step i stand, or, below 0, those of the run.
func (v *validator) place(i int) []expr.Option {
	return []expr.Option{v.meter, expr.Fields(runFields(i >= 0 && v.plan.IsFinally(i)), v.plan.Inputs)}
}
