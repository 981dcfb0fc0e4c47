// SPDX-License-Identifier: Apache-2.0

// Package benchmarks has the published figures of docs/benchmarks, for programs that show theirs
// beside them.
package benchmarks

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

//go:embed latency.json
var latency []byte

// Latency is a figure of the suite latency, in milliseconds.
func Latency(table, of, name string) (float64, error) {
	var file struct {
		Figures []struct {
			Table, Case, Name string
			Value             float64
		}
	}
	if err := json.Unmarshal(latency, &file); err != nil {
		return 0, fmt.Errorf("figures of latency: %w", err)
	}
	for _, f := range file.Figures {
		if f.Table == table && f.Case == of && f.Name == name {
			return f.Value, nil
		}
	}
	return 0, fmt.Errorf("no figure %q of %q in %q of the suite latency", name, of, table)
}
