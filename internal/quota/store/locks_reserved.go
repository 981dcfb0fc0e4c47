// SPDX-License-Identifier: Apache-2.0

package store

import (
	"slices"
	"strings"
)

// ReservedPrefix begins the names of locks that only reserved holds have: see Reserved. No lock
// that is asked for begins so.
const ReservedPrefix = "mutex::"

// Reserved are locks as a hold has them of which nobody knows whether its ticket was granted it.
// Others wait for such a hold: they are not refused for it, and nobody is cancelled for it. The
// ticket itself is not told that it holds them.
//
// Each lock has a companion, with as many permits: so the sum of these is how many of its permits
// are reserved.
func Reserved(locks []Hold) []Hold {
	all := slices.Clone(locks)
	for _, l := range locks {
		all = append(all, Hold{Name: ReservedPrefix + l.Name, Permits: l.Permits})
	}
	return all
}

// IsReserved says whether a hold has its locks as Reserved gives them.
func (h Holding) IsReserved() bool {
	return slices.ContainsFunc(h.Locks, func(l Hold) bool { return strings.HasPrefix(l.Name, ReservedPrefix) })
}
