// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"maps"
	"strings"
)

// OwnPrefix begins the annotations that the operator reads and writes.
const OwnPrefix = "syncopate.dev/"

// NotOurs are the annotations of others than the operator: what it marks is no edit.
func NotOurs(annotations map[string]string) map[string]string {
	ours := func(key, _ string) bool { return strings.HasPrefix(key, OwnPrefix) }
	for key, value := range annotations {
		if ours(key, value) {
			annotations = maps.Clone(annotations)
			maps.DeleteFunc(annotations, ours)
			break
		}
	}
	return annotations
}
