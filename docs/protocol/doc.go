// SPDX-License-Identifier: Apache-2.0

// Package protocol holds the JSON Schemas, the golden messages and the retry contract of
// docs/protocol.md; its test checks them against pkg/protocol, against each other, and against the
// page. contract.json is checked against the code by internal/bus.
package protocol
