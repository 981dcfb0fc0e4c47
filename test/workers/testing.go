// SPDX-License-Identifier: Apache-2.0

package workers

import "testing"

// Test runs the kit with a subtest for every check.
func Test(t *testing.T, c Config) {
	t.Helper()
	c.Report = func(o Outcome) {
		t.Run(o.ID, func(t *testing.T) {
			switch o.Verdict {
			case Failed:
				t.Error(o)
			case Skipped:
				t.Skip(o.Detail)
			case OK:
			}
		})
	}
	if _, err := Run(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}
