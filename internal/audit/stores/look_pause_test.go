// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"testing"

	"github.com/syncopate-dev/syncopate/internal/quota/resyncs"
)

// What the operator repairs by itself is not told. What a deleted run left is gone after the second
// resync.
//
// mutation: a pause of two resyncs makes this fail.
func TestThePauseIsLongerThanTheRepair(t *testing.T) {
	if Pause <= 2*resyncs.Pause {
		t.Errorf("looks are %v apart, resyncs %v", Pause, resyncs.Pause)
	}
}
