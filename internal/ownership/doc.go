// Package ownership divides the runs among the replicas of the operator: each of 65 partitions has
// one owner, and only the owner drives its runs.
//
// The package is being built: this is its API.
package ownership
