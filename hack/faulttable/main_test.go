// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPlaysAreAddedUp has a play with a pair, one with a violation, and lines that are no rounds.
//
// mutations: violations that count for the first fault of a pair only, seeds of later rounds.
func TestPlaysAreAddedUp(t *testing.T) {
	dir := t.TempDir()
	plays := map[string]string{
		"one": `=== RUN   TestFaults
    faults_test.go:83: PART=one SEEDS=7: 8 redis hangs + watches cut at 12 results; longest stall 1.2s; round 20.3s; counted: job looked up 1, lease lost 2
    faults_test.go:83: PART=one SEEDS=8: 10 redis flushed at 30 results; longest stall 900ms; round 15s; counted: 
`,
		"two": `    faults_test.go:83: PART=cluster SEEDS=9: watches cut at 3 results; longest stall 41s; round 60s; counted: lease lost 1
    faults_test.go:86: PART=cluster SEEDS=9, watches cut: I5: no effect for 41s after healing, more than 35s
`,
	}
	var paths []string
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(plays[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	var out strings.Builder
	if err := run(paths, &out); err != nil {
		t.Fatal(err)
	}
	want := `| part | rounds | results | violations | longest stall | first seeds |
|---|---|---|---|---|---|
| cluster | 1 | 120 | 1 | 41.0 s | 9 |
| one | 2 | 240 | 0 | 1.2 s | 7 |

| fault, by itself or in a pair | rounds | violations | longest stall |
|---|---|---|---|
| 8 redis hangs | 1 | 0 | 1.2 s |
| 10 redis flushed | 1 | 0 | 0.9 s |
| watches cut | 2 | 1 | 41.0 s |

| counted by the operators | cluster | one |
|---|---|---|
| job looked up | 0 | 1 |
| lease lost | 1 | 2 |
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	if err := run(paths[:0], &out); err == nil {
		t.Error("nothing was played, and that is no error")
	}
}
