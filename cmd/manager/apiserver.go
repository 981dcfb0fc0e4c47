// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
)

// apiServerAnswers is a look at the API server. Any answer but that it is ill counts: what it
// permits is no matter of readyz.
func apiServerAnswers(config *rest.Config) (func(context.Context) error, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client for readyz: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("address of the API server: %w", err)
	}
	livez := base.JoinPath("livez").String()
	return func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, livez, http.NoBody)
		if err != nil {
			return fmt.Errorf("ask the API server: %w", err)
		}
		resp, err := c.Do(r)
		if err != nil {
			return fmt.Errorf("ask the API server: %w", err)
		}
		if err := resp.Body.Close(); err != nil {
			return fmt.Errorf("ask the API server: %w", err)
		}
		if resp.StatusCode >= http.StatusInternalServerError {
			return fmt.Errorf("livez of the API server says %s", resp.Status)
		}
		return nil
	}, nil
}
