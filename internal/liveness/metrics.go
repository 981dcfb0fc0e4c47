// SPDX-License-Identifier: Apache-2.0

package liveness

import "github.com/prometheus/client_golang/prometheus"

// kinds are all kinds.
var kinds = []Kind{Unknown, Pulling, NobodyPulls, NoConsumer, Stuck, Full}

// Topics tells the metric of topics that runs wait for. A topic for which runs of several replicas
// wait counts in each of them.
type Topics struct {
	desc  *prometheus.Desc
	count func() map[Kind]int
}

// Topics is the collector of the topics that are watched.
func (c *Watcher[K]) Topics() *Topics {
	return &Topics{
		desc: prometheus.NewDesc("syncopate_topics_waiting",
			"Topics that runs of this replica wait for, by what is known of their workers.", []string{"state"}, nil),
		count: c.count,
	}
}

// count is how many topics that somebody watches are told to be of each kind.
func (c *Watcher[K]) count() map[Kind]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[Kind]int{}
	for _, t := range c.topics {
		if len(t.keys) > 0 {
			n[t.told.Kind]++
		}
	}
	return n
}

// Describe implements prometheus.Collector.
func (t *Topics) Describe(ch chan<- *prometheus.Desc) { ch <- t.desc }

// Collect implements prometheus.Collector. Kinds that no topic is of are there, too: so what goes
// away is seen to go.
func (t *Topics) Collect(ch chan<- prometheus.Metric) {
	n := t.count()
	for _, kind := range kinds {
		ch <- prometheus.MustNewConstMetric(t.desc, prometheus.GaugeValue, float64(n[kind]), kind.String())
	}
}
