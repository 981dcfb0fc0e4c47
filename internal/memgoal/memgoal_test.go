// SPDX-License-Identifier: Apache-2.0

package memgoal

import "testing"

// Mutation that this finds: the whole limit is the goal.
func TestTheCollectorAimsAtAShareOfTheContainersLimit(t *testing.T) {
	for name, c := range map[string]struct {
		percent int
		env     map[string]string
		want    int64
		fails   bool
	}{
		"a share of the limit":               {75, map[string]string{"MEMORY_LIMIT": "536870912"}, 402653175, false},
		"no limit is known":                  {75, nil, 0, false},
		"it is switched off":                 {0, map[string]string{"MEMORY_LIMIT": "536870912"}, 0, false},
		"what Go reads itself goes before":   {75, map[string]string{"MEMORY_LIMIT": "536870912", "GOMEMLIMIT": "300MiB"}, 0, false},
		"a limit that is no number of bytes": {75, map[string]string{"MEMORY_LIMIT": "512Mi"}, 0, true},
		"a limit below zero":                 {75, map[string]string{"MEMORY_LIMIT": "-1"}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Of(c.percent, func(key string) string { return c.env[key] })
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("%d, %v, want %d", got, err, c.want)
			}
		})
	}
}
