// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Each rule of running ahead is needed: whoever leaves it out loses a result, or has a worker do an
// attempt again, or has one begin a job that was taken back.
func TestTheModelNeedsEachRuleOfRunningAhead(t *testing.T) {
	two := newRun(newStep("a", maxFailures(1)), newStep("b", after("a"), maxFailures(1), input(`{"a":"${steps.a.output.by}"}`)))
	one := newRun(newStep("a", maxFailures(1)))
	for name, c := range map[string]struct {
		run     *v1alpha1.WorkflowRun
		procs   int
		budgets world
		mutate  func(*model)
		want    string
	}{
		"acknowledged before the write":                     {two, 1, world{faults: 1}, func(m *model) { m.ackAhead = true }, "I1: "},
		"a duplicate of what is not written acknowledged":   {two, 1, world{faults: 2}, func(m *model) { m.settleAgain = true }, "I1: "},
		"published without a look by who took the run over": {two, 2, world{faults: 2}, func(m *model) { m.plainTaker = true }, "J3: "},
		"begun before the first write by anybody": {one, 2, world{faults: 2}, func(m *model) {
			m.beginAnyone, m.start.process[1].own = true, true
		}, "J3: "},
		"recovered before the first write":      {one, 2, world{faults: 2}, func(m *model) { m.recoverBegun = true }, "I2: "},
		"jobs of others left behind by an end":  {two, 2, world{faults: 2, cancels: 1}, func(m *model) { m.leaveJobs = true }, "J8: "},
		"no fence messages":                     {two, 2, world{faults: 2}, func(m *model) { m.noFence = true }, "I2: "},
		"recovered without a look into RESULTS": {two, 1, world{faults: 1}, func(m *model) { m.noLookup = true }, "I2: "},
	} {
		t.Run(name, func(t *testing.T) {
			m := modelCase{run: c.run, procs: c.procs, budgets: c.budgets, lags: true}.model()
			c.mutate(m)
			what, path := firstFault(m)
			if !strings.HasPrefix(what, c.want) {
				t.Fatalf("found %q", what)
			}
			t.Log(what + "\n" + strings.Join(path, "\n"))
		})
	}
}
