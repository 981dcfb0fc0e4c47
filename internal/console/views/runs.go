// SPDX-License-Identifier: Apache-2.0

package views

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

const (
	pageSize = 50
	maxQuery = 200
)

// phases are those of runs, in the order in which they are offered.
var phases = []string{"Pending", "Queued", "Running", "Suspended", "Succeeded", "Failed", "Cancelled", "TimedOut"}

// RunsQuery is what a list is asked for.
type RunsQuery struct {
	Namespace string // "": all
	Phase     string // "": all
	Text      string // in name, tenant, class, reason or message; "": any
	Page      int    // from 1
}

// ParseRunsQuery reads the query of an address. What makes no sense is left out.
func ParseRunsQuery(q url.Values) RunsQuery {
	asked := RunsQuery{Namespace: shortText(q.Get("namespace")), Phase: q.Get("phase"), Text: strings.TrimSpace(q.Get("q")), Page: 1}
	if !slices.Contains(phases, asked.Phase) {
		asked.Phase = ""
	}
	if r := []rune(asked.Text); len(r) > maxQuery {
		asked.Text = string(r[:maxQuery])
	}
	if n, err := strconv.Atoi(q.Get("page")); err == nil && n > 1 {
		asked.Page = n
	}
	return asked
}

// Encode is the query as an address has it.
func (q RunsQuery) Encode() string {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("namespace", q.Namespace)
	set("phase", q.Phase)
	set("q", q.Text)
	if q.Page > 1 {
		set("page", strconv.Itoa(q.Page))
	}
	return v.Encode()
}

// Runs is the list of runs.
type Runs struct {
	Query      RunsQuery
	Refused    string // why there is no list; "": there is
	OnlyOne    string // the namespace, if the user may not list those of others
	Phases     []PhaseCount
	Rows       []RunRow
	Total      int // all runs of the namespace
	Matching   int
	First      int // the number of the first row
	Last       int
	Prev, Next string // queries; "": there is no such page
	More       bool   // there are runs that are not in the list
	Stale      string // why the list is not kept up to date; "": it is
}

// PhaseCount is how many runs have a phase.
type PhaseCount struct {
	Phase, Mark, Tone string
	Count             int
	Query             string // of an address, with its question mark
	Chosen            bool
}

// RunRow is a run in the list.
type RunRow struct {
	facts.Row
	Mark, Tone string
	Age        Moment
}

// RunsOf makes a page of the list.
func RunsOf(rows facts.Rows, q RunsQuery, now time.Time) Runs {
	out := Runs{Query: q, Total: len(rows.All), More: rows.More}
	if rows.Stale != nil {
		out.Stale = text(rows.Stale.Error())
	}
	counts := map[string]int{}
	var found []facts.Row
	for i := range rows.All {
		row := &rows.All[i]
		if !matches(row, strings.ToLower(q.Text)) {
			continue
		}
		counts[phaseOf(row)]++
		if q.Phase == "" || phaseOf(row) == q.Phase {
			found = append(found, *row)
		}
	}
	out.Matching = len(found)
	for _, p := range phases {
		to := RunsQuery{Namespace: q.Namespace, Phase: p, Text: q.Text}
		if p == q.Phase {
			to.Phase = ""
		}
		out.Phases = append(out.Phases, PhaseCount{p, Mark(p), Tone(p), counts[p], "?" + to.Encode(), p == q.Phase})
	}
	out.page(found, now)
	return out
}

// page cuts the page that was asked for out of the rows; the last one, if there are fewer.
func (r *Runs) page(found []facts.Row, now time.Time) {
	last := max(1, (len(found)+pageSize-1)/pageSize)
	r.Query.Page = min(r.Query.Page, last)
	from := (r.Query.Page - 1) * pageSize
	to := min(from+pageSize, len(found))
	for _, row := range found[from:to] {
		row.Phase = phaseOf(&row)
		row.Message, row.Reason = text(row.Message), shortText(row.Reason)
		r.Rows = append(r.Rows, RunRow{row, Mark(row.Phase), Tone(row.Phase), moment(&row.Created, now)})
	}
	if len(found) > 0 {
		r.First, r.Last = from+1, to
	}
	q := r.Query
	if q.Page > 1 {
		q.Page--
		r.Prev = "?" + q.Encode()
		q.Page++
	}
	if q.Page < last {
		q.Page++
		r.Next = "?" + q.Encode()
	}
}

func phaseOf(r *facts.Row) string {
	if r.Phase == "" {
		return "Pending"
	}
	return r.Phase
}

func matches(r *facts.Row, want string) bool {
	if want == "" {
		return true
	}
	return slices.ContainsFunc([]string{r.Name, r.Tenant, r.Class, r.Policy, r.Reason, r.Message, r.Namespace}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), want)
	})
}
