// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

func sample() *report {
	r := &report{Suite: "sample", About: "something to look at", Took: "1s"}
	r.in("costs", "few").add("writes", "", 2).atMost(2)
	r.in("costs", "many").add("writes", "", 7).atMost(6)
	r.in("costs", "many").add("took", "ms", 12.345)
	r.in("ratios", "few").add("steps/s / C", "", 0.5).atLeast(0.5)
	r.note("told to people")
	r.plot(barPlot{title: "Costs", y: "writes", table: "costs", names: []string{"writes"}}.of(r, "costs"))
	r.plot(linePlot{title: "Line", series: []series{{name: "a", points: plotter.XYs{{X: 0, Y: 1}, {X: 1, Y: 2}}}, {name: "nothing"}}}.of("line"))
	return r
}

// mutation: comparing the wrong way round makes this fail.
func TestAReportSaysWhichGoalsAreMissed(t *testing.T) {
	r := sample()
	if got := r.missed(); got != 1 {
		t.Errorf("%d goals are missed; want 1", got)
	}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{"few: costs", "<= 2", "MISSED", ">= 0.50", "12.3", "note: told to people"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

// mutation: leaving out any of the files makes this fail.
func TestAReportIsStoredAsJSONAsAPageAndWithItsPlots(t *testing.T) {
	dir := t.TempDir()
	if err := sample().write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sample-costs.svg", "sample-line.svg"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), "<svg") {
			t.Errorf("%s is no picture: %v", name, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "sample.md"))
	if err != nil || !strings.Contains(string(page), "![costs](sample-costs.svg)") {
		t.Errorf("the page does not show its plot: %v\n%s", err, page)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sample.json"))
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Figures) != 4 || *back.Figures[1].AtMost != 6 {
		t.Errorf("figures in JSON: %+v", back.Figures)
	}
}

func TestSuitesAreChosenByName(t *testing.T) {
	all := suites()
	if got, err := choose(all, nil); err != nil || len(got) != len(all) {
		t.Errorf("no names: %d suites, %v; want all", len(got), err)
	}
	if got, err := choose(all, []string{"scale", "latency"}); err != nil || got[0].name != "scale" || got[1].name != "latency" {
		t.Errorf("two names: %v, %v", namesOf(got), err)
	}
	if _, err := choose(all, []string{"sacle"}); err == nil || !strings.Contains(err.Error(), "throughput") {
		t.Errorf("a wrong name: %v; want an error that lists the suites", err)
	}
}

// What a Go benchmark prints is read by unit, and other lines are not.
func TestMetricsOfAGoBenchmarkAreRead(t *testing.T) {
	found := benchmarkMetrics("goos: linux\nBenchmarkDecision-2 \t 20\t 0 ns/op\t 4.53 atomic-p50-ms\t 87.9 fixed/atomic-p95\nPASS\n")
	if found["atomic-p50-ms"] != 4.53 || found["fixed/atomic-p95"] != 87.9 || len(found) != 3 {
		t.Errorf("found %v", found)
	}
}
