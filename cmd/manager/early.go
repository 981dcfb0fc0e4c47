package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// earlyHeaderTimeout bounds how long a probe may take to send its request.
const earlyHeaderTimeout = 5 * time.Second

// earlyProbes answers livez and readyz while the operator waits for the API server: alive, and not
// ready because of it. Without it an outage of the API server at start would look like a hung
// operator, and the kubelet would kill it again and again.
type earlyProbes struct {
	server *http.Server
	done   chan struct{}

	mu    sync.Mutex
	cause error
}

// serveEarlyProbes listens at addr; "0" switches probes off.
func serveEarlyProbes(ctx context.Context, addr string) (*earlyProbes, error) {
	e := &earlyProbes{done: make(chan struct{}), cause: errors.New("not reached yet")}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", e.readyz)
	e.server = &http.Server{Handler: mux, ReadHeaderTimeout: earlyHeaderTimeout}
	if addr == "0" {
		close(e.done)
		return e, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	go func() {
		defer close(e.done)
		_ = e.server.Serve(l) // ends with stop
	}()
	return e, nil
}

func (e *earlyProbes) readyz(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	http.Error(w, fmt.Sprintf("[-]apiserver failed: %s", e.cause), http.StatusInternalServerError)
}

func (e *earlyProbes) failed(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cause = err
}

// stop frees the address for the manager.
func (e *earlyProbes) stop() {
	_ = e.server.Close() // probes under way are asked again
	<-e.done
}
