// SPDX-License-Identifier: Apache-2.0

// Package locktest is the conformance suite of the lock scripts: what a store of run locks must do,
// whatever it is made of. It runs against a real Redis, the embedded stand-in, and the model that
// the tests of internal/lockmgr use; a stand-in is trusted because it passes.
//
// It does not import lockmgr, so that lockmgr's own tests can use it.
package locktest
