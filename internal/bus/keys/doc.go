// SPDX-License-Identifier: Apache-2.0

// Package keys signs jobs and checks the tokens of results. It has no connection: whoever reads the
// Secret passes a function.
//
//	token = "<key id>.<base64url(HMAC-SHA256(secret, job id))>"
//
// Example: a job carries the token "k1.8Zq...". Its worker sends the token back with the result. So
// only who got the job can answer it.
//
// # Rotation
//
// Keys are rotated while the process runs, and another replica may sign with a new key before this
// one has read it. So Live refuses a token that some key could have made only by keys that were
// read after the token had come. One read serves all tokens that came before it began, and reads
// are at least 100 ms apart: forged tokens cost few reads.
//
// If the keys cannot be read, or cannot be used (bus.ErrConfig), those at hand stay in use, and
// Authentic says so by its error.
package keys
