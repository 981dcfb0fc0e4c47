// SPDX-License-Identifier: Apache-2.0

// Package buildinfo says what a binary was built from: the version and commit that the
// build stamped into it, else what Go itself recorded. Pure but for reading the running
// binary's own record.
package buildinfo
