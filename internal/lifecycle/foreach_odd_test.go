// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"maps"
	"math"
	rand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// As the shell does: what was stored or read for a decision is known in the next pass, without its
// bytes; what a write does not refer to any more is dropped after it.
func TestAnObjectThatWasDroppedIsStoredAgain(t *testing.T) {
	steps := []v1alpha1.Step{newStep("all", forEach("${inputs.list}", 200, ""))}
	for i := range 100 {
		steps = append(steps, newStep(fmt.Sprint("s", i), after("all")))
	}
	run := newRun(steps...)
	run.Spec.Inputs = raw(`{"list":` + numbers(200) + `}`)
	o, facts := objects{}, Payloads{}
	pass := func(results ...Result) {
		before := refNames(run)
		in := letIn(Input{Run: run, Now: epoch, Lock: held(1), Results: results, Payloads: Payloads{}})
		maps.Copy(in.Payloads, facts)
		var out Decision
		for n := 0; ; n++ {
			if out = Decide(in); !out.Needs.Any() {
				break
			}
			if n > 20 {
				t.Fatal("it never ends")
			}
			for _, s := range out.Needs.Store {
				o[s.Ref.Name] = s.Data
				in.Payloads[s.Ref.Name] = Payload{Data: s.Data}
			}
			for _, ref := range out.Needs.Load {
				in.Payloads[ref.Name] = Payload{Data: o[ref.Name], Problem: o.problem(ref)}
			}
		}
		facts = Payloads{}
		for name, p := range in.Payloads {
			facts[name] = Payload{Problem: p.Problem}
		}
		if out.Changed {
			run.Status = persisted(t, &out.Status)
		}
		now := refNames(run)
		for name := range before {
			if !now[name] {
				delete(o, name)
			}
		}
		for name := range now {
			if _, ok := o[name]; !ok {
				t.Fatalf("status refers to %s, which is not in the object store", name)
			}
		}
	}
	pass()
	for item := range 200 {
		output := ``
		if item == 3 || item == 70 {
			output = `1`
		}
		pass(ofItem(item, succeeded("all", 1, output)))
	}
	if run.Status.Steps[0].Phase != v1alpha1.StepSucceeded {
		t.Errorf("%s", report.ErrorText(run.Status.Steps[0].Error))
	}
}

func refNames(run *v1alpha1.WorkflowRun) map[string]bool {
	names := map[string]bool{}
	if run.Status == nil {
		return names
	}
	for i := range run.Status.Steps {
		s := &run.Status.Steps[i]
		if s.OutputRef != nil {
			names[s.OutputRef.Name] = true
		}
		if s.ForEach != nil {
			for _, r := range s.ForEach.OutputRefs {
				names[r.Name] = true
			}
		}
	}
	return names
}

// After a crash the list is evaluated again for the jobs, so what both read is bounded together:
// the step says so at once.
func TestListAndInputOfAStepAreBoundedTogether(t *testing.T) {
	run := newRun(newStep("a"), newStep("b"), newStep("all", after("a", "b"), forEach("${steps.a.output.list}", 1, ""), input(`{"n":"${item}","b":"${steps.b.output.x}"}`)))
	o := objects{}
	o.advance(t, run, epoch)
	o.advance(t, run, epoch, o.put("a", 1, `{"list":[1,2,3],"pad":`+text(5<<20)+`}`), o.put("b", 1, `{"x":1,"pad":`+text(5<<20)+`}`))
	for range 3 {
		o.advance(t, run, epoch)
	}
	if s := run.Status.Steps[2]; s.Phase != v1alpha1.StepFailed || !strings.Contains(s.Error.Message, "bytes in all, more than 8388608") {
		t.Errorf("step %s: %s", s.Phase, report.ErrorText(s.Error))
	}
}

// Workers that begin at different moments, and take different times, must not keep places empty.
func TestPlacesOfItemsAreUsed(t *testing.T) {
	tests := map[string]struct {
		steps, parallel int
		least           float64
	}{
		"ten steps, 10 places each": {10, 10, 0.9},
		"20 steps, 20 places each":  {20, 20, 0.9},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var steps []v1alpha1.Step
			for i := range tt.steps {
				s := newStep(fmt.Sprint("s", i), forEach("${inputs.list}", int32(tt.parallel), ""))
				s.TimeoutSeconds, s.StartTimeoutSeconds = 36000, 36000
				steps = append(steps, s)
			}
			run := newRun(steps...)
			run.Spec.Inputs = raw(`{"list":` + numbers(9000) + `}`)
			g := rand.New(rand.NewPCG(1, 2))
			o, now := objects{}, epoch
			type work struct {
				starts, ends time.Time
				said         bool
			}
			jobs := map[protocol.JobID]*work{}
			note := func(out Decision) {
				for _, j := range out.Dispatch {
					starts := now.Add(time.Duration(g.IntN(30_000)) * time.Millisecond)
					takes := time.Duration(20+g.IntN(100)) * time.Second
					if g.IntN(5) == 0 { // some take much longer
						takes *= 20
					}
					jobs[j.ID] = &work{starts: starts, ends: starts.Add(takes)}
				}
			}
			note(o.advance(t, run, now))
			used, rounds := 0, 0
			for range 100 {
				now = now.Add(10 * time.Second)
				var results []Result
				for _, id := range InFlight(run) {
					w := jobs[id]
					switch {
					case w.ends.Before(now):
						results = append(results, Result{ID: id, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: w.ends})
					case w.starts.Before(now) && !w.said:
						w.said = true
						results = append(results, Result{ID: id, Result: protocol.Result{Status: protocol.StatusStarted}, PublishedAt: w.starts})
					}
				}
				note(o.advance(t, run, now, results...))
				used += len(InFlight(run))
				rounds++
			}
			share := float64(used) / float64(rounds*min(2000, tt.steps*tt.parallel))
			t.Logf("%.0f %% of the places were used", 100*share)
			if share < tt.least {
				t.Errorf("%.0f %% of the places were used", 100*share)
			}
		})
	}
}

// An item that hangs times out, however many others begin after it.
func TestAHangingItemTimesOut(t *testing.T) {
	var steps []v1alpha1.Step
	for i := range 20 {
		steps = append(steps, newStep(fmt.Sprint("s", i), forEach("${inputs.list}", 20, v1alpha1.Collect)))
	}
	run := newRun(steps...)
	run.Spec.Steps[0].TimeoutSeconds = 60
	run.Spec.Inputs = raw(`{"list":` + numbers(9000) + `}`)
	o, now := objects{}, epoch
	o.advance(t, run, now)
	started := map[protocol.JobID]time.Time{}
	hung := itemJob("s0", 0, 1)
	for n := range 600 {
		now = now.Add(time.Duration(2000+(n*7919)%2000) * time.Millisecond)
		var results []Result
		begun := 0
		for _, id := range InFlight(run) {
			if id.Step != "s0" {
				continue
			}
			at, did := started[id]
			switch {
			case !did && begun < 2:
				begun++
				started[id] = now
				results = append(results, Result{ID: id, Result: protocol.Result{Status: protocol.StatusStarted}, PublishedAt: now})
			case did && id != hung && now.Sub(at) > 20*time.Second:
				results = append(results, Result{ID: id, Result: protocol.Result{Status: protocol.StatusSucceeded}, PublishedAt: now})
			}
		}
		o.advance(t, run, now, results...)
		at, did := started[hung]
		over := true
		for _, id := range InFlight(run) {
			over = over && id != hung
		}
		if did && over {
			t.Logf("timed out %s after it began", now.Sub(at))
			return
		}
		if did && now.Sub(at) > 5*time.Minute {
			t.Fatalf("began %s ago with a time-out of 60 s, and is still in flight (round %d)", now.Sub(at), n)
		}
	}
}

func TestDecisionAboutItemsIsSettled(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	for range 30 {
		run := fanOut(60, int32(1+g.IntN(40)), v1alpha1.Collect)
		run.Spec.Steps = append(run.Spec.Steps, newStep("other", forEach("${inputs.list}", 20, v1alpha1.Collect)), newStep("c", forEach("${inputs.list}", 20, v1alpha1.Collect)))
		for i := 3; i < 20; i++ {
			run.Spec.Steps = append(run.Spec.Steps, newStep(fmt.Sprint("e", i), forEach("${inputs.list}", 2, v1alpha1.Collect)))
		}
		o, now := objects{}, epoch
		o.advance(t, run, now)
		for n := range 40 {
			now = now.Add(time.Duration(g.IntN(4000)) * time.Millisecond)
			var results []Result
			for _, id := range InFlight(run) {
				r := Result{ID: id, PublishedAt: now}
				switch g.IntN(12) {
				case 0:
					r.Result.Status = protocol.StatusSucceeded
				case 1, 2:
					r.Result.Status = protocol.StatusStarted
				case 3:
					r.Result = protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: int64(g.IntN(5000))}
				case 4:
					r.Result = protocol.Result{Status: protocol.StatusFailed}
				default:
					continue
				}
				results = append(results, r)
			}
			did := o.advance(t, run, now, results...)
			if Finished(run) {
				break
			}
			// Where the last items of a crowded step begin, the room that was kept for them is free
			// for those that are due: they go out in another pass, for which nobody waits.
			if again := o.advance(t, run, now); again.Changed && (did.Wake.IsZero() || did.Wake.Sub(now) > time.Millisecond) {
				t.Fatalf("round %d: changed again, dispatches %d more; wake was %s (now %s)", n, len(again.Dispatch), did.Wake, now)
			}
			if again := o.decide(letIn(Input{Run: run, Now: now, Lock: held(1)})); again.Changed {
				t.Fatalf("round %d: changed a third time, dispatches %d more; wake %s (now %s)", n, len(again.Dispatch), again.Wake, now)
			}
		}
	}
}

func TestItemsOfOddStatuses(t *testing.T) {
	base := func() *v1alpha1.WorkflowRun {
		run := fanOut(4, 2, v1alpha1.Collect)
		advance(t, run, epoch)
		return run
	}
	long := itemJob("all", 0, math.MaxInt32)
	tests := map[string]struct {
		run     func() *v1alpha1.WorkflowRun
		results []Result
	}{
		"no forEach in spec": {func() *v1alpha1.WorkflowRun { r := base(); r.Spec.Steps[0].ForEach = nil; return r }, []Result{ofItem(0, failed("all", 1, "E", "")), ofItem(1, succeeded("all", 1, ""))}},
		"begun negative":     {func() *v1alpha1.WorkflowRun { r := base(); r.Status.Steps[0].ForEach.Begun = -3; return r }, nil},
		"more begun":         {func() *v1alpha1.WorkflowRun { r := base(); r.Status.Steps[0].ForEach.Begun = 9000; return r }, nil},
		"more in all": {func() *v1alpha1.WorkflowRun {
			r := base()
			r.Status.Steps[0].ForEach.Total = 9000
			r.Status.Steps[0].ForEach.Groups = nil
			return r
		}, nil},
		"too many in all": {func() *v1alpha1.WorkflowRun { r := base(); r.Status.Steps[0].ForEach.Total = math.MaxInt32; return r }, nil},
		"a group twice": {func() *v1alpha1.WorkflowRun {
			r := base()
			f := r.Status.Steps[0].ForEach
			f.Groups = append(f.Groups, v1alpha1.ItemGroup{Items: "0", Phase: v1alpha1.StepBackingOff, Attempt: 3})
			return r
		}, []Result{ofItem(0, succeeded("all", 1, `1`))}},
		"an odd phase": {func() *v1alpha1.WorkflowRun {
			r := base()
			r.Status.Steps[0].ForEach.Groups[0].Phase = "What"
			return r
		}, nil},
		"outputs that are none": {func() *v1alpha1.WorkflowRun {
			r := base()
			r.Status.Steps[0].ForEach.Outputs = raw(`[1]`)
			return r
		}, []Result{ofItem(0, succeeded("all", 1, `1`))}},
		"outputs with a number that none can be": {func() *v1alpha1.WorkflowRun {
			r := base()
			r.Status.Steps[0].ForEach.Outputs = raw(`[[1,1e999],[2,"\u003c"]]`)
			return r
		}, []Result{ofItem(0, succeeded("all", 1, `1`))}},
		"step pending with items":     {func() *v1alpha1.WorkflowRun { r := base(); r.Status.Steps[0].Phase = v1alpha1.StepPending; return r }, nil},
		"step backing off with items": {func() *v1alpha1.WorkflowRun { r := base(); r.Status.Steps[0].Phase = v1alpha1.StepBackingOff; return r }, nil},
		"the last attempt": {func() *v1alpha1.WorkflowRun {
			r := base()
			f := r.Status.Steps[0].ForEach
			f.Groups[0].Items, f.Groups[0].Attempt, f.Begun = "0", math.MaxInt32, 1
			r.Spec.Steps[0].ForEach.MaxParallel = 1
			return r
		}, []Result{{ID: long, Result: protocol.Result{Status: protocol.StatusRetry, RetryAfterMillis: 1}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("panic: %v", r)
				}
			}()
			run := tt.run()
			now := epoch
			advance(t, run, now, tt.results...)
			InFlight(run)
			for _, id := range InFlight(run) {
				_, _ = JobOf(run, id, nil)
				Over(run, id)
			}
			if name == "the last attempt" {
				now = now.Add(time.Minute)
				out := advance(t, run, now)
				if !Finished(run) && len(InFlight(run)) == 0 && out.Wake.IsZero() {
					t.Errorf("stuck: %s", mustJSON(t, run.Status.Steps[0]))
				}
			}
		})
	}
}

// Workers that begin one after the other, half a second apart, do not put off the time-out
// of the first.
func TestALateStartDoesNotPutOffATimeOut(t *testing.T) {
	run := fanOut(200, 200, "Collect")
	maxFailures(1)(&run.Spec.Steps[0])
	o, now := objects{}, epoch
	o.advance(t, run, now)
	for item := range 180 {
		now = now.Add(500 * time.Millisecond)
		r := ofItem(item, result("all", 1, protocol.StatusStarted))
		r.PublishedAt = now
		o.advance(t, run, now, r)
	}
	if f := run.Status.Steps[0].ForEach; f.Failed == 0 { // 90 s later, with a time-out of 60 s
		t.Errorf("item 0 began %s ago and is in flight: %s", now.Sub(epoch), mustJSON(t, f.Groups))
	}
}
