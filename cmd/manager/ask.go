// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	askFor    = time.Minute // in all: replicas may be on their way
	askPause  = time.Second
	askAnswer = 5 * time.Second // for one answer
)

// ask gets a page until it is there, for a minute at most. It is what helm test does from a pod of
// its own: the image has no other program that could. A page that is for others is there, too.
func ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	pause := time.NewTicker(askPause)
	defer pause.Stop()
	for {
		err := askOnce(ctx, url)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-pause.C:
		}
	}
}

// asking verifies no certificate: it sends nothing, and reads nothing of what it gets.
var asking = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}} //nolint:gosec // see above

func askOnce(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, askAnswer)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("address to ask: %w", err)
	}
	resp, err := asking.Do(req)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if code := resp.StatusCode; code != http.StatusOK && code != http.StatusUnauthorized && code != http.StatusForbidden {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}
