// SPDX-License-Identifier: Apache-2.0

// Package actions is what people ask of a run, by the plugin or by the console: decide an approval,
// end it early, suspend it, run it again. Each is a write to the API server with the rights of the
// client that is given, so who may do it is a matter of RBAC alone, and the audit log has their
// name.
//
// # Guarantees
//
//   - An action is about the one run that was meant, by its UID: not about a later one of its name.
//   - A decision is made in the name under which the API server has authenticated its caller. What
//     could have no effect is refused with a reason.
//   - A run that is run again keeps fields of its spec that this version does not know, as of a
//     newer API server.
package actions
