// SPDX-License-Identifier: Apache-2.0

// Package config is what is installed, as files in a binary: the kubectl plugin compares a cluster
// with them.
package config

import "embed"

// Manifests are the CRDs, the admission policies and the operator's roles.
//
//go:embed crd/bases/*.yaml status/policy.yaml approval/policy.yaml schedules/policy.yaml rbac/role.yaml
var Manifests embed.FS
