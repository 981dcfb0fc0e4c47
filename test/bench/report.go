// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// report is what a suite found out. Its JSON is what docs/benchmarks keeps.
type report struct {
	Suite       string    `json:"suite"`
	About       string    `json:"about"`
	Short       bool      `json:"short,omitempty"` // small sizes: the figures mean nothing
	Machine     machine   `json:"machine"`
	LoadAtStart float64   `json:"loadAtStart"` // load average of one minute
	Took        string    `json:"took"`
	Others      float64   `json:"others"`         // cores that other programs used meanwhile
	Busy        bool      `json:"busy,omitempty"` // too many for the figures to mean much
	Figures     []*figure `json:"figures"`
	Notes       []string  `json:"notes,omitempty"`

	plots []plot
}

// figure is one measured value. Table, Case and Name place it in the tables that people read.
type figure struct {
	Table string  `json:"table"`
	Case  string  `json:"case"`
	Name  string  `json:"name"`
	Unit  string  `json:"unit,omitempty"`
	Value float64 `json:"value"`
	// AtMost and AtLeast are the goal, if there is one.
	AtMost  *float64 `json:"atMost,omitempty"`
	AtLeast *float64 `json:"atLeast,omitempty"`
}

// section adds figures of one case to a table.
type section struct {
	report *report
	table  string
	name   string
}

func (r *report) in(table, name string) section { return section{r, table, name} }

func (s section) add(name, unit string, value float64) *figure {
	f := &figure{Table: s.table, Case: s.name, Name: name, Unit: unit, Value: value}
	s.report.Figures = append(s.report.Figures, f)
	return f
}

func (f *figure) atMost(goal float64)  { f.AtMost = &goal }
func (f *figure) atLeast(goal float64) { f.AtLeast = &goal }

// note adds a sentence for people.
func (r *report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

func (r *report) plot(p plot) { r.plots = append(r.plots, p) }

func (f *figure) goal() string {
	switch {
	case f.AtMost != nil:
		return "<= " + number(*f.AtMost)
	case f.AtLeast != nil:
		return ">= " + number(*f.AtLeast)
	default:
		return ""
	}
}

func (f *figure) met() bool {
	return (f.AtMost == nil || f.Value <= *f.AtMost) && (f.AtLeast == nil || f.Value >= *f.AtLeast)
}

func (r *report) missed() int {
	n := 0
	for _, f := range r.Figures {
		if !f.met() {
			n++
		}
	}
	return n
}

// print writes the tables, then the goals with what was measured beside them.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n== %s (%s, load %.2f at its start)\n", r.Suite, r.Took, r.LoadAtStart)
	var tables []string
	for _, f := range r.Figures {
		if !slices.Contains(tables, f.Table) {
			tables = append(tables, f.Table)
		}
	}
	for _, t := range tables {
		r.printTable(w, t)
	}
	r.printGoals(w)
	for _, n := range r.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	if r.Busy {
		fmt.Fprintf(w, "note: MEASURED ON A BUSY MACHINE (others used %.2f cores before, %.2f meanwhile): not to be published\n", r.Machine.Others, r.Others)
	}
	if r.Short {
		fmt.Fprintln(w, "note: small sizes (-short): the figures mean nothing")
	}
}

func (r *report) printTable(w io.Writer, table string) {
	var cases, names []string
	cells := map[[2]string]string{}
	for _, f := range r.Figures {
		if f.Table != table {
			continue
		}
		head := f.Name
		if f.Unit != "" {
			head += " [" + f.Unit + "]"
		}
		if !slices.Contains(cases, f.Case) {
			cases = append(cases, f.Case)
		}
		if !slices.Contains(names, head) {
			names = append(names, head)
		}
		cells[[2]string{f.Case, head}] = number(f.Value)
	}
	fmt.Fprintln(w)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(out, "%s\t%s\t\n", table, strings.Join(names, "\t"))
	for _, c := range cases {
		line := []string{c}
		for _, n := range names {
			line = append(line, cmp.Or(cells[[2]string{c, n}], "-"))
		}
		fmt.Fprintf(out, "%s\t\n", strings.Join(line, "\t"))
	}
	_ = out.Flush() // to the terminal
}

func (r *report) printGoals(w io.Writer) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	begun := false
	for _, f := range r.Figures {
		if f.goal() == "" {
			continue
		}
		if !begun {
			fmt.Fprintf(out, "\nwhere\tfigure\tgoal\tmeasured\t\n")
			begun = true
		}
		verdict := "met"
		if !f.met() {
			verdict = "MISSED"
		}
		fmt.Fprintf(out, "%s: %s\t%s\t%s\t%s\t%s\n", f.Case, f.Table, f.Name, f.goal(), number(f.Value), verdict)
	}
	_ = out.Flush() // to the terminal
}

// number shows three or four digits that mean something.
func number(v float64) string {
	abs := max(v, -v)
	switch {
	case v == float64(int64(v)) && abs < 1e9:
		return strconv.FormatInt(int64(v), 10)
	case abs >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}
