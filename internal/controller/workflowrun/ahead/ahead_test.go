// SPDX-License-Identifier: Apache-2.0

package ahead_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const uid types.UID = "7d2b1c1e-0000-4000-8000-000000000001"

var (
	key       = types.NamespacedName{Namespace: "ns", Name: "run"}
	coalesced = policy.Checkpoint{Coalesced: true, MaxResults: 3, MaxDelay: 200 * time.Millisecond}
)

// world is one run in one process.
type world struct {
	runs   ahead.Runs
	state  ahead.State
	clock  *clocktesting.FakeClock
	stored *v1alpha1.WorkflowRun
}

// newWorld has a chain of two steps that was written once.
func newWorld() *world {
	return &world{clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), stored: &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid, ResourceVersion: "5"},
		Spec: v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{
			{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}, {Name: "b", DependsOn: []string{"a"}, Job: &v1alpha1.Job{Topic: "t"}},
		}},
		Status: statusOf(v1alpha1.StepDispatched, v1alpha1.StepPending),
	}}
}

// unwritten has a run that no process wrote.
func unwritten() *world {
	w := newWorld()
	w.stored.Status = nil
	return w
}

// statusOf has the steps a and b in these phases.
func statusOf(a, b v1alpha1.StepPhase) *v1alpha1.WorkflowRunStatus {
	st := &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
	for name, phase := range map[string]v1alpha1.StepPhase{"a": a, "b": b} {
		s := v1alpha1.StepStatus{Name: name, Phase: phase}
		if phase != v1alpha1.StepPending && phase != v1alpha1.StepCancelled {
			s.Attempt, s.JobID, s.DispatchedAt = 1, string(uid)+"/"+name+"/-/1", &metav1.MicroTime{Time: time.Unix(1000, 0)}
		}
		if phase == v1alpha1.StepCancelled {
			s.CompletedAt = &metav1.MicroTime{Time: time.Unix(1001, 0)}
		}
		st.Steps = append(st.Steps, s)
	}
	if st.Steps[0].Name != "a" {
		st.Steps[0], st.Steps[1] = st.Steps[1], st.Steps[0]
	}
	return st
}

// session begins a pass of the process that wrote the run last.
func (w *world) session() (*ahead.Session, *v1alpha1.WorkflowRun) {
	return w.sessionOf(w.stored, true)
}

func (w *world) sessionOf(stored *v1alpha1.WorkflowRun, mine bool) (*ahead.Session, *v1alpha1.WorkflowRun) {
	s, run := w.runs.Session(&w.state, w.clock, key, stored, mine)
	s.Under(coalesced, true, true)
	return s, run
}

// lag has the run be ahead by the success of a.
func (w *world) lag() *ahead.Session {
	s, _ := w.session()
	s.Keep(statusOf(v1alpha1.StepSucceeded, v1alpha1.StepDispatched), 1)
	return s
}

// next is the run as stored by a later write with this status.
func (w *world) next(st *v1alpha1.WorkflowRunStatus) *v1alpha1.WorkflowRun {
	next := w.stored.DeepCopy()
	next.ResourceVersion, next.Status = "6", st
	return next
}

// Each condition of May has a case in which it alone decides.
//
// mutations: without any one of them one of the cases fails.
func TestSession_May(t *testing.T) {
	for name, c := range map[string]struct {
		begin   func() *world
		adjust  func(*world, *ahead.Session)
		results int
		claimed bool
		lacks   bool
		want    bool
	}{
		"a lease that wrote the run":             {results: 2, claimed: true, want: true},
		"another wrote it":                       {results: 1},
		"every step is written":                  {claimed: true, adjust: func(_ *world, s *ahead.Session) { s.Under(policy.Checkpoint{MaxResults: 3}, true, true) }},
		"a write was refused":                    {claimed: true, adjust: func(_ *world, s *ahead.Session) { s.Off = true }},
		"the process gives the run up":           {claimed: true, adjust: func(_ *world, s *ahead.Session) { s.Closes = true }},
		"as many results as the policy lets":     {results: 3, claimed: true},
		"as many, with those before":             {results: 2, claimed: true, adjust: keepOne},
		"fewer, with those before":               {results: 1, claimed: true, adjust: keepOne, want: true},
		"what waits is as old as it may be":      {results: 1, claimed: true, adjust: func(w *world, s *ahead.Session) { keepOne(w, s); w.clock.Step(coalesced.MaxDelay) }},
		"attempts are to be recovered":           {results: 1, claimed: true, lacks: true, adjust: func(w *world, s *ahead.Session) { keepOne(w, s); s.Alone = true }},
		"attempts that are looked up anyway":     {results: 1, claimed: true, lacks: true, adjust: keepOne, want: true},
		"attempts, and nothing is ahead":         {results: 1, claimed: true, lacks: true, adjust: func(_ *world, s *ahead.Session) { s.Alone = true }, want: true},
		"a run that begins, alone":               {begin: unwritten, adjust: func(_ *world, s *ahead.Session) { s.NoteFirst(true) }, want: true},
		"a run that begins, and had a lock":      {begin: unwritten, adjust: func(_ *world, s *ahead.Session) { s.NoteFirst(false) }},
		"a run that begins, created before":      {begin: unwritten, adjust: func(_ *world, s *ahead.Session) { s.Under(coalesced, false, true); s.NoteFirst(true) }},
		"a run that begins, whatever is claimed": {begin: unwritten, claimed: true},
	} {
		t.Run(name, func(t *testing.T) {
			if c.begin == nil {
				c.begin = newWorld
			}
			w := c.begin()
			s, _ := w.session()
			if c.adjust != nil {
				c.adjust(w, s)
			}
			if got := s.May(c.results, c.claimed, c.lacks); got != c.want {
				t.Errorf("may run ahead: %t", got)
			}
		})
	}
}

func keepOne(_ *world, s *ahead.Session) {
	s.Keep(statusOf(v1alpha1.StepSucceeded, v1alpha1.StepDispatched), 1)
}

// mutations: a limit, or a run that others may have had, that does not count makes this fail.
func TestSession_FactsSayWhoMayBegin(t *testing.T) {
	for name, c := range map[string]struct {
		begin         func() *world
		born, noLimit bool
		want          bool
	}{
		"created here, without a limit": {unwritten, true, true, true},
		"created before":                {unwritten, false, true, false},
		"its tenant has a limit":        {unwritten, true, false, false},
		"written before":                {newWorld, true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := c.begin().session()
			s.Under(coalesced, c.born, c.noLimit)
			if got := s.Facts(); got.Begins != c.want || !got.Coalesced {
				t.Errorf("%+v", got)
			}
			if s.Under(policy.Checkpoint{}, true, true); s.Facts().Begins || s.Facts().Coalesced {
				t.Error("a run that is written at every step is ahead")
			}
		})
	}
}

// mutations: Keep that sets Since anew, or Due that asks for more than the delay, makes this fail.
func TestSession_WhatIsKeptIsDueAfterTheFirstOfIt(t *testing.T) {
	w := newWorld()
	if s, run := w.session(); run != w.stored || !s.At().IsZero() || s.Due() || !s.Rests() {
		t.Error("nothing is kept")
	}
	begin := w.clock.Now()
	w.lag()
	w.clock.Step(coalesced.MaxDelay / 2)
	s := w.lag()
	if want := begin.Add(coalesced.MaxDelay); !s.At().Equal(want) || s.Due() || !s.Rests() {
		t.Errorf("at %s, want %s; due %t", s.At(), want, s.Due())
	}
	s.Closes = true
	if s.Rests() {
		t.Error("a run that is given up is not written")
	}
	w.clock.Step(coalesced.MaxDelay / 2)
	if s, _ := w.session(); !s.Due() || s.Rests() || s.Facts().Since != begin {
		t.Errorf("since %s, due %t", s.Facts().Since, s.Due())
	}
}

// mutations: At that ignores crowded, or that has no end, makes this fail.
func TestSession_WhatWouldOnlyWaitIsWrittenLater(t *testing.T) {
	w := newWorld()
	begin := w.clock.Now()
	w.lag()
	for _, c := range []struct {
		after, at time.Duration // since the first thing was kept
		crowded   bool
		due       bool
	}{
		{100 * time.Millisecond, 200 * time.Millisecond, true, false},
		{300 * time.Millisecond, 500 * time.Millisecond, true, false},
		{300 * time.Millisecond, 200 * time.Millisecond, false, true},
		{1900 * time.Millisecond, 2 * time.Second, true, false},
		{2 * time.Second, 2 * time.Second, true, true},
	} {
		w.clock.SetTime(begin.Add(c.after))
		s, _ := w.session()
		s.Crowded(c.crowded)
		if at := s.At().Sub(begin); at != c.at || s.Due() != c.due {
			t.Errorf("after %s, crowded %t: at %s, due %t", c.after, c.crowded, at, s.Due())
		}
	}
}

// mutations: a condition of LingersUntil left out makes one of the cases fail.
func TestSession_LingersAfterAWrite(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(*world, *ahead.Session)
		want   bool
	}{
		"just written":          {want: true},
		"written long ago":      {adjust: func(w *world, _ *ahead.Session) { w.clock.Step(2 * time.Second) }},
		"ahead again":           {adjust: keepOne},
		"written at every step": {adjust: func(_ *world, s *ahead.Session) { s.Under(policy.Checkpoint{}, true, true) }},
		"a write was refused":   {adjust: func(_ *world, s *ahead.Session) { s.Off = true }},
		"given up":              {adjust: func(_ *world, s *ahead.Session) { s.Closes = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s, _ := w.session()
			if !s.LingersUntil().IsZero() {
				t.Error("before it wrote anything")
			}
			s.Write(w.next(statusOf(v1alpha1.StepSucceeded, v1alpha1.StepDispatched)))
			if c.adjust != nil {
				c.adjust(w, s)
			}
			if got := !s.LingersUntil().IsZero(); got != c.want {
				t.Errorf("%t", got)
			}
		})
	}
}

// What is kept stands as long as the stored status is the one that it was decided on.
//
// mutations: over that compares versions only, or no UID, makes this fail.
func TestSession_WhatIsKeptStands(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.WorkflowRun)
		stands bool
	}{
		"as it was read before": {func(*v1alpha1.WorkflowRun) {}, true},
		"its labels are others": {func(r *v1alpha1.WorkflowRun) { r.ResourceVersion, r.Labels = "6", map[string]string{"a": "b"} }, true},
		"it is to be suspended": {func(r *v1alpha1.WorkflowRun) { r.ResourceVersion, r.Spec.Suspend = "6", true }, true},
		"another wrote it":      {func(r *v1alpha1.WorkflowRun) { r.ResourceVersion = "6"; r.Status.Steps[0].Phase = v1alpha1.StepRunning }, false},
		"another has its name":  {func(r *v1alpha1.WorkflowRun) { r.ResourceVersion, r.UID = "6", "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.lag()
			now := w.stored.DeepCopy()
			c.change(now)
			s, run := w.sessionOf(now, true)
			if s.Lags() != c.stands {
				t.Fatalf("stands: %t", s.Lags())
			}
			want := v1alpha1.StepPending
			if c.stands {
				want = v1alpha1.StepDispatched
			}
			if got := run.Status.Steps[1].Phase; got != want {
				t.Errorf("step b is %s, want %s", got, want)
			}
			if run.ResourceVersion != now.ResourceVersion || run.Spec.Suspend != now.Spec.Suspend || run.Labels["a"] != now.Labels["a"] {
				t.Error("the edit is not seen")
			}
			if c.stands && w.state.Run() != run {
				t.Error("what was edited is not kept")
			}
		})
	}
}

// mutations: drop that keeps Alone, or forgets what it dispatched, makes this fail.
func TestSession_WhatIsDroppedIsWithdrawnAtTheEnd(t *testing.T) {
	w := newWorld()
	s := w.lag()
	s.Alone = true
	s.Drop()
	if s.Lags() || s.Alone || s.Results != 0 || !s.Since.IsZero() {
		t.Errorf("%+v is left", w.state)
	}
	s.Drop() // nothing is kept any more
	left := w.state.TakeLeft()
	if len(left) != 1 || left[0].ID.String() != string(uid)+"/b/-/1" {
		t.Errorf("%+v", left)
	}
	if again := w.state.TakeLeft(); again != nil {
		t.Errorf("%+v is withdrawn twice", again)
	}
}

// A process that was not alone withdraws what another may have dispatched ahead of it.
//
// mutations: LooksFirst that is always false, or always true, makes this fail.
func TestSession_WriteSaysWhatOthersMayHaveDispatched(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "not alone": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s := w.lag()
			s.Alone = alone
			next := w.next(statusOf(v1alpha1.StepSucceeded, v1alpha1.StepCancelled))
			left := s.Write(next)
			if alone != (len(left) == 0) {
				t.Errorf("%+v", left)
			}
			if !alone && left[0].ID.Step != "b" {
				t.Errorf("%+v", left)
			}
			if s.Lags() || s.Stored != next || w.runs.Lag() != (ahead.Lag{}) {
				t.Error("it is ahead still")
			}
		})
	}
}

// Before its write a decision fences what others may still publish.
//
// mutations: Left without what status never had, or without what is not known to be with NATS,
// makes this fail.
func TestSession_LeftIsWhatOthersMayStillPublish(t *testing.T) {
	for name, c := range map[string]struct {
		alone  bool
		lacks  bool
		goesOn bool
		want   string
	}{
		"alone":                         {alone: true, lacks: true},
		"a is with NATS":                {want: "b"},
		"nobody knows where a has gone": {lacks: true, want: "b a"},
		"a goes on":                     {lacks: true, goesOn: true, want: "b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.state.Alone = c.alone
			s, run := w.session()
			id := lifecycle.InFlight(run)[0]
			d := &lifecycle.Decision{Status: *statusOf(v1alpha1.StepCancelled, v1alpha1.StepCancelled), Withdraw: []lifecycle.Withdrawal{{ID: id, Topic: "t"}}}
			if c.goesOn {
				d.Withdraw = nil
			}
			var lacks []protocol.JobID
			if c.lacks {
				lacks = append(lacks, id)
			}
			var got []string
			for _, j := range s.Left(run, d, lacks) {
				got = append(got, j.ID.Step)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

// mutation: Session that leaves Alone as it is makes this fail.
func TestSession_WhoDidNotWriteTheRunIsNotAlone(t *testing.T) {
	for name, c := range map[string]struct {
		begin func() *world
		mine  bool
		want  bool
	}{
		"wrote it":         {newWorld, true, true},
		"another wrote it": {newWorld, false, false},
		"nobody wrote it":  {unwritten, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.begin()
			w.state.Alone = true
			if s, _ := w.sessionOf(w.stored, c.mine); s.Alone != c.want || s.LooksFirst() == c.want {
				t.Errorf("alone: %t", s.Alone)
			}
		})
	}
}

// A run may have attempts that status lacks as soon as its policy says so, and ever after.
//
// mutation: MayHaveJournal without one of its two conditions makes this fail.
func TestSession_MayHaveJournal(t *testing.T) {
	for name, c := range map[string]struct {
		policy policy.Checkpoint
		status *v1alpha1.CheckpointStatus
		want   bool
	}{
		"never ahead":          {},
		"by its policy":        {policy: coalesced, want: true},
		"by an earlier policy": {status: &v1alpha1.CheckpointStatus{Mode: v1alpha1.CheckpointEveryStep}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.stored.Status.Checkpoint = c.status
			s, _ := w.session()
			s.Under(c.policy, true, true)
			if got := s.MayHaveJournal(); got != c.want || s.LooksFirst() != c.want {
				t.Errorf("%t", got)
			}
		})
	}
}

// mutations: a condition of Likely left out makes one of the cases fail.
func TestSession_Likely(t *testing.T) {
	for name, c := range map[string]struct {
		adjust func(*world, *ahead.Session)
		mine   bool
		want   bool
	}{
		"wrote the run":         {mine: true, want: true},
		"another wrote it":      {},
		"ahead, whoever wrote":  {adjust: keepOne, want: true},
		"written at every step": {mine: true, adjust: func(_ *world, s *ahead.Session) { s.Under(policy.Checkpoint{}, true, true) }},
		"a write was refused":   {mine: true, adjust: func(_ *world, s *ahead.Session) { s.Off = true }},
		"given up":              {mine: true, adjust: func(_ *world, s *ahead.Session) { s.Closes = true }},
		"due":                   {mine: true, adjust: func(w *world, s *ahead.Session) { keepOne(w, s); w.clock.Step(time.Second) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			s, _ := w.session()
			if c.adjust != nil {
				c.adjust(w, s)
			}
			if got := s.Likely(c.mine); got != c.want {
				t.Errorf("%t", got)
			}
		})
	}
}

// mutations: runs that are never forgotten, or an age by the youngest, make this fail.
func TestCollector(t *testing.T) {
	w := newWorld()
	c := ahead.Collector{Runs: &w.runs, Now: w.clock.Now}
	expect := func(runs, results, age int) {
		t.Helper()
		want := strings.NewReplacer("RUNS", strconv.Itoa(runs), "RESULTS", strconv.Itoa(results), "AGE", strconv.Itoa(age)).Replace(`
			# HELP syncopate_ahead_oldest_seconds For how long the status of a run lags behind, at the most.
			# TYPE syncopate_ahead_oldest_seconds gauge
			syncopate_ahead_oldest_seconds AGE
			# HELP syncopate_results_ahead Results that are applied and not acknowledged, because status does not have them yet.
			# TYPE syncopate_results_ahead gauge
			syncopate_results_ahead RESULTS
			# HELP syncopate_runs_ahead Runs of this replica that are ahead of their status.
			# TYPE syncopate_runs_ahead gauge
			syncopate_runs_ahead RUNS
		`)
		if err := testutil.CollectAndCompare(c, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
	expect(0, 0, 0)
	s := w.lag()
	w.clock.Step(3 * time.Second)
	other := newWorld()
	other.stored.UID, other.clock = "other", w.clock
	o, _ := w.runs.Session(&other.state, w.clock, key, other.stored, true)
	o.Under(coalesced, true, true)
	o.Keep(statusOf(v1alpha1.StepSucceeded, v1alpha1.StepDispatched), 2)
	expect(2, 3, 3)
	w.clock.Step(time.Second)
	s.Drop()
	expect(1, 2, 1)
	w.runs.Forget("other")
	expect(0, 0, 0)
}

// mutation: In that gives runs of other partitions makes this fail.
func TestRuns_InPartitions(t *testing.T) {
	w := newWorld()
	w.lag()
	n := protocol.Partition(string(uid))
	if got := w.runs.In(map[int]bool{n: true}); len(got) != 1 || got[0] != key {
		t.Errorf("%v", got)
	}
	if got := w.runs.In(map[int]bool{(n + 1) % protocol.Partitions: true}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
