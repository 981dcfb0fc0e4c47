// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var at = Quota{Policy: "p", Tenant: "acme"}

// whole is a snapshot in which all agree: one run has all that a run may have.
func whole() Snapshot {
	return Snapshot{
		At: time.Unix(10_000, 0), Unread: map[Part]string{}, Closed: map[Quota]bool{},
		Runs: map[string]Run{"u": {
			Name: "ns/good", Quota: &at, Fence: 4, Tickets: map[string]Ticket{"u": {Fence: 7}}, Unanswered: []string{"u/a/1"}, Outputs: []string{"u/b"},
		}},
		Slots: []Slot{{at, "u"}}, Holds: []Hold{{"u", "u", 7}}, RunLocks: []RunLock{{"u", "t", 5, time.Second}},
		Jobs: []Job{{"u/a/1", "topic", "u"}}, Outputs: []Output{{"u/b", "u"}}, Keys: []Claim{{"acme", "k", "u"}},
	}
}

func change(s *Snapshot, f func(*Run)) {
	run := s.Runs["u"]
	f(&run)
	s.Runs["u"] = run
}

// What real stores make of each kind is tested in internal/audit/stores. These are the cases in
// which nothing may be said, and those that no store shows in a test.
func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   []Kind
	}{
		"all agree":                       {func(*Snapshot) {}, nil},
		"the runs are unread":             {func(s *Snapshot) { s.Runs, s.Unread[Runs] = nil, "no" }, nil},
		"the slots are unread":            {func(s *Snapshot) { s.Slots, s.Unread[Slots] = nil, "no" }, nil},
		"the locks are unread":            {func(s *Snapshot) { s.Holds, s.Unread[Locks] = nil, "no" }, nil},
		"the jobs are unread":             {func(s *Snapshot) { s.Jobs, s.Unread[Jobs] = nil, "no" }, nil},
		"the results are unread":          {func(s *Snapshot) { s.Jobs, s.Unread[Results] = nil, "no" }, nil},
		"the outputs are unread":          {func(s *Snapshot) { s.Outputs, s.Unread[Outputs] = nil, "no" }, nil},
		"its quota is being rebuilt":      {func(s *Snapshot) { s.Slots, s.Closed[at] = nil, true }, nil},
		"the job is answered":             {func(s *Snapshot) { s.Jobs, s.Results = nil, []Result{{"u/a/1", "u", time.Time{}}} }, nil},
		"a run lock is on offer":          {func(s *Snapshot) { s.RunLocks = []RunLock{{"gone", "", 0, -1}} }, nil},
		"Redis has forgotten a fence":     {func(s *Snapshot) { s.RunLocks[0].Fence = 0 }, nil},
		"a result of a run under way":     {func(s *Snapshot) { s.Results = []Result{{"u/c/1", "u", time.Unix(1, 0)}} }, nil},
		"a fresh result of a run gone":    {func(s *Snapshot) { s.Results = []Result{{"g/c/1", "g", s.At.Add(-ResultPatience)}} }, nil},
		"an old result of a run gone":     {func(s *Snapshot) { s.Results = []Result{{"g/c/1", "g", s.At.Add(-ResultPatience - 1)}} }, []Kind{ResultLeft}},
		"a result whose age is not known": {func(s *Snapshot) { s.Results = []Result{{"g/c/1", "g", time.Time{}}} }, nil},
		"outputs of a run that has ended": {func(s *Snapshot) {
			*s = Snapshot{Unread: s.Unread, Runs: s.Runs, Outputs: s.Outputs}
			change(s, func(r *Run) { r.Ended, r.Quota, r.Unanswered, r.Tickets = true, nil, nil, nil })
		}, nil},
		"everything is lost": {
			func(s *Snapshot) { *s = Snapshot{Unread: s.Unread, Runs: s.Runs} },
			[]Kind{SlotMissing, HoldMissing, JobMissing, OutputMissing},
		},
		"everything is left": {
			func(s *Snapshot) { s.Runs = nil; s.Places = s.Slots; s.Waiters = s.Holds },
			[]Kind{SlotLeft, PlaceLeft, KeyLeft, HoldLeft, WaiterLeft, RunLockLeft, JobLeft, OutputLeft},
		},
		"the run needs a newer operator": {func(s *Snapshot) {
			s.Runs["u"] = Run{Name: "ns/good", Newer: true}
			s.Places, s.Waiters = s.Slots, s.Holds
		}, nil},
		"it was refused for its key":        {func(s *Snapshot) { change(s, func(r *Run) { r.Refused = true }) }, []Kind{KeyLeft}},
		"its lock is older than its status": {func(s *Snapshot) { change(s, func(r *Run) { r.Fence = 6 }) }, []Kind{RunLockStale}},
		"its lock has no end":               {func(s *Snapshot) { s.RunLocks[0].Left = -1 }, []Kind{RunLockLeft}},
		"no end, and the run has ended":     {func(s *Snapshot) { s.RunLocks = []RunLock{{"g", "t", 1, -1}} }, []Kind{RunLockLeft}},
		"a step that is over holds locks":   {func(s *Snapshot) { change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {Over: true}} }) }, []Kind{HoldLeft}},
		"a step that is over, its child is not": {func(s *Snapshot) {
			s.Runs["c"] = Run{}
			change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {Over: true, Children: []string{"c"}}} })
		}, nil},
		"a step that is over, a run below its child is not": {func(s *Snapshot) {
			s.Runs["c"], s.Runs["d"] = Run{Ended: true, Children: []string{"c", "d"}}, Run{}
			change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {Over: true, Children: []string{"c"}}} })
		}, nil},
		"a step that is over, as is its child": {func(s *Snapshot) {
			s.Runs["c"] = Run{Ended: true, Children: []string{"c", "gone"}}
			change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {Over: true, Children: []string{"c"}}} })
		}, []Kind{HoldLeft}},
		"a ticket that no step has": {func(s *Snapshot) { s.Holds = append(s.Holds, Hold{"u/x", "u", 8}) }, []Kind{HoldLeft}},
		"a hold that neither has":   {func(s *Snapshot) { s.Holds = nil; change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {}} }) }, nil},
		"a step that is over has a fence": {func(s *Snapshot) {
			s.Holds = nil
			change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {Fence: 7, Over: true}} })
		}, nil},
		"a job of an attempt that is over":   {func(s *Snapshot) { change(s, func(r *Run) { r.Over = map[string]bool{"u/a/1": true} }) }, []Kind{JobLeft}},
		"a hold that is not in status yet":   {func(s *Snapshot) { change(s, func(r *Run) { r.Tickets = map[string]Ticket{"u": {}} }) }, nil},
		"a slot of a run that is not let in": {func(s *Snapshot) { change(s, func(r *Run) { r.Quota = nil }) }, nil},
	} {
		s := whole()
		c.change(&s)
		var got []Kind
		for _, f := range Compare(s) {
			got = append(got, f.Kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// mutation: a kind that is looked for in another part than it Needs makes this fail.
func TestKinds_NeedWhatTheyAreFoundIn(t *testing.T) {
	found := map[Kind]bool{}
	for _, change := range []func(*Snapshot){
		func(s *Snapshot) { *s = Snapshot{Runs: s.Runs} },
		func(s *Snapshot) {
			s.Runs, s.Places, s.Waiters, s.Results = nil, s.Slots, s.Holds, []Result{{"g/c/1", "g", time.Unix(1, 0)}}
		},
		func(s *Snapshot) { change(s, func(r *Run) { r.Fence = 6 }) },
	} {
		s := whole()
		change(&s)
		s.Unread = nil
		for _, f := range Compare(s) {
			found[f.Kind] = true
			for _, part := range []Part{Runs, Slots, Locks, RunLocks, Jobs, Results, Outputs} {
				without := s
				without.Unread = map[Part]string{part: "no"}
				told := slices.ContainsFunc(Compare(without), func(g Finding) bool { return g.Kind == f.Kind })
				if told == slices.Contains(f.Kind.Needs(), part) {
					t.Errorf("%s without %s: told %v", f.Kind, part, told)
				}
			}
		}
	}
	if len(found) != len(Kinds()) {
		t.Errorf("only %v", found)
	}
}

// mutation: Confirm that compares kinds only, or takes what one look found, makes this fail.
func TestConfirm_TakesWhatBothLooksFound(t *testing.T) {
	before := []Finding{{Kind: JobLeft, What: "a"}, {Kind: JobLeft, What: "b"}, {Kind: SlotLeft, What: "c"}}
	now := []Finding{{Kind: JobLeft, What: "b", Message: "now"}, {Kind: JobLeft, What: "c"}, {Kind: SlotLeft, What: "d"}}
	got := Confirm(before, now)
	if len(got) != 1 || got[0].What != "b" || got[0].Message != "now" {
		t.Errorf("%+v", got)
	}
}

// mutation: a kind without a section in the page makes this fail.
func TestKinds_EachIsExplained(t *testing.T) {
	page, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Kinds() {
		about := k.About()
		if about.Arises == "" || about.Mends == "" {
			t.Errorf("%s: %+v", k, about)
		}
		for _, want := range []string{"### " + string(k) + "\n", about.Arises} {
			if !strings.Contains(strings.ToLower(strings.ReplaceAll(string(page), "\n", " ")+string(page)), strings.ToLower(want)) {
				t.Errorf("docs/audit.md has no %q", want)
			}
		}
		if safe := strings.HasPrefix(about.Advice(), "--repair: "); safe != about.Safe {
			t.Errorf("%s: advice %q", k, about.Advice())
		}
	}
}
