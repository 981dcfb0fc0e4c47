// SPDX-License-Identifier: Apache-2.0

// Package verify plays a ledger on an installation: runs in a namespace, under a LockPolicy and on
// a topic of their own, by workers who are slow, forget to acknowledge and answer twice. It reads
// what becomes of them by the API server alone, compares it with what was published, and takes away
// what it made. What is checked, and the faults that may be asked for, are in docs/verify.md.
package verify
