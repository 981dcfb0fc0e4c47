// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// probeHeaderTimeout bounds how long a probe may take to send its request.
const probeHeaderTimeout = 5 * time.Second

// servingQuery is what the kubelet adds to readyz.
const servingQuery = "serving"

// probes answers livez and readyz from the first moment of the process to its last, also while it
// waits for the API server: alive, and not ready because of it. Else an outage of the API server at
// start would look like a hung operator, and the kubelet would kill it again and again.
//
// readyz says of each part whether it is ready and, if not, why; so does the log, at each change.
// The kubelet asks whether callers may be sent here, by readyz?serving: that does not fail for a
// dependency that was reached once. Just while one is away the webhook has to be reached, to say
// so. An older version, which a newer manifest may start, takes it for readyz.
type probes struct {
	server *http.Server
	done   chan struct{}
	log    logr.Logger

	mu      sync.Mutex
	checks  []check
	failing []string // the parts of which the log said last that they are not ready
	told    bool     // the log has said anything
}

// check says whether a part is ready. It returns within a second or so.
type check struct {
	name    string
	run     func(*http.Request) error
	reached func() bool // of a dependency: it was there once; nil: a part of this process
}

// serveProbes listens at addr; "0" switches probes off.
func serveProbes(ctx context.Context, addr string, log logr.Logger) (*probes, error) {
	p := &probes{done: make(chan struct{}), log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", p.readyz)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: probeHeaderTimeout}
	if addr == "0" {
		close(p.done)
		return p, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // ends with stop
	}()
	return p, nil
}

// add adds a part of this process, or replaces the part of that name.
func (p *probes) add(name string, run func(*http.Request) error) { p.put(check{name: name, run: run}) }

func (p *probes) put(added check) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.checks, func(c check) bool { return c.name == added.name })
	if i < 0 {
		p.checks = append(p.checks, added)
		return
	}
	p.checks[i] = added
}

// apiServer notes why the API server is not there; nil: it is.
func (p *probes) apiServer(cause error) {
	p.add("apiserver", func(*http.Request) error { return cause })
}

// readyz fails while a part is not ready. Asked for serving it forgives a dependency
// that was reached.
func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	checks := slices.Clone(p.checks)
	p.mu.Unlock()
	forgives, code := r.URL.Query().Has(servingQuery), http.StatusOK
	var lines, failing []string
	var causes []error
	for _, c := range checks {
		err := c.run(r)
		if err == nil {
			lines = append(lines, fmt.Sprintf("[+]%s ok", c.name))
			continue
		}
		lines, failing = append(lines, fmt.Sprintf("[-]%s failed: %s", c.name, err)), append(failing, c.name)
		causes = append(causes, fmt.Errorf("%s: %w", c.name, err))
		if !forgives || c.reached == nil || !c.reached() {
			code = http.StatusServiceUnavailable
		}
	}
	p.tell(failing, errors.Join(causes...))
	if code != http.StatusOK {
		http.Error(w, strings.Join(lines, "\n"), code)
		return
	}
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n"))
}

// tell logs a change.
func (p *probes) tell(failing []string, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told && slices.Equal(failing, p.failing) {
		return
	}
	p.told, p.failing = true, failing
	if cause != nil {
		p.log.Info("Not ready", "parts", failing, "cause", strings.ReplaceAll(cause.Error(), "\n", "; "))
		return
	}
	p.log.Info("Ready")
}

// stop ends the answers.
func (p *probes) stop() {
	_ = p.server.Close() // probes under way are asked again
	<-p.done
}
