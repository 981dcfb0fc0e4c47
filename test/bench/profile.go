// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// profileTime is how many seconds of CPU time are looked at.
const profileTime = 10

// profileArgs are the flags of an operator that is to be profiled, if one is; the address is the
// same for all, one at a time.
func (w *world) profileArgs(args ...string) []string {
	if w.options.profile == "" {
		return args
	}
	if w.pprof == "" {
		w.pprof = freeAddress()
	}
	return append(args, "--pprof-bind-address", w.pprof)
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:6060"
	}
	defer func() { _ = l.Close() }() // it is free again either way
	return l.Addr().String()
}

// profile begins to look at the operator's CPU. The function that it returns is called at the end
// of the load: it writes that, and the heap of the moment.
func (w *world) profile(ctx context.Context, load string) func() error {
	if w.options.profile == "" {
		return func() error { return nil }
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	name := strings.NewReplacer(" ", "-", ",", "").Replace(load)
	go func() {
		done <- w.fetch(looking, fmt.Sprintf("profile?seconds=%d", profileSeconds(w)), name+".cpu.pprof")
	}()
	return func() error {
		defer stop()
		heap := w.fetch(ctx, "heap?gc=1", name+".heap.pprof")
		return errors.Join(<-done, heap)
	}
}

func profileSeconds(w *world) int { return w.size(profileTime, 3) }

func (w *world) fetch(ctx context.Context, what, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*profileTime*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.pprof+"/debug/pprof/"+what, http.NoBody)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := os.MkdirAll(w.options.profile, 0o750); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	out, err := os.Create(filepath.Join(w.options.profile, file))
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	_, err = io.Copy(out, resp.Body)
	fmt.Fprintln(os.Stderr, "profile:", out.Name())
	return errors.Join(err, out.Close())
}
