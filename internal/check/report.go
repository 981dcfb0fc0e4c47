// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// Table writes a line for each finding, and below it what to do.
func Table(w io.Writer, findings []Finding) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(t, "VERDICT\tCODE\tCATEGORY\tMESSAGE\n")
	for _, f := range findings {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", f.Verdict, f.Code, f.Category, f.Message)
		if f.Verdict != OK && f.Hint != "" {
			fmt.Fprintf(t, "\t\t\t-> %s\n", f.Hint)
		}
	}
	return t.Flush()
}

// JSON writes the outcome and all findings.
func JSON(w io.Writer, findings []Finding) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(struct {
		Outcome  Verdict   `json:"outcome"`
		Findings []Finding `json:"findings"`
	}{Outcome(findings), findings})
}

// Prometheus writes a gauge for each code, for the textfile collector: 0 OK, 1 Warning, 2 Failed,
// 3 Unknown. Of several findings of a code it is the worst. Messages are no labels, so the number
// of series is bounded.
func Prometheus(w io.Writer, findings []Finding) error {
	value := map[Verdict]int{OK: 0, Warning: 1, Failed: 2, Unknown: 3}
	if _, err := fmt.Fprint(w, "# HELP syncopate_check_verdict What kubectl syncopate check found: 0 OK, 1 Warning, 2 Failed, 3 Unknown.\n# TYPE syncopate_check_verdict gauge\n"); err != nil {
		return err
	}
	byCode := map[Code][]Finding{}
	for _, f := range findings {
		byCode[f.Code] = append(byCode[f.Code], f)
	}
	for _, c := range Codes() {
		if of := byCode[c]; len(of) > 0 {
			if _, err := fmt.Fprintf(w, "syncopate_check_verdict{code=%q,category=%q} %d\n", c, c.Category(), value[Worst(of)]); err != nil {
				return err
			}
		}
	}
	return nil
}
