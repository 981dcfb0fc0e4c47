// SPDX-License-Identifier: Apache-2.0

// Package simulate says beforehand what a LockPolicy would do to contenders of one run lock: how
// long until all have had it, how long each waits, how many commands Redis gets. It is pure: time
// is simulated, chance is an argument.
//
// Delays are drawn by internal/policy, as the operator draws them. The line and the lock are a
// model of internal/lockmgr: a process that has or takes the lock answers its other contenders
// without Redis; with HandOff it passes the lock on to them up to 10 times in a row, then to
// the next process.
//
// Example: 100 contenders of 3 processes that hold the lock for 5 ms each. Polling every 500 ms
// +-30 % takes 2.3 s, without jitter 50 s, handed on 0.5 s. docs/rollout.md has it beside what was
// measured.
//
// Not in the model: contenders that come one after another, leases that linger, processors that are
// busy. So it compares policies; it does not foretell a cluster.
package simulate
