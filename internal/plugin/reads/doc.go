// SPDX-License-Identifier: Apache-2.0

// Package reads is what the plugin and the console read of a cluster: a run with the steps of the
// Workflow that it follows, its child runs, the runs under way, the policies, and who owns which
// partition. Each function reads through the client that it gets, with the rights of its user, and
// changes nothing. Each list is bounded.
//
// What may not be seen is left out where an answer makes sense without it: policies, the runs of
// other namespaces, the steps of a Workflow. Everything else is the error of the API server.
package reads
