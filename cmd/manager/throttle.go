// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
)

// creationsAtOnce has the refusal of a run come back at once, though it says when to try again, as
// the webhook's of a tenant at its limit does. The client would wait for that, up to ten times, in
// the middle of a pass; whoever creates runs plans for the next try. The delay is in the body, too.
type creationsAtOnce struct{ next http.RoundTripper }

func newCreationsAtOnce(next http.RoundTripper) http.RoundTripper { return creationsAtOnce{next} }

func (c creationsAtOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/workflowruns") {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper is for whoever looks for the transport of a connection.
func (c creationsAtOnce) WrappedRoundTripper() http.RoundTripper { return c.next }
