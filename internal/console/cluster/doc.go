// SPDX-License-Identifier: Apache-2.0

// Package cluster is what the console asks the API server, in the name of one user.
//
//	rest.Config of a user ──> View ──> a run with all that belongs to it, policies, schedules, ...
//	                          Feeds ─> the rows of a list of runs, kept up to date by a watch
//
// The API server makes the rows: it is asked for a Table, so of a run come name, phase, steps,
// tenant, class, reason and message, and never its steps or outputs.
//
// # Guarantees
//
//   - Each call is made with the rights of the user of its View; nothing is kept for another one.
//   - A list is shown only after the API server has been asked, just now, whether its user may
//     list. A watch is begun anew every five minutes.
//   - A feed has at most 20,000 rows, all feeds together 100,000, and there are 32 at most. A feed
//     that nobody looks at for a minute ends.
//   - Of the runs under way a page has outlines, of 64 MiB at the most. Two pages have some at a
//     time, and one of a user. No more than one run of a list is there as a whole.
package cluster
