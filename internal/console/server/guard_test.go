// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: known that takes each host makes this fail. Paths without the token lead nowhere, too.
func TestWhoHasNotTheAddressGetsNothing(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "secret-run", in(v1alpha1.RunRunning, ""))
	c := local(t, apiServer.Config, ns)
	c.get("/runs")
	for name, change := range map[string]func(*http.Request){
		"no token":       func(r *http.Request) { r.URL.Path = "/runs" },
		"another token":  func(r *http.Request) { r.URL.Path = "/" + strings.Repeat("A", 26) + "/runs" },
		"another host":   func(r *http.Request) { r.Host = "evil.example" },
		"another port":   func(r *http.Request) { r.Host = "127.0.0.1:1" },
		"a rebound name": func(r *http.Request) { r.Host = "evil.example:" + r.URL.Port() },
	} {
		t.Run(name, func(t *testing.T) {
			status, text, _ := c.do(http.MethodGet, "/runs", "", change)
			if status < http.StatusBadRequest {
				t.Errorf("%d", status)
			}
			lacks(t, text, "secret-run")
		})
	}
}

// mutation: 'unsafe-inline' in the policy makes this fail.
func TestPagesSayWhatBrowsersMayDo(t *testing.T) {
	t.Parallel()
	c := local(t, apiServer.Config, namespace(t))
	for _, path := range []string{"/runs", "/nothing", "/assets/style.css", "/assets/live.js"} {
		_, _, h := c.do(http.MethodGet, path, "")
		p := h.Get("Content-Security-Policy")
		if !strings.Contains(p, "default-src 'none'") || !strings.Contains(p, "frame-ancestors 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("%s: %q", path, p)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
	}
}
