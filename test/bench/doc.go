// SPDX-License-Identifier: Apache-2.0

// Command bench measures Syncopate on this machine: the operator as a process of its own,
// against a real API server, NATS and Redis, and its lock manager and gates as processes against
// a real Redis.
//
//	go run . [-short] [-update] [-out DIR] [-profile DIR] [SUITE...]
//
// Each suite is one file: a function that fills in a report. Machines differ, so every figure that
// is judged is a ratio to something that was measured in the same run: the ideal of the same holds,
// or C, the plain status writes a second that the same API server makes of the same objects.
//
//	suites (suites.go) --> report: figures with goals, plots, notes --> table (stdout), JSON and SVG (-update, -out)
//	    |                                                           progress and warnings (stderr)
//	    +--> stage: API server, etcd, NATS, Redis --> world: a namespace, an operator, workers
//	    +--> crowd: child processes of this binary that contend for a lock
//
// It is a module of its own, so that what only benchmarks need (plots, other lock libraries) is not
// in the operator's go.mod.
//
// docs/benchmarks/README.md says what the figures mean.
package main
