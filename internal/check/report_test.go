// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var few = []Finding{
	{Code: KubernetesVersion, Category: "versions", Verdict: OK, Message: "fine", Hint: "never shown"},
	{Code: NATSDrift, Category: "nats", Verdict: Failed, Message: "drifts", Hint: "mend it"},
	{Code: NATSDrift, Category: "nats", Verdict: OK, Message: "and another"},
}

func TestTable(t *testing.T) {
	var b strings.Builder
	if err := Table(&b, few); err != nil {
		t.Fatal(err)
	}
	want := `VERDICT   CODE     CATEGORY   MESSAGE
OK        SYN101   versions   fine
Failed    SYN122   nats       drifts
                              -> mend it
OK        SYN122   nats       and another
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
}

// mutation: the last finding of a code instead of its worst makes this fail.
func TestPrometheus(t *testing.T) {
	var b strings.Builder
	if err := Prometheus(&b, few); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# TYPE syncopate_check_verdict gauge\n", `syncopate_check_verdict{code="SYN101",category="versions"} 0` + "\n",
		`syncopate_check_verdict{code="SYN122",category="nats"} 2` + "\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if n := strings.Count(b.String(), "\n"); n != 4 {
		t.Errorf("%d lines", n)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	if err := JSON(&b, few); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Outcome  Verdict
		Findings []Finding
	}
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got.Outcome != Failed || !slices.Equal(got.Findings, few) {
		t.Errorf("%v: %+v", err, got)
	}
}

func TestEachCodeHasASection(t *testing.T) {
	page, err := os.ReadFile("../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []Code
	for _, part := range strings.Split(string(page), "\n### ")[1:] {
		title := regexp.MustCompile(`^SYN\d+`).FindString(part)
		if title == "" {
			t.Errorf("section %.30q has no code", part)
			continue
		}
		sections = append(sections, Code(title))
		for _, what := range []string{"Means:", "Shows:", "Do:"} {
			if !strings.Contains(part, what) {
				t.Errorf("section %s has no %q", title, what)
			}
		}
	}
	if codes := Codes(); !slices.Equal(sections, codes) {
		t.Errorf("sections %v\ncodes    %v", sections, codes)
	}
}
