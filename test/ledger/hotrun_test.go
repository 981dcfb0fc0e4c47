// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	hotTopic  = "ledger.hot"
	coldTopic = "ledger.cold"
	// tolerance is an order of magnitude: what a test may say about speed.
	tolerance = 10
	// leastBound keeps that from being tighter than a busy machine is slow.
	leastBound = 15 * time.Second
)

// heat is one hot run beside many cold ones.
type heat struct {
	cold     int           // runs of one step each
	pace     time.Duration // between two results of cold runs
	steps    int           // of the hot run, all in parallel
	rounds   int           // results of each step, each after Started; all but the last ask for a retry at once
	patience time.Duration
}

// beside is what goes on while cold runs are measured.
type beside string

const (
	nothing beside = "nothing"
	// hotRun is a run with many results.
	hotRun beside = "a hot run"
	// hotWrites are the status writes of the last hot run and nothing else of it: as many, as
	// large, in the same time, by a client that is not the operator. What is as slow beside them is
	// the API server's time, and no operator could change it.
	hotWrites beside = "its writes alone"
)

// TestAHotRunDelaysNoOther holds small runs against an order of magnitude. BenchmarkHotRun
// has the figures.
//
// mutation: consumers that let one result at a time be unsettled (AckPending 8) make this fail: 42
// s instead of 1 s.
func TestAHotRunDelaysNoOther(t *testing.T) {
	s := newStove(t.Context(), t, heat{cold: 60, pace: 50 * time.Millisecond, steps: 60, rounds: 5, patience: 2 * time.Minute})
	without := s.measure(t.Context(), nothing)
	with := s.measure(t.Context(), hotRun)
	t.Logf("beside nothing: %s; beside a hot run: %s", without, with)
	if bound := max(leastBound, tolerance*without.p99); with.p99 > bound {
		t.Errorf("p99 beside a hot run is %s, more than %s", with.p99, bound)
	}
}

// BenchmarkHotRun measures 1,000 cold runs beside nothing, beside a hot run of 1,000 results, and
// beside its writes, in turns.
func BenchmarkHotRun(b *testing.B) {
	for _, perSecond := range []int{25, 50} {
		b.Run(fmt.Sprintf("cold=%d/s", perSecond), func(b *testing.B) {
			pace := time.Second / time.Duration(perSecond)
			s := newStove(b.Context(), b, heat{cold: 1000, pace: pace, steps: 200, rounds: 5, patience: 10 * time.Minute})
			s.measure(b.Context(), hotRun) // connections, caches
			var ratios, controls []float64
			for range b.N {
				var p99 []float64
				for _, what := range []beside{nothing, hotRun, hotWrites} {
					l := s.measure(b.Context(), what)
					p99 = append(p99, l.p99.Seconds())
					s.w.note("%d cold results a second beside %s: %s; p99 ratio %.2f", perSecond, what, l, p99[len(p99)-1]/p99[0])
				}
				ratios, controls = append(ratios, p99[1]/p99[0]), append(controls, p99[2]/p99[0])
			}
			b.ReportMetric(median(ratios), "p99-ratio")
			b.ReportMetric(median(controls), "p99-ratio-of-writes")
		})
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// stove is where hot and cold runs meet: one operator, from the first measurement to the last.
type stove struct {
	w         *world
	o         *operator
	heat      heat
	hot, cold *desk

	last  latencies // beside the last hot run
	model *v1alpha1.WorkflowRun

	mu   sync.Mutex
	ends map[string]time.Time // when the watch told of the end of each run, by its UID
}

func newStove(ctx context.Context, tb testing.TB, h heat) *stove {
	tb.Helper()
	w := newWorld(ctx, tb)
	s := &stove{w: w, heat: h, ends: map[string]time.Time{}}
	w.follow(ctx, func(_, next *v1alpha1.WorkflowRun, at time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, known := s.ends[string(next.UID)]; !known && !next.Unwritten() && next.Status.CompletedAt != nil {
			s.ends[string(next.UID)] = at
		}
	})
	s.o = w.startOperator(ctx, "operator")
	s.hot, s.cold = w.openDesk(ctx, hotTopic), w.openDesk(ctx, coldTopic)
	return s
}

// spread sums up some times.
type spread struct{ p50, p99, most time.Duration }

func spreadOf(all []time.Duration) spread {
	if len(all) == 0 {
		return spread{}
	}
	slices.Sort(all)
	return spread{p50: all[len(all)/2], p99: all[len(all)*99/100], most: all[len(all)-1]}
}

func (s spread) String() string {
	return fmt.Sprintf("p50 %s, p99 %s, max %s", s.p50.Round(time.Millisecond), s.p99.Round(time.Millisecond), s.most.Round(time.Millisecond))
}

// latencies are the times from the publication of a cold run's result to its status, as a
// watch sees it.
type latencies struct {
	spread
	during, near spread        // of those published while the hot run was hot, and of these, those that share its consumer
	hot          time.Duration // how long that was; 0: there was none
	writes       float64       // status writes of the operator
}

func (l latencies) String() string {
	text := fmt.Sprintf("%s, %.0f status writes", l.spread, l.writes)
	if l.hot > 0 {
		text += fmt.Sprintf("; during %s: %s; on the same consumer: %s", l.hot.Round(10*time.Millisecond), l.during, l.near)
	}
	return text
}

// measure has the jobs of all runs taken before the first result is published, so that nothing but
// results is measured.
func (s *stove) measure(ctx context.Context, what beside) latencies {
	s.w.tb.Helper()
	s.w.create(ctx, numbered("cold", s.heat.cold, parallelSteps(coldTopic, 1)))
	cold := s.cold.take(ctx, s.w.tb, s.heat.patience, s.heat.cold)
	var hot []deskJob
	var model *v1alpha1.WorkflowRun
	switch what {
	case hotRun:
		s.w.create(ctx, numbered("hot", 1, parallelSteps(hotTopic, s.heat.steps)))
		hot = s.hot.take(ctx, s.w.tb, s.heat.patience, s.heat.steps)
	case hotWrites:
		model = s.copyOfLast(ctx)
	case nothing:
	}
	writes := s.o.counter(ctx, "syncopate_status_writes_total", "accepted")
	var cooking sync.WaitGroup
	sent := make([]time.Time, len(cold))
	cooking.Go(func() { s.trickle(ctx, cold, sent) })
	result, begin := latencies{}, time.Now()
	switch what {
	case hotRun:
		result.hot = s.boil(ctx, hot)
	case hotWrites:
		result.hot = s.rewrite(ctx, model)
	case nothing:
	}
	cooking.Wait()
	s.awaitEnds(ctx, cold)
	result.writes = s.o.counter(ctx, "syncopate_status_writes_total", "accepted") - writes
	if what == hotRun {
		s.model = s.w.run(ctx, hot[0].run)
	}
	s.sumUp(&result, cold, sent, begin)
	if what == hotRun {
		s.last = result
	}
	s.clear(ctx)
	return result
}

// copyOfLast makes a run with the status of the last hot one: finished, so that the operator
// leaves it alone.
func (s *stove) copyOfLast(ctx context.Context) *v1alpha1.WorkflowRun {
	s.w.tb.Helper()
	runs := numbered("writes", 1, parallelSteps(hotTopic, s.heat.steps))
	runs[0].Spec.Suspend = true
	s.w.create(ctx, runs)
	await(ctx, s.w.tb, s.heat.patience, "the operator has seen the run", func() string {
		if runs[0] = s.w.run(ctx, runs[0].Name); runs[0].Unwritten() {
			return "not yet"
		}
		return ""
	})
	tenant, fence := runs[0].Status.Tenant, runs[0].Status.Fence
	runs[0].Status = s.model.Status.DeepCopy()
	runs[0].Status.Tenant, runs[0].Status.Fence = tenant, fence
	s.write(ctx, runs[0])
	return runs[0]
}

// rewrite writes the status as often as the hot run did, in the same time.
func (s *stove) rewrite(ctx context.Context, run *v1alpha1.WorkflowRun) time.Duration {
	s.w.tb.Helper()
	begin := time.Now()
	count := int(s.last.writes) - s.heat.cold
	tick := time.NewTicker(s.last.hot / time.Duration(count))
	defer tick.Stop()
	for range count {
		s.write(ctx, run)
		<-tick.C
	}
	return time.Since(begin)
}

// write stores a status as its next writer would.
func (s *stove) write(ctx context.Context, run *v1alpha1.WorkflowRun) {
	s.w.tb.Helper()
	fence := int64(1)
	if run.Status.Fence != nil {
		fence = *run.Status.Fence + 1
	}
	run.Status.Fence = &fence
	run.Status.Lock = &v1alpha1.RunLockStatus{LeaseID: fmt.Sprintf("lease-%d", fence), Holder: "nobody"}
	if err := site.k8s.Status().Update(ctx, run); err != nil {
		s.w.tb.Fatal(err)
	}
}

// trickle answers the cold runs at their pace, however long the answers take.
func (s *stove) trickle(ctx context.Context, cold []deskJob, sent []time.Time) {
	tick := time.NewTicker(s.heat.pace)
	defer tick.Stop()
	for i, j := range cold {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		sent[i] = time.Now()
		if _, err := s.w.js.PublishMsgAsync(j.message(book.Success())); err != nil {
			s.w.tb.Error(err)
		}
	}
}

// boil answers all steps of the hot run at once, round after round.
func (s *stove) boil(ctx context.Context, jobs []deskJob) time.Duration {
	s.w.tb.Helper()
	begin := time.Now()
	for round := range s.heat.rounds {
		kind := book.Retries
		if round == s.heat.rounds-1 {
			kind = book.Succeeds
		}
		for _, j := range jobs {
			for _, m := range []*nats.Msg{j.started(), j.message(kind.Body("", 0))} {
				if _, err := s.w.js.PublishMsgAsync(m); err != nil {
					s.w.tb.Fatal(err)
				}
			}
		}
		if kind == book.Retries {
			jobs = s.hot.take(ctx, s.w.tb, s.heat.patience, s.heat.steps)
		}
	}
	s.awaitEnds(ctx, jobs)
	return time.Since(begin)
}

func (s *stove) awaitEnds(ctx context.Context, jobs []deskJob) {
	s.w.tb.Helper()
	await(ctx, s.w.tb, s.heat.patience, "the runs end", func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, j := range jobs {
			if _, ended := s.ends[j.id.RunUID]; !ended {
				return j.id.String()
			}
		}
		return ""
	})
}

func (s *stove) sumUp(l *latencies, cold []deskJob, sent []time.Time, begin time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all, during, near []time.Duration
	for i, j := range cold {
		took := s.ends[j.id.RunUID].Sub(sent[i])
		all = append(all, took)
		if sent[i].Sub(begin) > l.hot {
			continue
		}
		during = append(during, took)
		if s.model != nil && consumerOf(j.id.RunUID) == consumerOf(string(s.model.UID)) {
			near = append(near, took)
		}
	}
	l.spread, l.during, l.near = spreadOf(all), spreadOf(during), spreadOf(near)
}

// consumerOf is the number of the consumer that gets the results of a run.
func consumerOf(uid string) int { return protocol.Partition(uid) / partitions8 }

// clear checks that nothing was lost or put aside, and makes room for the next measurement.
func (s *stove) clear(ctx context.Context) {
	s.w.tb.Helper()
	s.w.expectSettled(ctx, s.heat.patience)
	s.w.expectDeadLetters(ctx, 0)
	for _, run := range s.w.runs(ctx) {
		if run.Unwritten() || run.Status.Phase != v1alpha1.RunSucceeded {
			s.w.tb.Errorf("run %s did not succeed", run.Name)
		}
	}
	s.w.deleteRuns(ctx, s.heat.patience)
}

// parallelSteps is a run of steps that do not depend on each other.
func parallelSteps(topic string, n int) v1alpha1.WorkflowRunSpec {
	spec := v1alpha1.WorkflowRunSpec{MaxParallelSteps: int32(n)}
	for i := range n {
		spec.Steps = append(spec.Steps, v1alpha1.Step{Name: book.StepName(i), Job: &v1alpha1.Job{Topic: topic}})
	}
	return spec
}

// numbered makes runs of one specification.
func numbered(name string, n int, spec v1alpha1.WorkflowRunSpec) []*v1alpha1.WorkflowRun {
	runs := make([]*v1alpha1.WorkflowRun, n)
	for i := range runs {
		runs[i] = &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", name, i)}, Spec: *spec.DeepCopy()}
	}
	return runs
}
