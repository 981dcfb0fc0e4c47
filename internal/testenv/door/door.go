// SPDX-License-Identifier: Apache-2.0

// Package door is a way of one client to one server, which tests shut, slow down and make one-way.
package door

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Door is open at first.
type Door struct {
	t  testing.TB
	to *toxiproxy.Proxy
}

// New is a door to a server, until the test ends.
func New(t testing.TB, addr string) *Door {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := &Door{t: t, to: toxiproxy.NewProxy(server, "door", "127.0.0.1:0", addr)}
	p.Open()
	t.Cleanup(p.Shut)
	return p
}

// Addr is where clients connect.
func (p *Door) Addr() string { return p.to.Listen }

// Shut refuses connections, and closes those that there are; Open ends that.
func (p *Door) Shut() { p.to.Stop() }

// Open ends Shut.
func (p *Door) Open() {
	p.t.Helper()
	if err := p.to.Start(); err != nil {
		p.t.Errorf("start proxy: %v", err)
	}
}

// Poison adds a toxic to what flows in one direction: upstream is to the
// server, downstream are its answers.
func (p *Door) Poison(kind, direction string, attributes map[string]int64) {
	p.t.Helper()
	toxic, err := json.Marshal(map[string]any{"type": kind, "stream": direction, "attributes": attributes})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.to.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		p.t.Errorf("add toxic %s: %v", kind, err)
	}
}

// Heal removes all toxics.
func (p *Door) Heal() { p.to.Toxics.ResetToxics(p.t.Context()) }
