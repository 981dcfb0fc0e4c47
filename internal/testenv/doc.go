// SPDX-License-Identifier: Apache-2.0

// Package testenv starts what the tests of several packages need, in one way: the API server of
// internal/devenv with the CRDs of this repository.
//
//	Main      for TestMain: all tests of a package share an API server; goroutines that are left fail them
//	With      the same without the look at goroutines, and with other CRDs or none
//	APIServer for a suite or a test: the server ends with it
//	Lazily    for those who start an API server otherwise: it collects garbage less often
//
// For Redis see internal/lockmgr/redistest, for NATS internal/bus/natstest, for everything
// at once devenv.Start.
package testenv
