// SPDX-License-Identifier: Apache-2.0

// Package audit makes an audit every ten minutes, in one replica, and tells what it found: a
// metric, a line of the log for each kind, an event, and the ConfigMap syncopate-audit. It mends
// nothing. internal/audit says what is compared, docs/audit.md what each kind means.
//
// The ConfigMap is the audit's own status: Consistent is True, False, or Unknown where a store
// could not be read; with it are the time and up to 100 findings. Whoever reads one figure of many
// replicas takes the maximum: only the one that audits has another than 0.
package audit
