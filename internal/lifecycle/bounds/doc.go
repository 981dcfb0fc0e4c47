// SPDX-License-Identifier: Apache-2.0

// Package bounds has what spec and status may hold, and values in the form in which
// they are stored.
//
// For example, an error message of a step has 1,024 characters at most, and its JSON counts against
// 24 KiB of the run: bounds has both numbers, and CutStored, which makes a text fit.
//
//   - limits.go: bounds which the schema cannot express, and the defaults of absent fields
//   - text.go: texts within a number of characters or stored bytes, without control characters
//   - json.go: JSON in the form in which the API server returns it
//   - times.go: times with the precision of the wire
//
// All functions are pure.
package bounds
