// SPDX-License-Identifier: Apache-2.0

// Package cluster is the end-to-end suite: the operator as pods on a cluster, with its RBAC, its
// Service, its certificates and a kubelet, and what clusters do to pods. `make test-e2e` makes a
// kind cluster for it; E2E_KUBECONFIG names another. Without either there is nothing to run, and
// `go test ./...` passes it by.
//
// # What is installed
//
//	namespace          what                                              from
//	nats               NATS with JetStream on a volume                   manifests/nats
//	redis              Redis with an append-only file on a volume        manifests/redis
//	syncopate-system   the operator, two replicas, and its webhook       config/default-webhook, as users apply it
//	workers            the sample worker, and tally                      manifests/workers
//	tally              the Redis to which tally writes                   manifests/ledger
//
// These are the addresses that config/manager has by default, so what is tested is what is shipped;
// an overlay names the images only. A cluster that has one of these namespaces already is refused:
// the suite deletes them at its end.
//
// With E2E_PRODUCTION (`make test-production`) examples/production is installed instead, on three
// nodes of kind: three replicas, three NATS servers and three Redis servers with sentinels, TLS,
// and a user for each. Its certificates are made by the suite, which brings no cert-manager, and no
// reloader. The specs of production_test.go are played then, in place of the others: pods are
// deleted by force, a node is drained, and one stops.
//
// # How a guarantee is checked
//
// Each spec works in a world: a namespace, a LockPolicy and a page of the ledger of its own. From
// the beginning a history of the world is written from a watch, and a spec that lets something die
// ends with these questions:
//
//   - nothing lost: every run reached its end, and the ledger has every job;
//   - nothing twice: the ledger has every job once, and status has one attempt of each step. The
//     exceptions are a worker that is killed, whose job another one gets, and NATS going away
//     between a result and the acknowledgement of its job: there a job may be begun again, but
//     it counts once;
//   - limits kept: in no state that the API server had were more runs of the tenant under way than
//     its policy allows;
//   - one writer: no fence went back, and no end changed (history);
//   - nothing crashed: no container of the operator was restarted, whatever happened to what
//     it depends on.
//
// The order of specs matters, since the last ones take the operator away: one ordered container in
// suite_test.go has them all.
//
// # What is left when a spec fails
//
// The artifacts directory has the log of every container that ran (logs/), also of pods that are
// gone, and for a spec that failed the objects and events of its world and of the operator's
// namespace (failed/). rbac.txt is what the operator's service account may do.
package cluster
