// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
)

// errWrite is returned for a request that would change something. It is a defect of this program.
var errWrite = errors.New("check changes nothing, and this would")

// guarded is a config whose requests change nothing.
func guarded(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst = -1, -1 // some hundred requests at most; the API server has its own limits
	c.WarningHandler = rest.NoWarnings{}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
	return c
}

type readOnly struct{ next http.RoundTripper }

// RoundTrip refuses what would change something. The first answer to a dry run stands.
func (r readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if !harmless(req) {
		return nil, fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, errWrite)
	}
	answer, err := r.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("dryRun") == "All" {
		answer.Header.Del("Retry-After") // else client-go asks again and again, for longer than check has
	}
	return answer, err
}

// harmless says whether a request reads, is a dry run, or asks about rights: an access review is
// created and not stored.
func harmless(req *http.Request) bool {
	switch {
	case req.Method == http.MethodGet:
		return true
	case req.URL.Query().Get("dryRun") == "All":
		return req.Method == http.MethodPost || req.Method == http.MethodPut
	}
	return req.Method == http.MethodPost && strings.HasPrefix(req.URL.Path, "/apis/authorization.k8s.io/v1/")
}
