// SPDX-License-Identifier: Apache-2.0

// Package policynames bounds the series of metrics that have the name of a LockPolicy as a label.
// Each name has some 200 series of counters and histograms in a process, so all of these ask here
// what the label is.
//
// Gauges do not, and have all names. What several policies share could not be added up, and an
// alert about one that is hidden would stay silent. Each shows what is there now and goes with it:
// two series for a rollout, two for a tenant that has a gauge.
//
// Example: 200 policies are in labels, and runs of another one wait for their locks: they count
// under policy="other". One of the 200 is deleted. Ten minutes later, or after the last run counted
// under its name, its series are gone, and the next name has a label of its own.
package policynames

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// most is how many names have a label of their own.
	most = 200
	// Other is the label of all others. A policy of that name shares it.
	Other = "other"
	// keptFor is how long the series of a deleted policy stay: a scrape finds what was counted
	// last, and a policy that is made again soon goes on where it was.
	keptFor = 10 * time.Minute
	// label is the one that all of these metrics have.
	label = "policy"
)

// vector is a metric with the label; those of prometheus are.
type vector interface {
	DeletePartialMatch(labels prometheus.Labels) int
}

// Names are the names that are in labels. Safe for concurrent use. A nil one has no bound, and
// forgets nothing: for tests of something else.
type Names struct {
	mu      sync.Mutex
	vectors []vector
	gone    map[string]time.Time // since when the policy of a name is deleted, and nobody counts; zero: not as far as is known
}

// New makes the names of a process.
func New() *Names { return &Names{gone: map[string]time.Time{}} }

// Drop has the series of deleted policies dropped from metrics, too. Nobody may keep what their
// WithLabelValues returns: it would count what nobody sees.
func (n *Names) Drop(from ...vector) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.vectors = append(n.vectors, from...)
}

// Label is that of a policy, for something to count now: a name that is asked for keeps its place
// and its series. Without a name, for the built-in defaults, it is empty, and takes no place.
func (n *Names) Label(policy string) string {
	if n == nil || policy == "" {
		return policy
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, is := n.gone[policy]; !is && len(n.gone) >= most {
		return Other
	}
	n.gone[policy] = time.Time{}
	return policy
}

// Shared says that a policy has no label of its own now: there are as many as there may be.
func (n *Names) Shared(policy string) bool {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	_, is := n.gone[policy]
	return !is && len(n.gone) >= most
}

// Keep drops the series of policies that are not there, and frees their places, once they were not
// and nobody counted for a while. It says whether there are names for later.
func (n *Names) Keep(there func(policy string) bool, now time.Time) (later bool) {
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, since := range n.gone {
		switch {
		case there(name):
			n.gone[name] = time.Time{}
			continue
		case since.IsZero() || since.After(now):
			n.gone[name] = now
		case now.Sub(since) >= keptFor:
			n.drop(name)
			delete(n.gone, name)
			continue
		}
		later = true
	}
	return later
}

// drop drops the series of a name. It needs mu.
func (n *Names) drop(name string) {
	if name == Other {
		return // that are others', too
	}
	for _, v := range n.vectors {
		v.DeletePartialMatch(prometheus.Labels{label: name})
	}
}
