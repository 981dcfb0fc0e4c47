// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"testing"
)

// Mutations that this finds: work without the pause of its scope; Step, or take, without did; did
// that does not begin anew.
func TestLongEvaluationsPause(t *testing.T) {
	list := make([]any, 120)
	for i := range list {
		list[i] = int64(i)
	}
	v := Vars{Inputs: map[string]any{"l": list, "s": strings.Repeat("a", 60<<10)}}
	pauses := 0
	pause := func() { pauses++ }
	for name, c := range map[string]struct {
		evaluate    func(s *Scope) error
		least, most int
	}{
		"a condition": {func(s *Scope) error {
			_, err := s.Condition("inputs.l.all(a, inputs.l.all(b, a + b >= 0))")
			return err
		}, 10, 30},
		"a template": {func(s *Scope) error {
			_, err := s.Template(quote("${inputs.l.all(a, inputs.l.all(b, a + b >= 0))}"))
			return err
		}, 10, 30},
		"a list": {func(s *Scope) error {
			_, err := s.List("${inputs.l.filter(a, inputs.l.all(b, a + b >= 0))}")
			return err
		}, 10, 30},
		"calls with large operands": {func(s *Scope) error {
			_, err := s.Condition("inputs.l.all(a, inputs.s.contains('b') == false)")
			return err
		}, 10, 30},
		"a short one": {func(s *Scope) error {
			_, err := s.Condition("inputs.l.all(a, a >= 0)")
			return err
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scope := Prepare(v)
			scope.Pause(pause)
			pauses = 0
			if err := c.evaluate(scope); err != nil {
				t.Fatal(err)
			}
			if pauses < c.least || pauses > c.most {
				t.Errorf("%d pauses at a cost of %d, want %d to %d", pauses, scope.Spent(), c.least, c.most)
			}
			pauses = 0
			scope.Pause(nil)
			if err := c.evaluate(scope); err != nil || pauses > 0 {
				t.Errorf("without: %d pauses, %v", pauses, err)
			}
		})
	}
}
