// SPDX-License-Identifier: Apache-2.0

// Package plugin is the commands of the kubectl plugin, kubectl syncopate. cmd/kubectl-syncopate
// gives it the process; what is said about a run comes from internal/plugin/runview, and dead
// letters are read and redriven by internal/bus/deadletters.
//
//	tree RUN                             API server
//	why RUN                              API server; Redis, if its address is given; NATS, if it answers
//	approve RUN STEP, reject RUN STEP    API server
//	check                                all three; changes nothing
//	console                              API server
//	audit                                all three; changes what --repair mends
//	support-bundle                       all three; writes a file
//	dead-letters list, show, redrive     NATS; the API server for the names of runs
//
// # Guarantees
//
//   - Only submit, rerun, approve, reject, rollout promote and abort, dead-letters redrive, audit
//     --repair, and the buttons of console change anything.
//   - approve and reject decide in the name under which the API server has authenticated the
//     caller, and about the one run that they read: not about a later one of its name. They refuse
//     what could have no effect.
//   - What was asked for goes to Out; notes and errors go to Err, one line each. JSON has a stable
//     shape: fields are only added.
//   - Colours go to a terminal only, and no text of a worker can move its cursor.
//   - No token is shown: who has one can answer for a job.
//   - Each call to a server is bounded, and so is each list.
//
// Errors: *UsageError for a command line that makes no sense (exit code 2); *CheckError and
// *AuditError where check or audit could not tell (exit code 3); everything else is a failure (exit
// code 1).
package plugin
