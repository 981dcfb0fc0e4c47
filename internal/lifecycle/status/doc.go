// SPDX-License-Identifier: Apache-2.0

// Package status reads a run: what follows from spec and status alone, without a decision.
//
// For example, AttemptEnd adds startTimeoutSeconds to the moment of dispatch, and Condition finds a
// condition. All functions are pure. A zero time says that the moment never comes.
package status
