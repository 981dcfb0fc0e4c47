// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
)

const (
	// Partitions is how many there are: those of runs, and one for singletons.
	Partitions = 65
	// Singletons is the partition of the work that is done once in an installation. Those below it
	// have runs, by the partition of their UID (protocol.Partition).
	Singletons = 64
)

var (
	// ErrNotOwned is the cause with which a context of While ends: this member may act for the
	// partition no more. There is no use in trying again here.
	ErrNotOwned = errors.New("the partition is not owned by this replica")
	// ErrOtherInstallation is returned by Start where the owners of partitions belong to another
	// prefix of subjects, or the API server has become that of another cluster. Trying again in the
	// same process does not help.
	ErrOtherInstallation = errors.New("the partitions belong to another installation")
)

// Handler begins and ends the work of partitions. Calls that are about one partition are made one
// after the other, in the order of events: a Lose is over for it once its work has ended. Calls
// that are about different ones may be made at the same time.
type Handler interface {
	// Gain begins the work of partitions that this member owns now. It returns quickly.
	Gain(ctx context.Context, partitions []int)
	// TakeOver is Gain for partitions whose owner did not hand them over: it is gone,
	// or was paused.
	TakeOver(ctx context.Context, partitions []int)
	// Lose ends the work of partitions: passes in flight end, leases and results are given back. It
	// calls ended with those of which all that has ended, also from several goroutines, and
	// returns when it has ended of all, or when ctx ends; after that it calls ended no more. Before
	// it is called, Owns is false for them. Contexts of While end a moment after ended, or when it
	// has returned; where the member may act no
	// more already, since its own Lease ended, they ended before.
	Lose(ctx context.Context, partitions []int, ended func([]int))
}
