// SPDX-License-Identifier: Apache-2.0

// Package payloads is the object store <prefix>-payloads. It has the outputs that are too large for
// status, under names made of their digests.
//
//	Put ──> parts, each confirmed ──> entry       Get ──> entry ──> parts
//	Drop <── names of List                        DropParts <── parts of LooseParts
//	DropStrays <── entries of Strays
//
// # Guarantees
//
//   - An entry is published when all its parts are confirmed, and stored only while they are there.
//   - Get tells an object that is not there, or not whole (ErrUnusable, a fact), from a
//     store that cannot be asked (*bus.RetryError).
//   - Only the leader of the stream answers: a replica that lags would say that an object is gone.
//   - Nothing expires. Drop leaves nothing behind.
//   - LooseParts has no part of an upload that got another part within the given time.
//   - Strays has no entry under the name of a run's output, whether there is such a run or not.
//   - What is dropped is what was listed: a subject with a wildcard, which NATS stores as any
//     other, is neither listed nor purged.
package payloads
