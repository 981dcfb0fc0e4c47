// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
)

// quick is the pause of tests: nothing changes meanwhile.
const quick = time.Millisecond

// made is a difference that is made by hand.
type made struct {
	kind  audit.Kind
	apart func(w *world)
}

// gone is a run that had what it has to leave, and was deleted behind the operator's back.
func gone(leave func(*world, *v1alpha1.WorkflowRun)) func(*world) {
	return func(w *world) {
		run := w.create("gone")
		leave(w, run)
		w.remove(run)
	}
}

func differences() map[string]made {
	return map[string]made{
		"somebody deletes the slot of a run":    {kind: audit.SlotMissing, apart: func(w *world) { w.delField("{adm:p:acme}:slots", string(w.good.UID)) }},
		"a run is deleted, and its slot stays":  {kind: audit.SlotLeft, apart: gone((*world).slot)},
		"a run ends, and its slot stays":        {kind: audit.SlotLeft, apart: func(w *world) { run := w.create("over"); w.slot(run); w.write(run, ended) }},
		"a run is deleted, and its place stays": {kind: audit.PlaceLeft, apart: gone((*world).place)},
		"a run is deleted, and its key stays":   {kind: audit.KeyLeft, apart: gone((*world).claim)},
		"somebody deletes the hold of a run":    {kind: audit.HoldMissing, apart: (*world).loseHold},
		"a run is deleted, and its hold stays":  {kind: audit.HoldLeft, apart: gone(func(w *world, run *v1alpha1.WorkflowRun) { w.hold(run) })},
		"a run ends, and its hold stays":        {kind: audit.HoldLeft, apart: func(w *world) { run := w.create("over"); w.hold(run); w.write(run, ended) }},
		"a run is deleted while it waits": {kind: audit.WaiterLeft, apart: gone(func(w *world, run *v1alpha1.WorkflowRun) {
			w.takeLock(run, "mutex/default/good")
		})},
		"a run lock of a run that is gone":       {kind: audit.RunLockLeft, apart: gone(func(w *world, run *v1alpha1.WorkflowRun) { w.runLock(run.UID, 3, time.Hour) })},
		"a run lock of a run that has ended":     {kind: audit.RunLockLeft, apart: func(w *world) { w.runLock(w.done.UID, 3, time.Hour) }},
		"a run lock without an end":              {kind: audit.RunLockLeft, apart: func(w *world) { w.runLock(w.good.UID, 1, 0) }},
		"a run lock with a fence of long ago":    {kind: audit.RunLockStale, apart: (*world).staleLock},
		"somebody purges the stream of jobs":     {kind: audit.JobMissing, apart: func(w *world) { w.purge(w.NATS.Names.JobsStream()) }},
		"a run is deleted, and its job stays":    {kind: audit.JobLeft, apart: gone(func(w *world, run *v1alpha1.WorkflowRun) { w.queue(jobOf(run, 1)) })},
		"a run ends, and its job stays":          {kind: audit.JobLeft, apart: func(w *world) { w.queue(jobOf(w.done, 1)) }},
		"an attempt is over, and its job stays":  {kind: audit.JobLeft, apart: (*world).olderAttempt},
		"a result of a run that has ended stays": {kind: audit.ResultLeft, apart: (*world).oldResult},
		"somebody deletes an output":             {kind: audit.OutputMissing, apart: (*world).loseOutput},
		"an output of a run that is gone":        {kind: audit.OutputLeft, apart: gone(func(w *world, run *v1alpha1.WorkflowRun) { w.output(run.UID, "left") })},
	}
}

func (w *world) place(run *v1alpha1.WorkflowRun) {
	a, err := w.Quota.Admit(w.t.Context(), store.Key{Policy: "p", Tenant: tenant}, store.Limits{Max: 0}, store.Run{UID: string(run.UID), Name: "default/" + run.Name, Created: time.Unix(1000, 0)})
	must(w.t, err)
	if a.Admitted {
		w.t.Fatal("no place, but a slot")
	}
}

func (w *world) claim(run *v1alpha1.WorkflowRun) {
	run.Spec.IdempotencyKey = "order-1"
	_, err := w.limits.Claim(w.t.Context(), run, tenant)
	must(w.t, err)
}

func (w *world) loseHold() {
	w.delField("{adm-locks}:holds", "h"+string(w.good.UID))
	w.delField("{adm-locks}:holds", "umutex/default/good")
}

func (w *world) staleLock() {
	w.good = w.write(w.good, func(st *v1alpha1.WorkflowRunStatus) { st.Fence = new(int64(9)) })
	w.runLock(w.good.UID, 3, time.Hour)
}

func (w *world) purge(stream string) {
	s, err := w.NATS.JetStream.Stream(w.t.Context(), stream)
	must(w.t, err)
	must(w.t, s.Purge(w.t.Context()))
}

// olderAttempt has the first attempt failed and the second with a worker.
func (w *world) olderAttempt() {
	w.queue(jobOf(w.good, 2))
	w.good = w.write(w.good, func(st *v1alpha1.WorkflowRunStatus) { st.Steps[0].Attempt, st.Steps[0].Failures = 2, 1 })
}

func (w *world) oldResult() {
	bustest.PublishRaw(w.t, w.NATS, w.NATS.Names.Result(jobOf(w.done, 1)), "{}")
	w.Clock = ahead{by: ResultAge}
}

func (w *world) loseOutput() {
	s, err := w.NATS.JetStream.Stream(w.t.Context(), w.NATS.Names.PayloadsStream())
	must(w.t, err)
	must(w.t, s.Purge(w.t.Context(), jetstream.WithPurgeSubject(w.NATS.Names.PayloadEntry(w.good.Status.Steps[1].OutputRef.Name))))
}

// ResultAge is older than any result may be.
const ResultAge = audit.ResultPatience + time.Minute

// mutation: each branch of the functions of compare.go, left out, makes one of these fail: it was
// tried with each. Mend that leaves out a kind makes it fail, too.
func TestEachKind_IsFoundAndMendedWhereThatIsSafe(t *testing.T) {
	found := map[audit.Kind]bool{}
	for name, d := range differences() {
		found[d.kind] = true
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if before := w.twice(); len(before.Findings) > 0 || len(before.Unread) > 0 || before.Runs != 3 {
				t.Fatalf("before: %+v", before)
			}
			d.apart(w)
			report := w.twice()
			if len(report.Unread) > 0 || len(report.Findings) != 1 || report.Findings[0].Kind != d.kind {
				t.Fatalf("found %+v, unread %v", report.Findings, report.Unread)
			}
			mended := w.Mend(t.Context(), report.Findings)[0]
			if !d.kind.About().Safe {
				if !errors.Is(mended.Err, ErrUnsafe) || len(w.twice().Findings) != 1 {
					t.Errorf("mended, and not safe: %v", mended.Err)
				}
				return
			}
			if mended.Err != nil {
				t.Fatal(mended.Err)
			}
			if after := w.twice(); len(after.Findings) > 0 {
				t.Errorf("after: %+v", after.Findings)
			}
		})
	}
	for _, k := range audit.Kinds() {
		if !found[k] {
			t.Errorf("no difference of kind %s is made", k)
		}
	}
}

func (w *world) twice() Report {
	w.t.Helper()
	r, err := w.Twice(w.t.Context(), quick)
	must(w.t, err)
	return r
}

// A job that finds no room is in status alone, by design; one that a worker has
// begun was published.
//
// mutations: jobsOf of all that is unanswered; Published that leaves out what a worker has begun.
func TestLook_AJobThatWaitsForRoomIsNotMissing(t *testing.T) {
	for _, text := range []string{
		"The share of NATS for jobs of one run or namespace is used up since 2026-11-20T10:00:00Z: jobs wait until others are done; 0 of 2 steps finished",
		"NATS has no consumer for another topic since 2026-11-20T10:00:00Z: its jobs wait; 0 of 2 steps finished",
	} {
		w := newWorld(t)
		w.purge(w.NATS.Names.JobsStream())
		w.write(w.good, func(st *v1alpha1.WorkflowRunStatus) {
			meta.SetStatusCondition(&st.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonWaitingForRoom, Message: text,
			})
		})
		if found := w.twice(); len(found.Findings) > 0 {
			t.Errorf("%s: %+v", text, found.Findings)
		}
		w.write(w.good, func(st *v1alpha1.WorkflowRunStatus) { st.Steps[0].Phase = v1alpha1.StepRunning })
		if found := w.twice(); len(found.Findings) != 1 || found.Findings[0].Kind != audit.JobMissing {
			t.Errorf("%s, and a worker has it: %+v", text, found.Findings)
		}
	}
}

// What a finding said is asked again before anything is changed.
//
// mutation: mend that does not look at the run again makes this fail.
func TestMend_LooksAgain(t *testing.T) {
	w := newWorld(t)
	finding := func(k audit.Kind, at audit.At) audit.Finding {
		return audit.Finding{Kind: k, Run: "default/good", UID: string(w.good.UID), At: at}
	}
	at := audit.Quota{Policy: "p", Tenant: tenant}
	for _, f := range []audit.Finding{
		finding(audit.SlotLeft, audit.At{Quota: at}), finding(audit.PlaceLeft, audit.At{Quota: at}), finding(audit.KeyLeft, audit.At{Quota: at, Key: "k"}),
		finding(audit.HoldLeft, audit.At{Ticket: string(w.good.UID)}), finding(audit.WaiterLeft, audit.At{Ticket: string(w.good.UID)}),
		finding(audit.JobLeft, audit.At{Job: jobOf(w.good, 1).String(), Topic: topic}),
		finding(audit.OutputLeft, audit.At{Output: w.good.Status.Steps[1].OutputRef.Name}),
		{Kind: audit.SlotMissing, Run: "default/done", UID: string(w.done.UID), At: audit.At{Quota: at}},
		{Kind: audit.HoldMissing, Run: "default/done", UID: string(w.done.UID), At: audit.At{Ticket: string(w.done.UID)}},
	} {
		if m := w.Mend(t.Context(), []audit.Finding{f})[0]; !errors.Is(m.Err, errChanged) {
			t.Errorf("%s: %v", f.Kind, m.Err)
		}
	}
	if after := w.twice(); len(after.Findings) > 0 {
		t.Errorf("after: %+v", after.Findings)
	}
}

// A holder goes on under a policy that continues: it takes its lock again with the same token.
//
// mutation: dropInRedis that does not look at the lock, or at the fence of the run,
// makes this fail.
func TestMend_LeavesARunLockThatIsInOrderAgain(t *testing.T) {
	for name, c := range map[string]struct {
		apart, again func(*world)
	}{
		"taken again with a higher fence": {(*world).staleLock, func(w *world) { w.runLock(w.good.UID, 10, time.Hour) }},
		"has an end again":                {func(w *world) { w.runLock(w.good.UID, 1, 0) }, func(w *world) { w.runLock(w.good.UID, 1, time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.apart(w)
			report := w.twice()
			if len(report.Findings) != 1 {
				t.Fatalf("found %+v", report.Findings)
			}
			c.again(w)
			if m := w.Mend(t.Context(), report.Findings)[0]; !errors.Is(m.Err, errChanged) {
				t.Errorf("got %v", m.Err)
			}
			seen, err := lockmgr.Look(t.Context(), w.Redis, []string{string(w.good.UID)})
			if err != nil || seen[string(w.good.UID)].Token == "" {
				t.Errorf("the lock is gone (%v)", err)
			}
		})
	}
}

// mutation: a Look that takes what it could not read for empty makes this fail.
func TestLook_SaysWhatItCouldNotRead(t *testing.T) {
	w := newWorld(t)
	must(t, w.Redis.FlushAll(t.Context()).Err())
	w.NATS.NATS.Close()
	report := w.twice()
	var unread []audit.Part
	for part := range report.Unread {
		unread = append(unread, part)
	}
	slices.Sort(unread)
	if want := []audit.Part{audit.Jobs, audit.Locks, audit.Outputs, audit.Results, audit.Slots}; !slices.Equal(unread, want) {
		t.Errorf("unread %v", report.Unread)
	}
	if len(report.Findings) > 0 {
		t.Errorf("found %+v", report.Findings)
	}
}

// A run that an operator of a newer version wrote may say things in another way.
//
// mutation: runOf that reads such a run makes this fail.
func TestLook_LeavesRunsAloneThatNeedANewerOperator(t *testing.T) {
	w := newWorld(t)
	w.write(w.good, func(st *v1alpha1.WorkflowRunStatus) { v := v1alpha1.WriterVersion + 1; st.MinWriterVersion = v })
	w.purge(w.NATS.Names.JobsStream())
	w.delField("{adm:p:acme}:slots", string(w.good.UID))
	if r := w.twice(); len(r.Findings) > 0 {
		t.Errorf("found %+v", r.Findings)
	}
}
