// SPDX-License-Identifier: Apache-2.0

// Package outputs stores and reads outputs in the object store as the decisions of a pass
// ask for them.
//
// For example: a decision needs the output of step a for the input of step b. It lists the
// reference, the pass has the bytes loaded, and decides again.
//
// What is found out about an output is a fact; that the store cannot be asked is not. While it
// cannot, results with such outputs wait, and go back to NATS after their patience; everything else
// goes on. Between passes the findings are remembered, not the bytes. Large outputs need a desk
// (package shares). Objects to which a status no longer refers are dropped after its write, and
// those of a deleted run by package gc.
package outputs
