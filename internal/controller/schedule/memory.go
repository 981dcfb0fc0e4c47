// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/cron"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// memory is what this process knows of a schedule beside what is stored.
type memory struct {
	of      types.UID
	tables  map[string]*cron.Timetable
	last    string           // the run that began last, as far as it was looked up
	created map[int64]unseen // runs that the cache does not have yet, by the minute of their slot
	failed  map[int64]schedule.Failure
	tries   map[int64]try        // creations that failed, by the minute of their slot
	failing time.Time            // the first of those that failed since one succeeded
	stuck   cause                // why they fail
	taken   time.Time            // when the name of a slot's run was first seen to be with a run that goes
	waits   map[string]time.Time // until when runs are left alone that are to be deleted, by UID
	below   map[types.UID]look   // what was under way below runs that ended
	tried   about                // what is is about
	is      verdict              // what the API server said
	again   time.Time            // when it is asked again; zero: after an edit, it was accepted
	checked int64                // the generation of wrong
	wrong   string               // what is wrong with its steps
	long    int64                // the generation that was to be validated

	read     int64  // the generation of problem
	problem  string // what is wrong with its spec beside times and runs
	looked   looked // what wrongNow is about
	wrongNow string // what the operator found wrong with its template
	saw      sight  // what stop is about
	stop     bool   // what spec.stopWhen said
	costly   sight  // over which it takes a desk
}

// about is what an answer of the API server about the runs of a schedule depends on. A policy may
// look at who signed them, which is no part of the spec: an edit of that makes no other generation.
type about struct {
	generation int64
	by         uint64 // a hash of the signature, which may be large; 0: there is none
}

// ofProcess has nobody write two signatures of one hash.
var ofProcess = maphash.MakeSeed()

func aboutOf(s *v1alpha1.Schedule) about {
	of := about{generation: s.Generation}
	if by, signed := s.Annotations[v1alpha1.AnnotationCreatedBy]; signed {
		of.by = maphash.String(ofProcess, by)
	}
	return of
}

// answered says whether the API server said something else of these runs before. A process that
// takes over reads it from status, which does not tell of which signature that was.
func (m *memory) answered(s *v1alpha1.Schedule) bool {
	if m.tried.generation == s.Generation {
		return m.tried == aboutOf(s)
	}
	if s.Status == nil {
		return false
	}
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStalled)
	return c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == s.Generation &&
		(c.Reason == v1alpha1.ReasonScheduled || c.Reason == v1alpha1.ReasonTemplateRefused)
}

// unseen is a run that the cache does not have yet.
type unseen struct {
	run v1alpha1.WorkflowRun // as it was at that time
	at  time.Time
}

// knows remembers a run that the cache may not have, without what no schedule asks about.
func (m *memory) knows(minute int64, run *v1alpha1.WorkflowRun, at time.Time) unseen {
	one := unseen{run: *run, at: at}
	one.run.ManagedFields, one.run.Spec = nil, v1alpha1.WorkflowRunSpec{Shutdown: run.Spec.Shutdown}
	m.created[minute] = one
	m.settled(minute)
	return one
}

// has says whether the run of a slot is among those of the cache, or those that it does
// not have yet.
func (m *memory) has(name string, slot time.Time, cached []v1alpha1.WorkflowRun) bool {
	_, ok := m.created[schedule.Minute(slot)]
	return ok || slices.ContainsFunc(cached, func(run v1alpha1.WorkflowRun) bool { return run.Name == schedule.RunName(name, slot) })
}

// try is what is known of creations of a slot's run that failed.
type try struct {
	first, last time.Time
	pause       time.Duration // after the last
	text        string        // why the last failed
	taken       bool          // it was for a run that has the name, and goes
}

// cause is why creations fail, in the words of one of them: those of another may differ in a port,
// or in a time of day, and status would be written at each try.
type cause struct {
	words  string
	reason metav1.StatusReason
	of     about
	at     time.Time
}

// blame keeps why a creation failed, unless it has the words of another one that failed so within a
// minute.
func (m *memory) blame(is cause) {
	was := m.stuck
	if age := is.at.Sub(was.at); was.reason == is.reason && was.of == is.of && age >= 0 && age < longestWait {
		return
	}
	m.stuck = is
}

// stands is what stands in the way of slots that are to get their run, if none was created for a
// while, or not the run of one of these; empty: nothing.
func (m *memory) stands(starting []metav1.Time, now time.Time) string {
	if len(starting) == 0 {
		return ""
	}
	first := m.failing
	for _, t := range starting {
		if one := m.tries[schedule.Minute(t.Time)].first; first.IsZero() || !one.IsZero() && one.Before(first) {
			first = one
		}
	}
	if first.IsZero() || now.Sub(first) <= toldAfter {
		return ""
	}
	return cut(stuckFor + m.stuck.words)
}

// rests is for how long the run of a slot is not to be created again; 0: it may be. A clock that
// was set back ends it.
func (m *memory) rests(minute int64, now time.Time) time.Duration {
	one := m.tries[minute]
	if since := now.Sub(one.last); since >= 0 && since < one.pause {
		return one.pause - since
	}
	return 0
}

// causes are why the runs of slots could not be created so far, by the minute of the slot. One that
// waits for its name counts as under way: that has a bound of its own, and then another reason.
func (m *memory) causes() map[int64]string {
	all := make(map[int64]string, len(m.tries))
	for minute, one := range m.tries {
		if !one.taken {
			all[minute] = one.text
		}
	}
	return all
}

// decided forgets the tries to create runs of slots that are to get none by now.
func (m *memory) decided(starting []metav1.Time) {
	maps.DeleteFunc(m.tries, func(minute int64, _ try) bool {
		return !slices.ContainsFunc(starting, func(t metav1.Time) bool { return schedule.Minute(t.Time) == minute })
	})
}

// settled forgets the tries to create the run of a slot.
func (m *memory) settled(minute int64) { delete(m.tries, minute) }

// began notes that the run of a slot that was tried is there. Another slot may fail still, and its
// cause is told.
func (m *memory) began(minute int64) {
	m.settled(minute)
	m.failing = time.Time{}
	if len(m.tries) == 0 {
		m.stuck = cause{}
	}
}

// inTheWay is for how long names of slots' runs have been with runs that go. It begins anew after
// an hour, and where the clock was ahead.
func (m *memory) inTheWay(now time.Time) time.Duration {
	if been := now.Sub(m.taken); been < 0 || been >= leaveAnew {
		m.taken = now
	}
	return now.Sub(m.taken)
}

// toPrune are those of the runs to delete that are to be looked at now. New ones come first, and
// then those that have waited for longest, so that all have their turn. It forgets all other runs.
func (m *memory) toPrune(all []schedule.Run, now time.Time) []schedule.Run {
	before := m.waits
	m.waits = map[string]time.Time{}
	var due, again []schedule.Run
	for _, one := range all {
		until, waits := before[one.UID]
		switch {
		case !waits:
			due = append(due, one)
		case !now.Before(until):
			again = append(again, one)
			fallthrough
		default:
			m.waits[one.UID] = until
		}
	}
	slices.SortStableFunc(again, func(a, b schedule.Run) int { return before[a.UID].Compare(before[b.UID]) })
	return append(due, again...)
}

// nextLook is the wait until one of those runs is to be looked at again; 0: there is none.
func (m *memory) nextLook(now time.Time) (wait time.Duration) {
	for _, until := range m.waits {
		wait = sooner(wait, max(until.Sub(now), cleanUpPause))
	}
	return wait
}

// learn keeps what the API server said.
func (m *memory) learn(of about, is verdict, again time.Time) {
	m.tried, m.is, m.again = of, is, again
}

const (
	// askPause is the wait before it is asked again whether the runs of a schedule would be refused
	// that is held for that.
	askPause = 10 * time.Minute
	// asksPace is the time between two such questions about any schedules: a policy may refuse
	// those of all namespaces.
	asksPace = 100 * time.Millisecond
	// longestAsk bounds that wait where very many are refused.
	longestAsk = time.Hour
)

// nextAsk is when it is asked again about a schedule that is refused now.
func (r *Reconciler) nextAsk(now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, paced := now.Add(askPause), r.lastAsk.Add(asksPace)
	if paced.After(next) && paced.Sub(now) < longestAsk { // else the clock was set back
		next = paced
	}
	r.lastAsk = next
	return next
}

func newMemory(of types.UID) *memory {
	return &memory{
		of: of, tables: map[string]*cron.Timetable{}, created: map[int64]unseen{},
		failed: map[int64]schedule.Failure{}, tries: map[int64]try{},
		waits: map[string]time.Time{}, below: map[types.UID]look{},
	}
}

// maxTables bounds the timings of a schedule that are remembered.
const maxTables = 4

// table is the timetable of a timing; the error names fields of spec.
func (m *memory) table(timing *v1alpha1.ScheduleTiming) (*cron.Timetable, error) {
	key := strings.Join(append(slices.Clone(timing.Cron), timing.TimeZone, string(timing.DST.Gap), string(timing.DST.Repeat)), "\n")
	if t, ok := m.tables[key]; ok {
		return t, nil
	}
	t, err := schedule.Timetable(timing)
	if err != nil {
		return nil, err
	}
	if len(m.tables) >= maxTables {
		clear(m.tables)
	}
	m.tables[key] = t
	return t, nil
}
