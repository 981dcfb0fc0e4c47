// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1alpha1.CheckpointPolicy
		want Checkpoint
	}{
		"absent":         {v1alpha1.CheckpointPolicy{}, Checkpoint{}},
		"every step":     {v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointEveryStep, MaxResults: 5, MaxDelayMillis: 50}, Checkpoint{}},
		"its defaults":   {v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced}, Checkpoint{Coalesced: true, MaxResults: 64, MaxDelay: 200 * time.Millisecond}},
		"what it says":   {v1alpha1.CheckpointPolicy{Mode: v1alpha1.CheckpointCoalesced, MaxResults: 5, MaxDelayMillis: 50}, Checkpoint{Coalesced: true, MaxResults: 5, MaxDelay: 50 * time.Millisecond}},
		"a mode to come": {v1alpha1.CheckpointPolicy{Mode: "Never"}, Checkpoint{}},
	} {
		p := &v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{Checkpoint: c.spec}}
		if got := Of(p).Checkpoint; got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
