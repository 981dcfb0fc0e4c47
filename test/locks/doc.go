// SPDX-License-Identifier: Apache-2.0

// Package locks proves run locks (internal/lockmgr) with processes of the operating system against
// a real redis-server. It has tests and benchmarks only.
//
// A child process is the test binary, started again in a role of its own. It has a lock manager
// with a Redis client, like a replica of the operator, and speaks JSON lines with its parent over
// stdin and stdout. The parent plays the API server: per run a register that accepts and refuses
// writes as the rules of the CRD do, and remembers all of them.
//
//	child: lock manager --- Redis commands ---> [door] ---> redis-server
//	  | read, write, what it saw                               ^ SIGSTOP, restart, FLUSHALL
//	parent: register, faults (SIGSTOP, SIGKILL, doors) --------+
//
// # Tests
//
// The nemesis test runs workers under a plan of faults that follows from a seed. It prints the seed
// and the plan; LOCKS_SEED=<seed> runs the same plan again. What came of it is judged afterwards
// from the history, by pure functions that have tests of their own:
//
//   - I3: accepted writes of a run never go back in fence, and no two leases write under
//     the same fence.
//   - Every lease is above the fence that its taker had read; unless Redis lost data, fences rise
//     with time and belong to one lease each.
//   - Exclusion: unless Redis lost data, at no time do two leases of a run say that they
//     have the lock.
//   - A lease that the register refuses is refused for something that happened after it was asked
//     for, so nobody can be refused in a loop.
//   - I5: after the faults are over, every child gets every lock again and can write.
//   - I6: the losses that workers saw are those that were counted.
//
// # Benchmarks
//
// Figures, not tests: they depend on the machine, and those of contention are ratios to an ideal
// that is measured next to them.
//
//	go test ./test/locks -run '^$' -bench . -benchtime 1x
//
// LOCKS_BENCH_FIXED=1 also lets 1,000 contenders poll without jitter, which takes minutes.
package locks
