// SPDX-License-Identifier: Apache-2.0

// Package protocol is the wire protocol between the operator and its workers: names of streams,
// subjects and headers, the job id, and the bodies of results and control messages.
// docs/protocol.md describes the same for other languages.
//
// Everything here is pure: no connection, no clock. internal/bus and pkg/worker are its two users.
//
//	operator --job--> <prefix>.jobs.<topic>.<runUID>.<step>.<item>.<attempt>          stream <PREFIX>_JOBS
//	worker --result--> <prefix>.results.<partition>.<runUID>.<step>.<item>.<attempt>  stream <PREFIX>_RESULTS
//	operator --cancel--> <prefix>.control.<runUID>                                    stream <PREFIX>_CONTROL
//	worker --large output--> $O.<prefix>-payloads.>                                   object store <prefix>-payloads
package protocol
