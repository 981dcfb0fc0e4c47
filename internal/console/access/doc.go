// SPDX-License-Identifier: Apache-2.0

// Package access finds out who asks the console, and gives the cluster as that user may see it.
//
//	Local   kubectl syncopate console: whoever has the token of the address is the user of
//	        the kubeconfig
//	InCluster  a Deployment: the API server reviews the token of each request, or that of a proxy
//	        that names its user; each call is made by impersonating that user
//
// # Guarantees
//
//   - No call for a user is made with the rights of the console itself. These are: to review
//     tokens, and to impersonate.
//   - A token is reviewed before anything else, and again after 30 s. Before that comes
//     a rate limit.
//   - Headers that name a user count only beside the token of a proxy that the console was told of;
//     beside any other token the request is refused. A proxy cannot name users and groups of the
//     system.
//   - The console is never system:masters, a node, or a component of the cluster.
package access
