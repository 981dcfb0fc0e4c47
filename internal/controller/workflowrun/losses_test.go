// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Mutations that make specs below fail:
//   - dispatch.go Unpublished that does not compare losses: the runs wait for their time-outs.
//   - dispatch.go each that records the losses of now, not of when the pass began: the job that the
//     old stream took is never looked for.
//   - dispatch.go Recover that publishes without a look-up: the jobs that are still there are
//     stored twice.
//   - render Job without LostError, or decide.go input without Lost: the attempt whose input
//     is lost hangs.
//   - outputs.go Jobs without a budget: all items are rendered in one pass.
//   - act.go recoverJobs that does not ask for another pass: the items wait for somebody to look.
//   - advance without lookUpJobs: the job that is gone is never looked for.
//   - nats.go WatchNATS that wakes nobody, or NotEnded that trusts the cache with "Pending".
var _ = Describe("when NATS loses its data while the operator runs", func() {
	var (
		w *world
		r *replica
	)
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(ctx)
		r = w.newReplica(ctx, "r")
	}, NodeTimeout(patience))

	// ends drives runs to their ends, with the worker at work. No attempt may run out of time, so
	// each step has only one.
	ends := func(ctx SpecContext, runs ...*v1alpha1.WorkflowRun) {
		GinkgoHelper()
		begin := w.clock.Now()
		for _, run := range runs {
			end := r.finish(ctx, run)
			Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded), run.Name)
			for _, s := range end.Status.Steps {
				Expect(s.Attempt).To(BeNumerically("<=", 1), s.Name)
			}
		}
		until(ctx, "all results are acknowledged", func() bool {
			for _, run := range runs {
				r.turn(ctx, run)
			}
			return w.messages(ctx, w.names.ResultsStream()) == 0
		})
		Expect(w.clock.Since(begin).Minutes()).To(BeNumerically("<", 30), "of the hour that an attempt has")
	}
	recoveries := func(outcome string) float64 {
		return r.counter("syncopate_job_recoveries_total", "outcome", outcome)
	}

	It("the runs under way end, wherever their jobs were", func(ctx SpecContext) {
		queued, taken, answered, items := w.create(ctx, diamond()), w.create(ctx, diamond()), w.create(ctx, diamond()), w.createFanOut(ctx, 20, 20)
		r.inFlight(ctx, taken, 2)
		atWork := w.takeAll(ctx, 2)
		r.inFlight(ctx, answered, 2)
		for _, t := range w.takeAll(ctx, 2) {
			t.succeed(ctx) // the operator has the results, and has not written them
		}
		until(ctx, "the results come", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.pending) == 2
		})
		r.inFlight(ctx, queued, 2)
		r.inFlight(ctx, items, 20)

		w.loseNATS(ctx, r, w.nats.RestartEmpty)
		atWork[0].say(ctx, succeeded(atWork[0].id)) // a worker that was at it when the data was lost
		ends(ctx, queued, taken, answered, items)
		Expect(recoveries("Published")).To(BeNumerically(">=", 22), "those that were queued")
		Expect(r.counter("syncopate_nats_data_losses_total")).To(BeEquivalentTo(2), "of jobs and of results")
	}, NodeTimeout(3*patience))

	It("the runs under way end although another made the streams anew first", func(ctx SpecContext) {
		run := w.create(ctx, diamond())
		r.inFlight(ctx, run, 2)
		var configs []jetstream.StreamConfig
		for _, name := range []string{w.names.JobsStream(), w.names.ResultsStream()} {
			s, err := w.js.Stream(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			configs = append(configs, s.CachedInfo().Config)
			Expect(w.js.DeleteStream(ctx, name)).To(Succeed())
			_, err = w.js.CreateStream(ctx, configs[len(configs)-1])
			Expect(err).NotTo(HaveOccurred())
		}
		w.lossTold(ctx, r)
		ends(ctx, run)
	}, NodeTimeout(2*patience))

	It("only what was in the lost end of a stream is published again", func(ctx SpecContext) {
		kept := w.create(ctx, diamond())
		r.inFlight(ctx, kept, 2)
		store := w.nats.CopyStore()
		w.connected(ctx)
		until(ctx, "the operator is connected again", r.bus.Connected)
		lost := w.create(ctx, diamond())
		r.inFlight(ctx, lost, 2)

		w.loseNATS(ctx, r, func() { w.nats.RestartOn(store) })
		ends(ctx, kept, lost)
		Expect(recoveries("Queued")).To(BeEquivalentTo(2), "those that were in the copy")
		Expect(recoveries("Published")).To(BeEquivalentTo(2))
		Expect(w.jobsStored(ctx)).To(Equal(6))
	}, NodeTimeout(2*patience))

	for place, published := range map[string]int{"publish/after": 1, "recover/after": 2} {
		It("a job that the stream took just before it was lost is published again, at "+place, func(ctx SpecContext) {
			run := w.create(ctx, []v1alpha1.Step{step("a")})
			lost := false
			r.hook = func(ctx context.Context, at string) error {
				switch {
				case at == "publish/before" && place == "recover/after":
					return errors.New("away") // so that the next pass recovers
				case at == place && !lost:
					lost = true
					w.loseNATS(ctx, r, w.nats.RestartEmpty) // and this is noticed before the pass learns that the job was stored
					until(ctx, "both losses are noticed", func() bool { return r.bus.Losses() == 2 })
				}
				return nil
			}
			ends(ctx, run)
			Expect(lost).To(BeTrue())
			Expect(recoveries("Published")).To(BeEquivalentTo(published))
		}, NodeTimeout(2*patience))
	}

	It("nothing is published or looked up again when NATS only restarts", func(ctx SpecContext) {
		runs := []*v1alpha1.WorkflowRun{w.create(ctx, diamond()), w.create(ctx, diamond())}
		for _, run := range runs {
			r.inFlight(ctx, run, 2)
		}
		w.restartNATS(ctx)
		until(ctx, "the operator is connected again", r.bus.Connected)
		for _, run := range runs {
			r.turn(ctx, run)
		}
		ends(ctx, runs...)
		Expect(w.jobsStored(ctx)).To(Equal(6))
		Expect(r.bus.Losses()).To(BeZero())
		Expect(recoveries("Queued") + recoveries("Answered") + recoveries("Published")).To(BeZero())
	}, NodeTimeout(2*patience))

	It("a job that is gone although nobody noticed a loss is published again within minutes, the others are left alone", func(ctx SpecContext) {
		w = newWorld(ctx, withWindow(tinyWindow))
		r = w.newReplica(ctx, "r")
		run, other := w.create(ctx, diamond()), w.create(ctx, diamond())
		b := stepOf(r.inFlight(ctx, run, 2), "b")
		r.inFlight(ctx, other, 2)
		stored := w.jobsStored(ctx)
		s, err := w.js.Stream(ctx, w.names.JobsStream())
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Purge(ctx, jetstream.WithPurgeSubject(w.names.Job(topic, protocol.JobID{RunUID: string(run.UID), Step: "b", Item: protocol.NoItem, Attempt: b.Attempt})))).To(Succeed())
		w.mu.Lock()
		clear(w.stored)
		w.mu.Unlock()

		minutes := func(n int) {
			for range n {
				for _, run := range []*v1alpha1.WorkflowRun{run, other} {
					Expect(r.mustPass(ctx, run).RequeueAfter).To(BeNumerically("<=", lookAgain))
				}
				w.clock.Step(time.Minute)
			}
		}
		w.outliveWindow(ctx)
		minutes(12) // no worker is there
		Expect(recoveries("Published")).To(BeEquivalentTo(1))
		Expect(recoveries("Queued")).To(BeZero())
		Expect(w.jobsStored(ctx)).To(Equal(stored + 1))
		Expect(stepOf(w.get(ctx, run), "b").Attempt).To(Equal(b.Attempt))

		// A worker that acknowledges and does not answer gets it once more, and not without end.
		for _, t := range w.takeAll(ctx, 4) {
			if t.id.RunUID == string(run.UID) && t.id.Step == "b" {
				Expect(t.msg.DoubleAck(ctx)).To(Succeed())
			} else {
				t.succeed(ctx)
			}
		}
		w.outliveWindow(ctx)
		minutes(20)
		Expect(recoveries("Published")).To(BeEquivalentTo(1))
		w.say(ctx, protocol.JobID{RunUID: string(run.UID), Step: "b", Item: protocol.NoItem, Attempt: b.Attempt}, `{"status":"Succeeded"}`)
		ends(ctx, run, other)
	}, NodeTimeout(2*patience))

	It("one attempt whose input is lost, or cannot be read for now, keeps no other from being published again", func(ctx SpecContext) {
		x, y := step("x", "a"), step("y", "a")
		x.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n": "${steps.a.output.n}"}`)}
		x.OnFailure = v1alpha1.FailureContinue
		run := w.create(ctx, []v1alpha1.Step{step("a"), x, y})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
		r.inFlight(ctx, run, 2)

		w.loseNATS(ctx, r, w.nats.RestartEmpty)
		r.hook = failing("read/before")
		r.drive(ctx, run, func(*v1alpha1.WorkflowRun) bool { return recoveries("Published") == 1 })
		Expect(stepOf(w.get(ctx, run), "x").Phase).To(Equal(v1alpha1.StepDispatched), "that nobody answers is no fact")
		r.hook = nil
		begin := w.clock.Now()
		end := r.finish(ctx, run)
		Expect(w.clock.Since(begin).Minutes()).To(BeNumerically("<", 30), "of the hour that an attempt has")
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(stepOf(end, "x").Error.Code).To(Equal(facts.CodeExpressionError))
		Expect(stepOf(end, "x").Error.Message).To(ContainSubstring(payloads.ErrUnusable.Error()))
		Expect(stepOf(end, "x").Attempt).To(BeEquivalentTo(1))
		Expect(stepOf(end, "y").Phase).To(Equal(v1alpha1.StepSucceeded))
		Expect(recoveries("Published")).To(BeEquivalentTo(1))
	}, NodeTimeout(2*patience))

	// mutation: observe.go begin that keeps what was found out of outputs makes this fail.
	It("what was stored for a result that waits for the lock is stored again", func(ctx SpecContext) {
		w.policy(ctx, brief())
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b")})
		r.inFlight(ctx, run, 2)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run) // the lease lingers no more
		r.hook = failing("acquire/before")
		for _, t := range w.takeAll(ctx, 2) {
			if t.id.Step == "a" {
				t.say(ctx, `{"status":"Succeeded","output":`+large(90<<10)+`}`)
			}
		}
		r.pumpAll(ctx, 1)
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(w.objects(ctx)).To(HaveLen(1))
		Expect(r.memories.of(client.ObjectKeyFromObject(run), run.UID).outputs).NotTo(BeEmpty())

		w.loseNATS(ctx, r, w.nats.RestartEmpty)
		until(ctx, "all losses are noticed", func() bool { return r.bus.Losses() == 2 })
		r.hook = nil
		now := r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return stepOf(now, "a").Phase == v1alpha1.StepSucceeded })
		Expect(w.objects(ctx)).To(ConsistOf(stepOf(now, "a").OutputRef.Name))
	}, NodeTimeout(2*patience))

	It("many large inputs are rendered again in portions, one pass after the other", func(ctx SpecContext) {
		const items = 60
		steps, inputs := fanOut(items, items, v1alpha1.FailStep)
		steps[0].Job.Input = &runtime.RawExtension{Raw: []byte(`{"number":"${item}","x":"${inputs.pad}","y":"${inputs.pad}","z":"${inputs.pad}"}`)}
		run := w.create(ctx, steps, inputs, func(spec *v1alpha1.WorkflowRunSpec) {
			spec.Inputs.Raw = bytes.Replace(spec.Inputs.Raw, []byte(`{`), fmt.Appendf(nil, `{"pad":%q,`, strings.Repeat("x", 55<<10)), 1)
		})
		r.inFlight(ctx, run, items)
		w.loseNATS(ctx, r, w.nats.RestartEmpty)
		passes, most, atOnce := 0, 0.0, false
		until(ctx, "all are published again", func() bool {
			passes++
			before := recoveries("Published")
			again := r.mustPass(ctx, run).RequeueAfter
			now := recoveries("Published")
			most = max(most, now-before)
			atOnce = atOnce || (now > before && now < items && again < actRetryDelay)
			return now == items
		})
		Expect(passes).To(BeNumerically(">", 2))
		Expect(most).To(BeNumerically("<", items*2/3), "no pass may render more")
		Expect(atOnce).To(BeTrue(), "it goes on at once")
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(3*patience))

	It("all runs that have not ended are woken", func(ctx SpecContext) {
		over, fresh, waiting := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, diamond()), w.create(ctx, diamond())
		r.Index.See(r.finish(ctx, over))
		r.Index.See(fresh) // the cache does not know yet what was dispatched for it
		r.inFlight(ctx, fresh, 2)
		r.Index.See(r.inFlight(ctx, waiting, 2))
		r.Index.See(fresh)
		q := newQueue()
		r.Waker.queue.Store(&q)
		news := make(chan struct{}, 1)
		running(ctx, r.WatchNATS(news, nil).Start)
		news <- struct{}{}
		woken := map[types.NamespacedName]bool{}
		until(ctx, "two runs are woken", func() bool {
			for q.Len() > 0 {
				req, _ := q.Get()
				woken[req.NamespacedName] = true
				q.Done(req)
			}
			return len(woken) == 2
		})
		Expect(woken).To(HaveKey(client.ObjectKeyFromObject(fresh)))
		Expect(woken).To(HaveKey(client.ObjectKeyFromObject(waiting)))
		Expect(lifecycle.Finished(w.get(ctx, over))).To(BeTrue())
	}, NodeTimeout(2*patience))
})
