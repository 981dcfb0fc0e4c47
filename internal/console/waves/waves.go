// SPDX-License-Identifier: Apache-2.0

// Package waves remembers how busy run locks were while people looked: the status of a LockPolicy
// says only how they are now.
//
// A sample is taken when somebody who may see a policy opens a page with it, every 25 s at most. It
// is shown with the policy, so to who may see that. 200 policies with 120 samples each are kept, in
// memory: an hour of an open page. One that nobody has looked at for an hour, or that is gone since
// then, makes place for others. Metrics have the same for ever.
package waves

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	maxPolicies = 200
	maxSamples  = 120
	apart       = 25 * time.Second
	keptFor     = time.Hour // after the last sample
)

// Waves are the samples so far.
type Waves struct {
	mu sync.Mutex
	of map[types.UID][]facts.Sample
}

// New remembers nothing.
func New() *Waves { return &Waves{of: map[types.UID][]facts.Sample{}} }

// Look adds the figures of policies, and gives those of all of them, by name.
func (w *Waves) Look(policies []v1alpha1.LockPolicy, now time.Time) map[string][]facts.Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.of, func(_ types.UID, all []facts.Sample) bool { return now.Sub(all[len(all)-1].At) > keptFor })
	seen := map[string][]facts.Sample{}
	for i := range policies {
		p := &policies[i]
		if p.Status != nil && p.Status.Contention != nil {
			w.add(p.UID, facts.Sample{At: now, BusyPerMinute: p.Status.Contention.BusyRetriesPerMinute, P95Millis: p.Status.Contention.P95LockWaitMillis})
		}
		seen[p.Name] = append([]facts.Sample{}, w.of[p.UID]...)
	}
	return seen
}

func (w *Waves) add(uid types.UID, s facts.Sample) {
	all, known := w.of[uid]
	switch {
	case !known && len(w.of) >= maxPolicies:
		return
	case known && s.At.Sub(all[len(all)-1].At) < apart:
		return
	case len(all) >= maxSamples:
		all = append(all[:0], all[1:]...)
	}
	w.of[uid] = append(all, s)
}
