// SPDX-License-Identifier: Apache-2.0

// Package waves remembers how busy run locks were while people looked: the status of a LockPolicy
// says only how they are now.
//
// A sample is taken when somebody who may see a policy opens a page with it, every 25 s at most. It
// is shown with the policy, so to who may see that. 200 policies with 120 samples each are kept, in
// memory: an hour of an open page. Metrics have the same for ever.
package waves

import (
	"sync"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	maxPolicies = 200
	maxSamples  = 120
	apart       = 25 * time.Second
)

// Waves are the samples so far.
type Waves struct {
	mu     sync.Mutex
	byName map[string][]facts.Sample
}

// New remembers nothing.
func New() *Waves { return &Waves{byName: map[string][]facts.Sample{}} }

// Look adds the figures of policies, and gives those of all of them.
func (w *Waves) Look(policies []v1alpha1.LockPolicy, now time.Time) map[string][]facts.Sample {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string][]facts.Sample{}
	for i := range policies {
		p := &policies[i]
		if p.Status != nil && p.Status.Contention != nil {
			w.add(p.Name, facts.Sample{At: now, BusyPerMinute: p.Status.Contention.BusyRetriesPerMinute, P95Millis: p.Status.Contention.P95LockWaitMillis})
		}
		seen[p.Name] = append([]facts.Sample{}, w.byName[p.Name]...)
	}
	return seen
}

func (w *Waves) add(name string, s facts.Sample) {
	all, known := w.byName[name]
	switch {
	case !known && len(w.byName) >= maxPolicies:
		return
	case known && s.At.Sub(all[len(all)-1].At) < apart:
		return
	case len(all) >= maxSamples:
		all = append(all[:0], all[1:]...)
	}
	w.byName[name] = append(all, s)
}
