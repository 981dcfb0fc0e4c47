// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"strings"
	"testing"
)

// firstFault is what breaks a rule first in a model; "": nothing does.
func firstFault(m *model) (what string, path []string) {
	x := &explorer{model: m, number: map[world]int32{}}
	x.add(m.start, -1, label{text: "start", bit: -1})
	for at := int32(0); int(at) < len(x.worlds) && len(x.worlds) < maxWorlds; at++ {
		w := x.worlds[at]
		for _, s := range m.steps(&w) {
			if s.err != nil {
				return s.err.Error(), append(x.path(at), s.name.words(m.core))
			}
			x.add(s.next, at, s.name)
		}
	}
	return "", nil
}

// A process may be paused before any publish, for any time: the model has no window in
// which NATS knows a job by its id. So whoever leaves out a part of the fence is found to
// run an attempt again.
func TestTheModelNeedsEachPartOfTheFence(t *testing.T) {
	for name, mutate := range map[string]func(*model){
		"no fence message at all":                            func(m *model) { m.noFence = true },
		"fenced by who recovers, not before the first write": func(m *model) { m.noBar = true },
		"recovered before the first write":                   func(m *model) { m.noClaim = true },
		"recovered without a look into RESULTS":              func(m *model) { m.noLookup = true },
	} {
		t.Run(name, func(t *testing.T) {
			run := newRun(newStep("a", maxFailures(2)))
			m := modelCase{run: run, procs: 2, budgets: world{faults: 2}}.model()
			mutate(m)
			what, path := firstFault(m)
			if !strings.HasPrefix(what, "I2: a worker runs an attempt again") {
				t.Fatalf("found %q", what)
			}
			t.Log(what + "\n" + strings.Join(path, "\n"))
		})
	}
}
