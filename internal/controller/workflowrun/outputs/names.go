// SPDX-License-Identifier: Apache-2.0

package outputs

import "slices"

// missingFrom are the names among those of before that are not in a list.
func missingFrom(list, before []string) (gone []string) {
	for _, name := range before {
		if !slices.Contains(list, name) {
			gone = append(gone, name)
		}
	}
	return gone
}
