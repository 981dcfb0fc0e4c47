// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	// onOne has two rounds, one with a pair and another strike, and lines that are no strikes.
	onOne = `=== RUN   TestFaults
    faults_test.go:83: PART=one SEEDS=7: 8 redis hangs + watches cut at 12 of 300 results; longest stall 1.2s; took 20.3s; counted: job looked up 1, lease lost 2
    faults_test.go:83: PART=one SEEDS=7: watches cut at 90 of 300 results; longest stall 1s; took 5s; counted: lease lost 1
    faults_test.go:83: PART=one SEEDS=8: 10 redis flushed at 30 of 300 results; longest stall 900ms; took 15s; counted: 
`
	// onCluster has a violation.
	onCluster = `    faults_test.go:83: PART=cluster SEEDS=9: 22 nats leaders stepped down + watches cut at 3 of 120 results; longest stall 41s; took 1m0s; counted: lease lost 1
    faults_test.go:86: PART=cluster SEEDS=9, 22 nats leaders stepped down + watches cut: I5: no effect for 41s after healing, more than 35s
`
	tables = `| part | plays | time | rounds | strikes | results | violations | longest stall | last seeds |
|---|---|---|---|---|---|---|---|---|
| cluster | 1 | 1m0s | 1 | 1 | 120 | 1 | 41.0 s | 1 from 9 at c2 |
| one | 2 | 1m21s | 4 | 6 | 1200 | 0 | 1.2 s | 2 from 7 at c2 |

| fault, by itself or in a pair | times | violations | longest stall |
|---|---|---|---|
| 8 redis hangs | 2 | 0 | 1.2 s |
| 10 redis flushed | 2 | 0 | 0.9 s |
| 22 nats leaders stepped down | 1 | 1 | 41.0 s |
| watches cut | 5 | 1 | 41.0 s |

| counted by the operators | cluster | one |
|---|---|---|
| job looked up | 0 | 2 |
| lease lost | 1 | 6 |
`
)

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// mutations: violations that count for the first fault of a pair only; seeds of later rounds; a
// round for each strike; totals that are not read, not written, or forget what was counted.
func TestPlaysAreAddedUpAndToTotals(t *testing.T) {
	one, cluster := file(t, "one.txt", onOne), file(t, "cluster.txt", onCluster)
	totals := filepath.Join(t.TempDir(), "totals.json")
	var out strings.Builder
	if err := run(options{totals: totals, commit: "c1"}, []string{one}, &out); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := run(options{totals: totals, commit: "c2"}, []string{cluster, one}, &out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(tables, out.String()); diff != "" {
		t.Error(diff)
	}
	out.Reset()
	if err := run(options{totals: totals}, nil, &out); err != nil || out.String() != tables {
		t.Errorf("what was written: %v\n%s", err, cmp.Diff(tables, out.String()))
	}
}

// mutation: a check that writes makes this fail, and one that is content with any page.
func TestAPageHasTheTablesOfTheTotals(t *testing.T) {
	totals := filepath.Join(t.TempDir(), "totals.json")
	var out strings.Builder
	if err := run(options{totals: totals}, []string{file(t, "one.txt", onOne)}, &out); err != nil {
		t.Fatal(err)
	}
	old := "# Faults\n\n" + begin + "old\n" + end + "\nMore.\n"
	page := file(t, "faults.md", old)
	if err := run(options{totals: totals, page: page, check: true}, nil, &out); err == nil {
		t.Error("a page with other tables is taken")
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != old {
		t.Errorf("a check wrote %q, %v", text, err)
	}
	if err := run(options{totals: totals, page: page}, nil, &out); err != nil {
		t.Fatal(err)
	}
	if err := run(options{totals: totals, page: page, check: true}, nil, &out); err != nil {
		t.Error(err)
	}
	want := "# Faults\n\n" + begin + "\n" + out.String() + "\n" + end + "\nMore.\n"
	if text, err := os.ReadFile(page); err != nil || string(text) != want {
		t.Errorf("the page is %q, %v", text, err)
	}
}

// mutation: violations that count once a round has ended only.
func TestAFirstRoundThatDoesNotEndCounts(t *testing.T) {
	var out strings.Builder
	stuck := file(t, "one.txt", "    faults_test.go:75: PART=one SEEDS=7, etcd is full + redis hangs: the round did not end\n")
	if err := run(options{}, []string{stuck}, &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"| one | 1 | 0s | 0 | 0 | 0 | 1 | 0.0 s |", "| etcd is full | 0 | 1 | 0.0 s |", "| redis hangs | 0 | 1 | 0.0 s |"} {
		if !strings.Contains(out.String(), row) {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

func TestWhatIsNotThereOrWrongIsAnError(t *testing.T) {
	totals := filepath.Join(t.TempDir(), "totals.json")
	for name, run := range map[string]func(*strings.Builder) error{
		"nothing was played": func(out *strings.Builder) error { return run(options{}, nil, out) },
		"no such play": func(out *strings.Builder) error {
			return run(options{totals: totals}, []string{filepath.Join(t.TempDir(), "none")}, out)
		},
		"totals are no JSON": func(out *strings.Builder) error {
			return run(options{totals: file(t, "totals.json", "{")}, []string{file(t, "one.txt", onOne)}, out)
		},
		"a page without markers": func(out *strings.Builder) error {
			return run(options{page: file(t, "page.md", "# Faults\n")}, []string{file(t, "one.txt", onOne)}, out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := run(&out); err == nil {
				t.Errorf("no error; printed %q", out.String())
			}
		})
	}
}
