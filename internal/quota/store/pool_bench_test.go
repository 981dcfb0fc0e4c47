// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/shares"
)

// BenchmarkPoolDecision measures decisions of a pool with 10 and with 1,000 tenants, in turn, so
// that what else the machine does spoils both: each decision ends one run and admits another. One
// tenant has 10,000 runs that wait, the others have ten each. -benchtime 2000x is enough.
func BenchmarkPoolDecision(b *testing.B) {
	client := testClient(b, redistest.Start(b).Addr())
	small, large := newCrowd(b, client, 10), newCrowd(b, client, 1000)
	took := map[*crowd][]time.Duration{}
	for b.Loop() {
		for _, c := range []*crowd{small, large} {
			took[c] = append(took[c], c.decide())
		}
	}
	few, many := percentile(took[small], 95), percentile(took[large], 95)
	b.ReportMetric(inMillis(few), "10-tenants-p95-ms")
	b.ReportMetric(inMillis(many), "1000-tenants-p95-ms")
	b.ReportMetric(float64(many)/float64(few), "1000/10-p95")
	b.ReportMetric(0, "ns/op")
}

// crowd is a pool with tenants that wait all the time.
type crowd struct {
	*poolScene
	in   []Next // have slots, the oldest first
	runs int
}

func newCrowd(b *testing.B, client redis.UniversalClient, tenants int) *crowd {
	b.Helper()
	l := shares.Limits{Total: 2 * tenants, Max: -1, Tenants: map[string]shares.Share{}}
	for i := range tenants {
		l.Tenants["t"+strconv.Itoa(i)] = shares.Share{Max: 2 * tenants, Guaranteed: i % 2, Weight: 1 + i%5}
	}
	c := &crowd{poolScene: newPoolScene(b, client, l)}
	c.key = PoolOf("tenants-" + strconv.Itoa(tenants))
	token, err := c.quota.BeginRebuild(b.Context(), c.key)
	must(b, err, "begin")
	must(b, c.quota.FinishRebuild(b.Context(), c.key, token, nil), "open the pool")
	for i := range tenants {
		for range 10 {
			c.asks("t" + strconv.Itoa(i))
		}
	}
	for range 10_000 - 10 {
		c.asks("t0")
	}
	return c
}

func (c *crowd) asks(tenant string) {
	c.t.Helper()
	c.runs++
	r := run(fmt.Sprintf("%s.%d", tenant, c.runs), 0, 0)
	a, err := c.quota.Admit(c.t.Context(), c.key, c.limits, tenant, r)
	must(c.t, err, "admit")
	if a.Admitted {
		c.in = append(c.in, Next{UID: r.UID, Name: r.Name})
	}
	c.in = append(c.in, a.Given...)
}

// decide ends the oldest run, whose tenant has another one instead.
func (c *crowd) decide() time.Duration {
	over := c.in[0]
	c.in = c.in[1:]
	began := time.Now()
	given, err := c.quota.Release(c.t.Context(), c.key, c.limits, over.UID)
	took := time.Since(began)
	must(c.t, err, "release")
	c.in = append(c.in, given...)
	tenant, _, _ := strings.Cut(over.UID, ".")
	c.asks(tenant)
	return took
}
