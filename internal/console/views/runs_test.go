// SPDX-License-Identifier: Apache-2.0

package views_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/views"
)

var now = time.Date(2026, 11, 20, 10, 10, 0, 0, time.UTC)

func rows(n int) (all []facts.Row) {
	for i := range n {
		phase := "Succeeded"
		if i%10 == 0 {
			phase = "Failed"
		}
		all = append(all, facts.Row{Namespace: "team-a", Name: fmt.Sprintf("run-%d", i), Phase: phase, Tenant: "acme", Created: now.Add(-time.Minute)})
	}
	return all
}

// mutation: page that does not clip the number of the page makes this fail.
func TestRunsAreFilteredCountedAndPaged(t *testing.T) {
	t.Parallel()
	all := facts.Rows{All: rows(205)}
	for name, c := range map[string]struct {
		query                  string
		rows, matching, failed int
		first, last            int
		next, prev             bool
	}{
		"first page":            {"", 50, 205, 21, 1, 50, true, false},
		"last page":             {"page=5", 5, 205, 21, 201, 205, false, true},
		"a page that is not":    {"page=77", 5, 205, 21, 201, 205, false, true},
		"no number":             {"page=x", 50, 205, 21, 1, 50, true, false},
		"of a phase":            {"phase=Failed", 21, 21, 21, 1, 21, false, false},
		"of a phase that isn't": {"phase=Wrong", 50, 205, 21, 1, 50, true, false},
		"of a name":             {"q=RUN-20", 6, 6, 2, 1, 6, false, false},
		"of nobody":             {"q=none", 0, 0, 0, 0, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := url.ParseQuery(c.query)
			if err != nil {
				t.Fatal(err)
			}
			got := views.RunsOf(all, views.ParseRunsQuery(values), now)
			if len(got.Rows) != c.rows || got.Matching != c.matching || got.First != c.first || got.Last != c.last {
				t.Errorf("%d rows, %d match, %d to %d: want %+v", len(got.Rows), got.Matching, got.First, got.Last, c)
			}
			if (got.Next != "") != c.next || (got.Prev != "") != c.prev {
				t.Errorf("pages beside are %q and %q", got.Prev, got.Next)
			}
			for _, p := range got.Phases {
				if p.Phase == "Failed" && p.Count != c.failed {
					t.Errorf("%d failed, want %d", p.Count, c.failed)
				}
			}
		})
	}
}

func TestRunsSayWhenTheyAreNotKeptUpToDate(t *testing.T) {
	t.Parallel()
	got := views.RunsOf(facts.Rows{All: rows(1), Stale: errors.New("no \x1b[2Janswer"), More: true}, views.RunsQuery{Page: 1}, now)
	if got.Stale != "no  [2Janswer" || !got.More {
		t.Errorf("%q, %t", got.Stale, got.More)
	}
}
