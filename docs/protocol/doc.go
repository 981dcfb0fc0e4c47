// Package protocol holds the JSON Schemas and golden messages of docs/protocol.md; its test checks them against pkg/protocol,
// against each other, and against the page.
package protocol
