// SPDX-License-Identifier: Apache-2.0

// Package hostile plays tenants who do harm, beside a neighbour who does none. The kinds of harm
// are those that a review found by experiment: each once stopped others or lost a result. They are
// what somebody can do with valid objects and results of workers; what belongs to faults of
// machines (a lock that another process holds, a publish that arrives late, a change of owner) is
// done to their own runs only, so that whatever the neighbour feels comes from the operator, or
// from the servers and the machine that all share.
//
//	Scene ─── Operators    processes that share the runs; memory watched as the kubelet would, ended beyond it
//	  ├────── Neighbours   namespace <name>-neighbour: chains at a steady pace, of several tenants; time from creation to end
//	  ├────── Attack       namespace <name>-<kind>: runs, workers, locks, until Stop; then what it found
//	  └────── Apart        attacks that another process does, with DoHarm: its clients can be told from the rest, and held back
//
// Users are a spec of test/e2e (small sizes and loose bounds) and the suites neighbours (one run of
// a kind at a time) and hostile (many) of test/bench.
//
// # What an attack finds
//
// Lost: a result was confirmed to its worker before the time-out of its attempt, and counted as a
// time-out. Twice: a worker was given a job again by another message, so it was dispatched twice.
// Both are judged by the worker's own log and the final status. Nothing is found as long as nothing
// happened: Rounds says how often the harm was done.
//
// # Why there is no leader election
//
// Some of the kinds need a change of owner. With leader election that is an outage of some 16 s for
// everybody, which is a property of the take-over and would hide what the tenant does. Two
// operators without it share the work for the moment of the change, and the one that ends gives its
// leases and results back.
package hostile
