// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// proxy is the way of one child to Redis.
type proxy struct {
	t  testing.TB
	to *toxiproxy.Proxy
}

func newProxy(t testing.TB, addr string) *proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &proxy{t: t, to: toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", addr)}
	p.open()
	t.Cleanup(p.shut)
	return p
}

// shut refuses connections, and closes those that there are; open ends that.
func (p *proxy) shut() { p.to.Stop() }

func (p *proxy) open() {
	p.t.Helper()
	if err := p.to.Start(); err != nil {
		p.t.Errorf("start proxy: %v", err)
	}
}

// poison adds a toxic to what flows in one direction: upstream are commands,
// downstream are replies.
func (p *proxy) poison(kind, direction string, attributes map[string]int64) {
	p.t.Helper()
	toxic, err := json.Marshal(map[string]any{"type": kind, "stream": direction, "attributes": attributes})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.to.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		p.t.Errorf("add toxic %s: %v", kind, err)
	}
}

// heal removes all toxics.
func (p *proxy) heal() { p.to.Toxics.ResetToxics(p.t.Context()) }
