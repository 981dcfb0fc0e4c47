// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API of Syncopate, group syncopate.dev: the kinds that users apply.
//
// A WorkflowRun is one execution of a DAG of steps; a LockPolicy tunes the run locks of workload
// classes. The API server enforces by itself, without a webhook, every rule written here as a
// validation marker; the guarantees that rest on it (one writer, absorbing end states) hold even
// when the operator is wrong.
//
// Units are in field names, every string and list is bounded, there are no floats.
//
// +kubebuilder:object:generate=true
// +groupName=syncopate.dev
package v1alpha1
