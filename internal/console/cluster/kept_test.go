// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// Somebody reloads a page, each of which waits for 20 s, until the list is there: 40 pages of 2 s.
//
// mutation: begin that does not note that a list is asked for makes this fail.
func TestAFirstListOfMoreThanAMinuteIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		api := &paged{pages: maxRows / pageRows, takes: 2 * time.Second, begun: 1, over: make(chan struct{})}
		view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: api}, "")
		if err != nil {
			t.Fatal(err)
		}
		err = context.DeadlineExceeded
		for began := time.Now(); errors.Is(err, context.DeadlineExceeded) && time.Since(began) < 10*time.Minute; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			_, err = feeds.rows(ctx, view, key{user: "jane"})
			cancel()
		}
		if err != nil || api.begun != 2 {
			t.Errorf("%d lists have begun: %v", api.begun-1, err)
		}
	})
}

// mutation: sweep that ends a list with ErrFull makes this fail.
func TestAListThatIsGivenUpIsNotFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		feeds := NewFeeds(t.Context(), clock.RealClock{})
		defer feeds.Close()
		s := &slow{begun: make(chan struct{}, 1), give: make(chan struct{})}
		if _, err := feeds.rows(t.Context(), s, key{user: "jane"}); err == nil || errors.Is(err, ErrFull) {
			t.Errorf("%v", err)
		}
	})
}

// mutations: apply that drops each run beyond the bound, that gives the place of a run under way
// away, or that takes an older one for it, make this fail.
func TestANewerRunTakesThePlaceOfTheOldestThatEnded(t *testing.T) {
	t.Parallel()
	at := func(second int64, phase string) facts.Row {
		return facts.Row{UID: fmt.Sprint(second), Phase: phase, Created: time.Unix(second, 0)}
	}
	f := &feed{rows: map[string]facts.Row{}, limit: 3, room: newRoom(3)}
	f.replace([]facts.Row{at(10, "Running"), at(30, "Succeeded"), at(20, "Failed")}, false)
	for _, step := range []struct {
		row  facts.Row
		want string // what is kept, the newest first
	}{
		{at(15, "Succeeded"), "30 20 10"}, // older than all that ended
		{at(40, "Running"), "40 30 10"},
		{at(5, "Running"), "40 10 5"}, // old, and under way
		{at(50, "Running"), "40 10 5"},
		{at(10, "Succeeded"), "40 10 5"},
		{at(50, "Running"), "50 40 5"},
		{at(60, "Succeeded"), "50 40 5"},
	} {
		f.apply(change{Row: step.row})
		rows, err := f.snapshot(time.Time{})
		var kept []string
		for i := range rows.All {
			kept = append(kept, rows.All[i].UID)
		}
		if got := strings.Join(kept, " "); err != nil || got != step.want || !rows.More {
			t.Errorf("after %s: %s, want %s; more %t, %v", step.row.UID, got, step.want, rows.More, err)
		}
	}
	if left := f.room.left.Load(); left != 0 {
		t.Errorf("room for %d", left)
	}
}

// mutation: oldest that says of those it leaves out that there are none.
func TestAsManyNewRunsAreKeptAsThereArePlaces(t *testing.T) {
	t.Parallel()
	const many = 2*maxSpare + 10
	f := &feed{rows: map[string]facts.Row{}, limit: many, room: newRoom(many)}
	var ended []facts.Row
	for i := range int64(many) {
		ended = append(ended, facts.Row{UID: fmt.Sprint("old-", i), Phase: "Succeeded", Created: time.Unix(i, 0)})
	}
	f.replace(ended, true)
	for i := range int64(many) {
		f.apply(change{Row: facts.Row{UID: fmt.Sprint("new-", i), Phase: "Queued", Created: time.Unix(many+i, 0)}})
	}
	for uid := range f.rows {
		if strings.HasPrefix(uid, "old-") {
			t.Fatalf("%d rows, and %s is one of them", len(f.rows), uid)
		}
	}
}

// longList is an API server with so many pages of runs, the oldest first. The first one of all
// is under way.
func longList(pages int, fails int) transport {
	return func(r *http.Request) (*http.Response, error) {
		page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if page == fails {
			return answerOf(r, http.StatusGone, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`), nil
		}
		next := ""
		if page+1 < pages {
			next = strconv.Itoa(page + 1)
		}
		var b strings.Builder
		fmt.Fprintf(&b, `{"metadata":{"resourceVersion":"7","continue":%q},"columnDefinitions":[{"name":"Phase"}],"rows":[`, next)
		for i := range 100 {
			n, phase, comma := page*100+i, "Succeeded", ","
			if n == 0 {
				phase = "Running"
			}
			if i == 0 {
				comma = ""
			}
			fmt.Fprintf(&b, `%s{"cells":[%q],"object":{"metadata":{"uid":"%d","creationTimestamp":%q}}}`, comma, phase, n, time.Unix(int64(n), 0).UTC().Format(time.RFC3339))
		}
		return answerOf(r, http.StatusOK, b.String()+"]}"), nil
	}
}

// mutations: list that stops when it has as many as it may, that keeps the first ones, or
// ended ones before those under way, make this fail; so does one that has nothing if a later
// page is not there.
func TestOfManyRunsTheNewestAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages, fails int
		want         string
		more         bool
	}{
		"all have room":                  {3, -1, "299", false},
		"many":                           {9, -1, "899", true},
		"more than are read":             {listPages + 1, -1, fmt.Sprint(100*listPages - 1), true},
		"a page that is not there later": {9, 5, "499", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: longList(c.pages, c.fails)}, "")
			if err != nil {
				t.Fatal(err)
			}
			rows, version, more, err := view.list(t.Context(), "", 300)
			if err != nil || version != "7" || more != c.more || len(rows) != 300 {
				t.Fatalf("%d rows of version %s, more %t: %v", len(rows), version, more, err)
			}
			has := map[string]bool{}
			for i := range rows {
				has[rows[i].UID] = true
			}
			if !has[c.want] || !has["0"] {
				t.Errorf("run %s is kept: %t; the one under way: %t", c.want, has[c.want], has["0"])
			}
		})
	}
}

// mutations: events that reads one page, that keeps the first ones, or that does not say what it
// has left out, make this fail.
func TestTheNewestEventsAreShown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pages       int
		newest      int
		left, maybe bool
	}{
		"few":               {1, 59, false, false},
		"many":              {9, 9*60 - 1, true, false},
		"more than is read": {eventPages + 5, eventPages*60 - 1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			view, err := NewView(&rest.Config{Host: "http://api", QPS: -1}, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
				page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
				next := ""
				if page+1 < c.pages {
					next = strconv.Itoa(page + 1)
				}
				var items []string
				for i := range 60 {
					n := page*60 + i
					items = append(items, fmt.Sprintf(`{"lastTimestamp":%q,"reason":"R%d"}`, time.Unix(int64(n), 0).UTC().Format(time.RFC3339), n))
				}
				return answerOf(r, http.StatusOK, fmt.Sprintf(`{"metadata":{"continue":%q},"items":[%s]}`, next, strings.Join(items, ","))), nil
			})}, "")
			if err != nil {
				t.Fatal(err)
			}
			r := &facts.Run{Stored: &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "run", UID: "uid"}}}
			if err := view.events(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if got := r.Events[0].Reason; got != fmt.Sprint("R", c.newest) || len(r.Events) > maxEvents || r.EventsLeft != c.left || r.EventsUnread != c.maybe {
				t.Errorf("%d events, the first is %s, want %d; left out %t, unread %t", len(r.Events), got, c.newest, r.EventsLeft, r.EventsUnread)
			}
		})
	}
}
