// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"fmt"
	"net"
	"sync"

	"k8s.io/utils/clock"
)

// Proxy is a door without a test. It is open at first.
type Proxy struct {
	server string // its address
	addr   string // ours, which stays while it is shut
	clock  clock.Clock

	mu       sync.Mutex
	listener net.Listener // nil: shut
	links    map[*link]struct{}
	faults   [2]*setting // by Direction
	running  sync.WaitGroup
}

// Start is a proxy of a server at host:port. It listens on a port of 127.0.0.1 that was free;
// Shut ends it.
func Start(ctx context.Context, server string, c clock.Clock) (*Proxy, error) {
	p := &Proxy{server: server, addr: "127.0.0.1:0", clock: c, links: map[*link]struct{}{}}
	for way := range p.faults {
		p.faults[way] = &setting{over: make(chan struct{})}
	}
	return p, p.Open(ctx)
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.addr }

// Shut refuses connections, and closes those that there are; Open ends that.
func (p *Proxy) Shut() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.end()
	}
	p.mu.Unlock()
	p.running.Wait()
}

// Open ends Shut. It fails when somebody else has taken the port meanwhile.
func (p *Proxy) Open(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("open a door: %w", err)
	}
	p.addr, p.listener = listener.Addr().String(), listener
	p.running.Go(func() { p.serve(listener) })
	return nil
}

// serve connects those who come, until the listener is closed.
func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.connect(listener, client) })
	}
}

// connect joins a client with the server, unless that refuses or the door was shut meanwhile.
func (p *Proxy) connect(listener net.Listener, client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, ends: [2]net.Conn{client, server}, over: make(chan struct{})}
	p.mu.Lock()
	if p.listener != listener {
		l.end()
	} else {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// Poison has a fault in one direction, in place of what was there before.
func (p *Proxy) Poison(way Direction, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.faults[way].over)
	p.faults[way] = &setting{Fault: f, over: make(chan struct{})}
}

// Heal removes the faults of both directions.
func (p *Proxy) Heal() {
	p.mu.Lock()
	silent := p.faults[Up].Silent || p.faults[Down].Silent
	for l := range p.links {
		if silent {
			l.end()
		}
	}
	p.mu.Unlock()
	p.Poison(Up, Fault{})
	p.Poison(Down, Fault{})
}

// fault is that which is in force.
func (p *Proxy) fault(way Direction) *setting {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults[way]
}
