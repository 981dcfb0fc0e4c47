// SPDX-License-Identifier: Apache-2.0

package results

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// maxElsewhere bounds what is remembered of runs that others drove when they were deleted: runs,
// their jobs in flight and their outputs. Beyond it the oldest are left to package gc.
const maxElsewhere = 10_000

// elsewhere remembers runs that were deleted while another process drove them, or none did: that
// one may have ended before it cleaned up. To clean up twice does no harm.
type elsewhere struct {
	graves []grave // in the order in which they came
	weight int
}

// grave is where a deleted run was.
type grave struct {
	key  types.NamespacedName
	left Tombstone
}

func (g *grave) weight() int {
	return 1 + len(g.left.Jobs) + len(g.left.Outputs) + len(lifecycle.InFlight(g.left.Follows))
}

func (e *elsewhere) add(g grave) {
	e.graves = append(e.graves, g)
	e.weight += g.weight()
	for e.weight > maxElsewhere {
		e.weight -= e.graves[0].weight()
		e.graves[0] = grave{}
		e.graves = e.graves[1:]
	}
}

// take takes out those of partitions.
func (e *elsewhere) take(partitions map[int]bool) (taken []grave) {
	var kept []grave
	e.weight = 0
	for _, g := range e.graves {
		if partitions[protocol.Partition(string(g.left.UID))] {
			taken = append(taken, g)
			continue
		}
		kept = append(kept, g)
		e.weight += g.weight()
	}
	e.graves = kept
	return taken
}

// Adopt hands the tombstones of runs of partitions, which this process drives from now on, to their
// next passes, and returns the names of these runs.
func (x *Index) Adopt(partitions map[int]bool) (keys []types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, g := range x.elsewhere.take(partitions) {
		x.deleted[g.key] = append(x.deleted[g.key], g.left)
		keys = append(keys, g.key)
	}
	return keys
}
