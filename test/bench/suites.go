// SPDX-License-Identifier: Apache-2.0

package main

import "context"

// suite is one benchmark.
type suite struct {
	name, about string
	run         func(context.Context, *stage, *report) error
}

// suites are all benchmarks, in the order in which they run.
func suites() []suite {
	return []suite{
		{"throughput", "runs and steps a second beside what the API server can write", throughput},
		{"peer-shape", "runs created while the operator works, from the first creation to the last stored end, by kind of checkpoint", peerShape},
		{"status", "what a status write costs the API server, and the share of each rule of the CRD", statusCost},
		{"latency", "a worker's result published, to the next job in a worker's hands", latency},
		{"limits", "a mutex passed from run to run, and runs that wait for one", limits},
		{"scale", "what many runs that wait cost: memory, writes, a restart", scale},
		{"policy", "a LockPolicy changed live from Fixed to Jittered to HandOff", policyChange},
		{"contention", "many contenders for one run lock, by strategy, beside other libraries", contention},
		{"neighbours", "neighbours of one run of each kind that does harm, kind by kind and all together", neighboursPlay},
		{"hostile", "neighbours of tenants who do harm, kind by kind and all together; the operator's memory", hostilePlay},
		{"failover", "how long runs stand still when a replica is killed or stopped, with shards and with a leader", failover},
		{"scale-out", "steps a second by one, three and five replicas, with the API server some way off", scaleOut},
		{"held-lock", "runs of a class while a dead process holds the admission lock of another, and runs wait for it", heldLock},
		{"tracing", "what traces cost: the same load without a collector and with one, in turn", tracing},
		{"admission", "many starts at once for one tenant, by strategy, and what clients make of refusals", admissions},
	}
}
