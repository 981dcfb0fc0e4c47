// SPDX-License-Identifier: Apache-2.0

// Package server is the console's HTTP: which address shows which page, and what a request must
// have before it is looked at.
//
//	request ─> limits ─> host ─> access (who asks) ─> origin and CSRF (of a POST) ─> page, action, events
//
//	GET  runs, runs/NAMESPACE/NAME, .../yaml, policies, tenants, schedules, replicas, dead-letters
//	GET  live/...     server-sent events that say "changed", and nothing else: the page is fetched again
//	POST runs/NAMESPACE/NAME/ACTION
//
// # Guarantees
//
//   - Every call to the API server is made with the rights of who asks, as internal/console/access
//     found out. A refusal is shown as the API server gave it.
//   - A request for a host that the console was not told of is refused: so no site can make its
//     name point to the console (DNS rebinding).
//   - A POST needs the token of its form, and must come from the console's own origin.
//   - The Content-Security-Policy allows nothing but the console's own style sheet and script.
//   - There are at most 64 requests at a time (8 of one user), 100 pages that follow changes (10 of
//     one user), and 64 KiB of a form. A page that follows is told once a second at most, and
//     begins anew after 15 minutes. A page is given 20 s, which its form has to come in, and 20
//     more to be sent.
package server
