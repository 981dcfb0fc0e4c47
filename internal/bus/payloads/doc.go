// Package payloads is the object store of outputs that are too large for status.
package payloads
