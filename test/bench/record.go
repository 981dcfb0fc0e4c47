// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// recordEvery is the time between two scrapes that are kept; hack/tools/rules takes it to be so.
const recordEvery = 2 * time.Second

// record keeps what an operator exports, every two seconds, in files MILLISECONDS-NAME.txt of the
// folder that was asked for, until ctx ends or the operator does.
func (w *world) record(ctx context.Context, m *devenv.Manager, name string) {
	if w.options.record == "" {
		return
	}
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	for {
		if err := w.recordOnce(ctx, m, name); err != nil {
			return // it is gone
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *world) recordOnce(ctx context.Context, m *devenv.Manager, name string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.options.record, 0o750); err != nil {
		return err
	}
	file := filepath.Join(w.options.record, fmt.Sprintf("%d-%s.txt", time.Now().UnixMilli(), name))
	return os.WriteFile(file, text, 0o600)
}
