// SPDX-License-Identifier: Apache-2.0

// Package faults plays every fault against every invariant, with two operators that share the
// runs, on the parts that people run. It has tests only. The plan, the clerks and the judge are
// those of internal/book, which read the API and share nothing with the operator.
//
//	one       a nats-server and a redis-server, each replica behind doors of its own
//	sentinel  three nats-servers with R3, Redis with a master, two replicas and three sentinels
//	cluster   three nats-servers with R3, a Redis Cluster of three shards with a replica each
//
// All parts have TLS with client certificates, users with the rights of internal/rights, and the
// API server behind a door. A round is a ledger of its own: runs are created, clerks work, a fault
// or two of different servers happen in the middle, and are healed. Then it is checked:
//
//	I1 no confirmed result is lost          I2 each is applied once, each job dispatched once
//	I3 no fence goes back, none has two leases   I4 no more runs are admitted than the limit
//	I5 after healing no two effects are further apart than bound
//	I6 what the operators counted is above zero where a fault must show
//
// Nobody who is refused by NATS goes unseen: the servers' logs must have no refusal.
//
//	make test-faults PART=sentinel SEEDS=7,8 DURATION=20m
package faults
