// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// hookedOutputs is the object store of a replica, with a place before and after each use.
type hookedOutputs struct{ r *replica }

func (h hookedOutputs) Put(ctx context.Context, ref protocol.OutputRef, data []byte) error {
	return h.r.around(ctx, "store", func() error { return h.r.bus.Payloads.Put(ctx, ref, data) })
}

func (h hookedOutputs) Get(ctx context.Context, ref protocol.OutputRef) (data []byte, err error) {
	err = h.r.around(ctx, "read", func() error {
		data, err = h.r.bus.Payloads.Get(ctx, ref)
		return err
	})
	return data, err
}

func (h hookedOutputs) List(ctx context.Context) ([]string, error) { return h.r.bus.Payloads.List(ctx) }

func (h hookedOutputs) Drop(ctx context.Context, names []string) error {
	return h.r.around(ctx, "drop", func() error { return h.r.bus.Payloads.Drop(ctx, names) })
}

// withoutOne is an object store that does not answer about one object.
type withoutOne struct {
	hookedOutputs
	away string
}

func (o withoutOne) Get(ctx context.Context, ref protocol.OutputRef) ([]byte, error) {
	if ref.Name == o.away {
		return nil, errTest
	}
	return o.hookedOutputs.Get(ctx, ref)
}

// impatient has any upload that did not name its parts yet taken for broken off: servers have
// their own clock.
type impatient struct{ *payloads.Store }

func (i impatient) LooseParts(ctx context.Context, _ time.Duration) ([]string, error) {
	return i.Store.LooseParts(ctx, 0)
}

func (w *world) objects(ctx context.Context) []string {
	store, err := w.js.ObjectStore(ctx, w.names.PayloadsBucket())
	Expect(err).NotTo(HaveOccurred())
	list, err := store.List(ctx)
	if err != nil {
		Expect(err).To(MatchError(jetstream.ErrNoObjectsFound))
	}
	var names []string
	for _, o := range list {
		names = append(names, o.Name)
	}
	return names
}

// upload stores an output as the worker of a job does, and gives the body of its result.
func (w *world) upload(ctx context.Context, id protocol.JobID, output string) string {
	store, err := w.js.ObjectStore(ctx, w.names.PayloadsBucket())
	Expect(err).NotTo(HaveOccurred())
	ref := protocol.NewOutputRef(id, []byte(output))
	_, err = store.PutBytes(ctx, ref.Name, []byte(output))
	Expect(err).NotTo(HaveOccurred())
	return referring(ref)
}

func referring(ref protocol.OutputRef) string {
	body, err := json.Marshal(protocol.Result{Status: protocol.StatusSucceeded, OutputRef: &ref})
	Expect(err).NotTo(HaveOccurred())
	return string(body)
}

func large(n int) string { return fmt.Sprintf(`{"n":17,"text":%q}`, strings.Repeat("x", n)) }

// readers is a step with a large output, one that reads some of it, and one that hands
// its reference on.
func readers() []v1alpha1.Step {
	b, c := step("b", "a"), step("c", "a")
	b.Job.Input = &runtime.RawExtension{Raw: []byte(`{"n": "${steps.a.output.n}"}`)}
	c.Job.Input = &runtime.RawExtension{Raw: []byte(`{"ref": "${steps.a.outputRef}"}`)}
	return []v1alpha1.Step{step("a"), b, c}
}

var _ = Describe("outputs in the object store", func() {
	// The worker's way: too large for a result. The operator's: too large for status only.
	ways := map[string]func(ctx context.Context, w *world, t *task){
		"a worker put there": func(ctx context.Context, w *world, t *task) { t.say(ctx, w.upload(ctx, t.id, large(100<<10))) },
		"the operator puts there": func(ctx context.Context, _ *world, t *task) {
			t.say(ctx, `{"status":"Succeeded","output":`+large(10<<10)+`}`)
		},
	}
	// mutation: Jobs.Input (outputs) without load makes "store/after" and "publish/before" fail;
	// an object's name that is not made of its bytes, another word in status.
	for way, answer := range ways {
		for _, place := range []string{"", "store/before", "store/after", "read/before", "read/after", "status/after", "publish/before", "settle/before"} {
			if (place == "store/before" || place == "store/after") && way == "a worker put there" {
				continue
			}
			It(fmt.Sprintf("that %s are read, whatever crashes (%s)", way, place), matrix, func(ctx SpecContext) {
				w := newWorld(ctx, withWindow(tinyWindow))
				run := w.create(ctx, readers())
				first := w.newReplica(ctx, "first")
				first.inFlight(ctx, run, 1)
				answer(ctx, w, w.takeAll(ctx, 1)[0])
				first.pumpAll(ctx, 1)
				if place != "" {
					first.killAt(place, 1)
				}
				first.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return len(lifecycle.InFlight(now)) == 2 })
				first.kill(ctx)
				w.outliveWindow(ctx)
				w.dropLock(ctx, run)

				second := w.newReplica(ctx, "second")
				second.inFlight(ctx, run, 2)
				inputs := map[string]string{}
				for _, t := range w.takeAll(ctx, 2) {
					inputs[t.id.Step] = string(t.msg.Data())
					t.succeed(ctx)
				}
				end := second.finish(ctx, run)
				Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded))
				ref := end.Status.Steps[0].OutputRef
				Expect(ref).NotTo(BeNil())
				Expect(end.Status.Steps[0].Output).To(BeNil())
				Expect(inputs["b"]).To(MatchJSON(`{"n":17}`))
				Expect(inputs["c"]).To(MatchJSON(fmt.Sprintf(`{"ref":{"name":%q,"digest":%q,"size":%d}}`, ref.Name, ref.Digest, ref.Size)))
				Expect(w.objects(ctx)).To(ConsistOf(ref.Name))
			}, NodeTimeout(2*patience))
		}
	}

	It("that are not what their result says fail the attempt, with a reason and a dead letter", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		s := step("a")
		s.Retry = v1alpha1.Retry{MaxFailures: 1}
		run := w.create(ctx, []v1alpha1.Step{s})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		w.upload(ctx, t.id, large(100<<10))
		t.say(ctx, referring(protocol.NewOutputRef(t.id, []byte("other bytes"))))
		end := r.drive(ctx, run, lifecycle.Finished)
		Expect(end.Status.Steps[0].Error.Code).To(Equal(facts.CodeResultRejected))
		Expect(end.Status.Steps[0].Error.Message).To(ContainSubstring("there is no object"))
		r.drained(ctx, run)
		Expect(w.deadLetters(ctx)).To(HaveLen(1))
	}, NodeTimeout(patience))

	// mutation: a pass that ends when the object store fails (decide) makes the cancel wait; giving
	// nothing back in overdue keeps the result in memory for ever.
	It("that cannot be read hold up their result alone", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a"), step("b"), step("c", "b")})
		r.inFlight(ctx, run, 2)
		for _, t := range w.takeAll(ctx, 2) {
			if t.id.Step == "a" {
				t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
			} else {
				t.succeed(ctx)
			}
		}
		r.pumpAll(ctx, 2)
		r.hook = func(_ context.Context, at string) error {
			if at == "read/before" {
				return errTest
			}
			return nil
		}
		r.inFlight(ctx, run, 2) // a, and c after b
		w.clock.Step(resultPatience)
		until(ctx, "the result goes back to NATS", func() bool {
			r.mustPass(ctx, run)
			for _, s := range w.settledWith(run) {
				if s.id.Step == "a" {
					return s.err != nil
				}
			}
			return false
		})
		w.patch(ctx, run, `{"spec":{"shutdown":"Cancel"}}`)
		Expect(r.drive(ctx, run, lifecycle.Finished).Status.Phase).To(Equal(v1alpha1.RunCancelled))
	}, NodeTimeout(patience))

	// mutation: decide that ends with the first Supply that fails makes this fail.
	It("of which one cannot be read hold up no other", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.createFanOut(ctx, 10, 10)
		r.inFlight(ctx, run, 10)
		tasks := w.takeAll(ctx, 10)
		var away string
		for k, t := range tasks {
			output := large(100<<10 + k)
			t.say(ctx, w.upload(ctx, t.id, output))
			away = protocol.NewOutputRef(t.id, []byte(output)).Name
		}
		r.pumpAll(ctx, 10)
		r.Outputs = withoutOne{hookedOutputs{r}, away}
		w.clock.Step(time.Second)
		r.mustPass(ctx, run)
		Expect(lifecycle.InFlight(w.get(ctx, run))).To(HaveLen(1))

		r.Outputs = hookedOutputs{r}
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
	}, NodeTimeout(2*patience))

	// mutation: a tombstone without outputs, or a collector that drops none, makes this fail; one
	// that drops what belongs to runs that exist does, too.
	It("are dropped with their run, those of which status knows at once", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		gone, kept := w.create(ctx, []v1alpha1.Step{step("a")}), w.create(ctx, []v1alpha1.Step{step("a")})
		for _, run := range []*v1alpha1.WorkflowRun{gone, kept} {
			r.inFlight(ctx, run, 1)
			t := w.takeAll(ctx, 1)[0]
			w.upload(ctx, t.id, large(70<<10)) // of an earlier delivery of the job
			t.say(ctx, w.upload(ctx, t.id, large(80<<10)))
			Expect(r.drive(ctx, run, lifecycle.Finished).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		}
		Expect(w.objects(ctx)).To(HaveLen(4))
		r.deleteRun(ctx, gone)
		r.mustPass(ctx, gone)
		Expect(w.objects(ctx)).To(HaveLen(3))
		r.GC.Uploads = impatient{r.bus.Payloads} // a client made up the names of the parts: they are loose now
		Expect(r.GC.Round(ctx)).To(Succeed())
		Expect(w.objects(ctx)).To(HaveLen(2))
		for _, name := range w.objects(ctx) {
			Expect(name).To(HavePrefix(string(kept.UID)))
		}
		Expect(w.stream(ctx, "OBJ_"+w.names.PayloadsBucket()).Msgs).To(BeEquivalentTo(4), "one for each object and one for its bytes")
	}, NodeTimeout(patience))

	// mutations: conclude that drops what a write has taken over; passUnder that drops nothing.
	It("of items' workers are dropped while others may have the lock", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		steps, list := fanOut(8, 8, "")
		run := w.create(ctx, steps[:1], list)
		r.inFlight(ctx, run, 8)
		var dropped, locked atomic.Int32
		r.hook = func(ctx context.Context, at string) error {
			if at == "drop/before" {
				dropped.Add(1)
				if w.locked(ctx, run) {
					locked.Add(1)
				}
			}
			return nil
		}
		for _, t := range w.takeAll(ctx, 8) {
			t.say(ctx, w.upload(ctx, t.id, `{"small":1}`))
			Expect(t.msg.DoubleAck(ctx)).To(Succeed())
		}
		r.pumpAll(ctx, 8)
		Expect(r.finish(ctx, run).Status.Phase).To(Equal(v1alpha1.RunSucceeded))
		Expect(dropped.Load()).NotTo(BeZero())
		Expect(locked.Load()).To(BeZero())
		Expect(w.objects(ctx)).To(BeEmpty())
	}, NodeTimeout(patience))

	// mutation: a collector that drops nothing makes this fail.
	It("leave no parts behind whose upload was broken off", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		_, err := w.js.Publish(ctx, "$O."+w.names.PayloadsBucket()+".C.brokenoff", []byte("part"))
		Expect(err).NotTo(HaveOccurred())
		r.GC.Uploads = impatient{r.bus.Payloads}
		Expect(r.GC.Round(ctx)).To(Succeed())
		Expect(w.stream(ctx, "OBJ_"+w.names.PayloadsBucket()).Msgs).To(BeZero())
	}, NodeTimeout(patience))

	// An upload may take longer than two rounds of the collector, which are 30 s apart
	// when one failed.
	//
	// mutation: dropping parts that were loose in the round before, however late the last of them
	// came, makes this fail.
	It("are whole though their upload took longer than rounds of the garbage collector do", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		s := step("a")
		s.Retry = v1alpha1.Retry{MaxFailures: 1}
		run := w.create(ctx, []v1alpha1.Step{s})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		data := []byte(large(100 << 10))
		ref, nuid := protocol.NewOutputRef(t.id, data), protocol.PayloadNUID(t.id.RunUID, "slow")
		part := func(data []byte) {
			_, err := w.js.Publish(ctx, w.names.PayloadChunks(nuid), data)
			Expect(err).NotTo(HaveOccurred())
		}
		part(data[:1000])
		for range 3 {
			Expect(r.GC.Round(ctx)).To(Succeed())
		}
		part(data[1000:])
		entry, err := json.Marshal(w.names.NewPayloadEntry(ref, nuid, 2))
		Expect(err).NotTo(HaveOccurred())
		_, err = w.js.Publish(ctx, w.names.PayloadEntry(ref.Name), entry)
		Expect(err).NotTo(HaveOccurred())
		t.say(ctx, referring(ref))
		end := r.drive(ctx, run, lifecycle.Finished)
		Expect(end.Status.Phase).To(Equal(v1alpha1.RunSucceeded), "%v", end.Status.Steps[0].Error)
	}, NodeTimeout(patience))
})
