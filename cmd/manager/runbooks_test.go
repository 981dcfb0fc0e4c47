// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	comment = regexp.MustCompile(`#.*`)
	query   = regexp.MustCompile("(?s)```promql\n(.*?)```")
)

// dense is a query without comments and spaces.
func dense(q string) string {
	return strings.Join(strings.Fields(comment.ReplaceAllString(q, "")), "")
}

// Whoever follows a runbook sees first what the alert saw, or a part of that.
//
// mutation: a runbook whose first query is another one than its alert's.
func TestTheFirstQueryOfARunbookIsThatOfItsAlert(t *testing.T) {
	text, err := os.ReadFile("../../config/monitoring/prometheus_rule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Spec struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, group := range rules.Spec.Groups {
		for _, r := range group.Rules {
			if r.Alert == "" {
				continue
			}
			page, err := os.ReadFile("../../docs/runbooks/" + r.Alert + ".md")
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			first := query.FindSubmatch(page)
			if first == nil {
				continue
			}
			compared++
			if !strings.Contains(dense(r.Expr), dense(string(first[1]))) {
				t.Errorf("%s: its runbook asks %s", r.Alert, first[1])
			}
		}
	}
	if compared < 30 {
		t.Errorf("%d are compared", compared)
	}
}
