// SPDX-License-Identifier: Apache-2.0

// Package probe collects the facts that internal/check judges: from the API server with the user's
// kubeconfig, and from NATS and Redis where they can be reached.
//
//	Gather: the Deployment first (it says where the rest is), then all categories at the same time
//
// # Guarantees
//
//   - It changes nothing. Requests to the API server go through a transport that refuses all but
//     reads, dry runs and access reviews. NATS is asked for information only, and Redis for INFO,
//     TIME and a script that touches no key.
//   - Each category has a time limit of its own, and the whole takes less than 10 s. What was not
//     answered by then is Unknown; it is never an error.
//   - No Secret is read.
//   - Lists are bounded.
package probe
