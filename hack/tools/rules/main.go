// SPDX-License-Identifier: Apache-2.0

// Command test-rules runs unit tests of alerts on Prometheus' own query engine:
//
//	test-rules RULES.yaml TESTS.yaml
//	test-rules -dashboard DASHBOARD.json [-scrapes FOLDER -picture FILE.svg]
//
// The second form looks at Grafana's dashboard instead, and draws what its panels show of scrapes
// that test/bench -record has made.
//
// RULES is a PrometheusRule, or a file of rule groups. TESTS is in the format of `promtool test
// rules`, of which this knows interval, evaluation_interval, input_series and alert_rule_test; so
// promtool runs them, too. The program stands in for promtool because that takes twice as long to
// compile: it comes with the service discovery of every cloud (docs/adr/0021-packaging.md).
//
// Each alert must be seen firing in some test and quiet in some other; a rule without tests
// is an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

var (
	errUsage  = errors.New("usage: test-rules RULES.yaml TESTS.yaml")
	errFailed = errors.New("alerts are not as expected")
)

// ruleFile is a PrometheusRule or a plain file of groups.
type ruleFile struct {
	Spec   rulefmt.RuleGroups  `yaml:"spec"`
	Groups []rulefmt.RuleGroup `yaml:"groups"`
}

// testFile is what is known of promtool's format.
type testFile struct {
	RuleFiles          []string       `yaml:"rule_files"` // for promtool
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []group        `yaml:"tests"`
}

// group is one story: series as they go on, and which alerts fire when.
type group struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"` // between the values of input series
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Alerts []expectation `yaml:"alert_rule_test"`
}

// expectation says which alerts of one name fire at a time.
type expectation struct {
	At     model.Duration `yaml:"eval_time"`
	Name   string         `yaml:"alertname"`
	Alerts []firing       `yaml:"exp_alerts"`
}

// firing is an alert that fires, as it is sent.
type firing struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

func main() {
	dashboard := flag.String("dashboard", "", "Look at this dashboard, and at no alerts.")
	scrapes := flag.String("scrapes", "", "Folder of scrapes that the dashboard is drawn of.")
	picture := flag.String("picture", "", "File to draw it to.")
	flag.Parse()
	err := error(nil)
	switch ctx := context.Background(); {
	case *dashboard == "":
		err = run(ctx, flag.Args())
	case *scrapes == "":
		err = checkDashboard(*dashboard)
	default:
		err = drawDashboard(ctx, *dashboard, *scrapes, *picture)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test-rules:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, paths []string) error {
	if len(paths) != 2 {
		return errUsage
	}
	var rules ruleFile
	var tests testFile
	if err := errors.Join(read(paths[0], &rules), read(paths[1], &tests)); err != nil {
		return err
	}
	book, err := newRulebook(append(rules.Spec.Groups, rules.Groups...))
	if err != nil {
		return err
	}
	seen := map[string]map[bool]bool{} // by alert: was it seen firing, was it seen quiet
	failed := 0
	for _, g := range tests.Tests {
		for _, problem := range book.test(ctx, g, time.Duration(tests.EvaluationInterval), seen) {
			failed++
			fmt.Fprintf(os.Stderr, "%s: %v\n", g.Name, problem)
		}
	}
	for _, name := range book.names() {
		for _, fires := range []bool{true, false} {
			if !seen[name][fires] {
				failed++
				fmt.Fprintf(os.Stderr, "%s: no test in which it fires: %t\n", name, fires)
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%w: %d problems", errFailed, failed)
	}
	fmt.Printf("%d alerts, %d tests\n", len(book.names()), len(tests.Tests))
	return nil
}

func read(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
