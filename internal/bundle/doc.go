// SPDX-License-Identifier: Apache-2.0

// Package bundle makes the file that a bug report needs: a tar.gz of what an installation is like,
// without what its users put into it.
//
//	objects, facts -> summaries (pure) -> Writer -> tar.gz with contents.txt
//
// # Guarantees
//
//   - What is in it of runs and of the operator's objects is listed here, field by field;
//     nothing is copied whole, and then cleaned. So a new field of a run is left out until
//     somebody adds it.
//   - Whole are the spec of a LockPolicy, which has settings and names, the resources of the
//     operator's containers, and the two ConfigMaps that the operator writes. Whoever adds a field
//     to them adds it to the bundle.
//   - Of runs there are no inputs, outputs, expressions, annotations, labels, keys, messages or
//     errors' texts: a worker or a user wrote those. Reasons and codes are words of the operator.
//   - No Secret is read. Addresses are without users and passwords, and environment
//     variables without values.
//   - A file has 1 MiB at most, and all files 10 MiB; what was cut or could not be read is in
//     contents.txt. Of a list that is cut there are whole entries.
package bundle
