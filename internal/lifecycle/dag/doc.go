// SPDX-License-Identifier: Apache-2.0

// Package dag plans the steps of a run: which step waits for which, which may begin, and whether a
// spec can be run at all.
//
// For example, a run with steps a, b and c, where c depends on a and b, has the plan
//
//	Deps:       c waits for a and b
//	Dependents: a is waited for by c, b is waited for by c
//
// A Schedule hands out a and b. After Release of both it hands out c, in the same decision.
//
// A Plan is total: Of plans any spec. What Validate refuses maps to steps that never become ready.
// All functions are pure and cost O(steps + dependencies).
package dag
