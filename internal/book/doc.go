// SPDX-License-Identifier: Apache-2.0

// Package book is a ledger: the plan of what workers answer, the clerks who work by it, the history
// of each status write as the API server tells it, and the judge who compares them. It shares
// nothing with the operator but the API and the protocol. Its documentation is that of test/ledger,
// which plays it with one of each server; test/faults plays it with the parts that people run, and
// kubectl syncopate verify with the installation of a user.
package book
