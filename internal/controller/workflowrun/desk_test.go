// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/children"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/dispatch"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/holds"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// After a loss of NATS' data, or a take-over, many runs have jobs to bring to NATS again, all at
// the same time. Who waits for a desk to render them has no place for passes, and no lock.
var _ = Describe("What is rendered again of large outputs", func() {
	const read = `{"n": "${steps.a.output.n}"}`
	// mutations: loadAll that asks for a desk and waits for it; recoverJobs or createChildren that
	// takes it for an error; createChildren that has no pass come; conclude that does not note what
	// is left; deskFirst that asks for none, makes a row fail.
	DescribeTable("is rendered at a desk, for which nobody waits under the lock of a run", func(ctx SpecContext, reader func(*world) v1alpha1.Step, place string, there func(context.Context, *world, *v1alpha1.WorkflowRun) bool) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		q := r.awake()
		run := w.create(ctx, []v1alpha1.Step{step("a"), reader(w)})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.say(ctx, w.upload(ctx, t.id, large(300<<10)))
		r.pumpAll(ctx, 1)
		r.hook = func(_ context.Context, at string) error {
			if at == place || at == "recover/before" {
				return errTest
			}
			return nil
		}
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return !now.Unwritten() && isInFlight(stepOf(now, "b").Phase) })
		r.hook = nil

		r.memories.peek(client.ObjectKeyFromObject(run)).children = children.State{} // as after a take-over: no retry is due
		w.clock.Step(longestStep)
		leave := r.fullDesks(ctx)
		var told []string
		logger := log.IntoContext(ctx, funcr.New(func(_, args string) { told = append(told, args) }, funcr.Options{}))
		pass := func() reconcile.Result {
			GinkgoHelper()
			result, err := r.Reconcile(logger, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(run)})
			Expect(err).NotTo(HaveOccurred())
			return result
		}
		Expect(pass().RequeueAfter).To(Equal(time.Millisecond), "the next pass comes at once")
		Expect(pass()).To(Equal(reconcile.Result{}), "it is in line")
		Expect(told).NotTo(ContainElement(ContainSubstring(`"error"=`)))
		Expect(there(ctx, w, run)).To(BeFalse())

		leave()
		r.woken(ctx, q, "it is there", func() bool { return there(ctx, w, run) })
	},
		Entry("for an attempt", func(*world) v1alpha1.Step {
			b := step("b", "a")
			b.Job.Input = &runtime.RawExtension{Raw: []byte(read)}
			return b
		}, "publish/before", func(ctx context.Context, w *world, _ *v1alpha1.WorkflowRun) bool { return w.jobsQueued(ctx) == 2 }, NodeTimeout(2*patience)),
		Entry("for a child run", func(w *world) v1alpha1.Step {
			b := w.childStep("b", draws, "a")
			b.Run.Inputs = &runtime.RawExtension{Raw: []byte(read)}
			return b
		}, "create/before", func(ctx context.Context, w *world, _ *v1alpha1.WorkflowRun) bool {
			var list v1alpha1.WorkflowRunList
			Expect(w.client.List(ctx, &list, client.InNamespace(w.ns))).To(Succeed())
			return len(list.Items) == 2
		}, NodeTimeout(2*patience)),
	)

	// mutation: deskFirst without one of its conditions makes a step fail.
	It("takes no desk where the pass could do nothing with it", func(ctx SpecContext) {
		w := newWorld(ctx)
		w.policy(ctx, brief())
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		toDesk := func() *memory {
			m := r.memories.peek(client.ObjectKeyFromObject(run))
			m.toDesk = true
			w.clock.Step(longestStep)
			return m
		}
		leave := r.fullDesks(ctx)
		toDesk()
		Expect(r.mustPass(ctx, run).RequeueAfter).NotTo(BeZero(), "nothing is to be rendered")

		toDesk().jobs = dispatch.State{} // as after a loss of NATS' data
		r.outage = w.clock.Now()
		Expect(r.mustPass(ctx, run).RequeueAfter).NotTo(BeZero(), "NATS is away")

		r.outage = time.Time{}
		leave()
		w.takeLock(ctx, run)
		toDesk().jobs = dispatch.State{}
		r.mustPass(ctx, run)
		leave = r.fullDesks(ctx)
		toDesk()
		Expect(r.mustPass(ctx, run).RequeueAfter).NotTo(BeZero(), "the lock is busy")
		Expect(toDesk().jobs.Unpublished(w.get(ctx, run), r.bus.Losses())).NotTo(BeEmpty())

		w.dropLock(ctx, run)
		leave()
		r.finish(ctx, run)
	}, NodeTimeout(2*patience))
})

// There are one or two desks for all runs, and the object store may be silent for seconds.
//
// mutation: supply that keeps the desk makes this fail.
var _ = Describe("A run that needs a desk to decide, and an output to do so", func() {
	It("has no desk while the object store is silent", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		r.Turns = shares.NewTurns(16, shares.KindMetrics{}, r.Waker.Wake).WithAside(shares.Aside, shares.KindMetrics{})
		r.Desks = shares.NewDesks(shares.Room{Desks: 1}, r.Turns, r.Clock, shares.KindMetrics{})
		steps := []v1alpha1.Step{step("a"), step("b", "a")}
		for i := range 60 {
			s := step(fmt.Sprintf("s%d", i), "a", "b")
			s.When = fmt.Sprintf("steps.a.output.n == 17 && [%d].map(x, x + 1).map(x, x + 2).size() == 1", i)
			steps = append(steps, s)
		}
		run := w.create(ctx, steps)
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		t.say(ctx, w.upload(ctx, t.id, large(100<<10)))
		r.pumpAll(ctx, 1)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return isInFlight(stepOf(now, "b").Phase) })

		over, end := context.WithCancel(ctx)
		end() // who looks does not wait
		var free []bool
		r.hook = func(_ context.Context, at string) error {
			if at != "read/before" {
				return nil
			}
			probe := r.Desks.For("others")
			free = append(free, probe.SitDown(over))
			probe.StandUp()
			return errTest
		}
		w.takeAll(ctx, 1)[0].succeed(ctx)
		r.pumpAll(ctx, 1)
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool {
			return stepOf(now, "b").Phase == v1alpha1.StepSucceeded && len(free) > 0
		})
		for free = nil; len(free) < 3; {
			w.clock.Step(longestStep)
			r.mustPass(ctx, run)
		}
		Expect(free).To(HaveEach(true), "others find the desk")

		r.hook = nil
		r.drive(ctx, run, func(now *v1alpha1.WorkflowRun) bool { return isInFlight(stepOf(now, "s0").Phase) })
	}, NodeTimeout(2*patience))
})

// mutation: deskForObject that goes by the last write alone makes this fail.
var _ = Describe("A large run", func() {
	It("waits for its desk without its lock, also where its owner is new", func(ctx SpecContext) {
		w := newWorld(ctx)
		r := w.newReplica(ctx, "r")
		run := w.create(ctx, []v1alpha1.Step{step("a")})
		r.inFlight(ctx, run, 1)
		t := w.takeAll(ctx, 1)[0]
		w.patch(ctx, run, fmt.Sprintf(`{"metadata":{"annotations":{"large":%q}}}`, strings.Repeat("x", 100<<10)))
		r.kill(ctx)
		w.dropLock(ctx, run)

		next := w.newReplica(ctx, "next")
		next.Writes = shares.New(1, false, shares.KindMetrics{})
		next.Index.See(w.get(ctx, run))
		q := next.awake()
		t.succeed(ctx)
		next.pumpAll(ctx, 1)
		leave := next.fullDesks(ctx)
		w.clock.Step(time.Second)
		Expect(next.mustPass(ctx, run)).To(Equal(reconcile.Result{}), "it is in line")
		Expect(w.locked(ctx, run)).To(BeFalse())

		leave()
		next.woken(ctx, q, "the run ends", func() bool { return finished(w.get(ctx, run)) })
	}, NodeTimeout(2*patience))
})

// fullDesks has the one desk of a replica taken, and all places aside.
func (r *replica) fullDesks(ctx context.Context) (leave func()) {
	GinkgoHelper()
	r.Turns = shares.NewTurns(16, shares.KindMetrics{}, r.Waker.Wake).WithAside(shares.Aside, shares.KindMetrics{})
	r.Desks = shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, r.Turns, r.Clock, shares.KindMetrics{})
	other := r.Desks.For("others")
	Expect(other.SitDown(ctx)).To(BeTrue())
	leave = func() {
		other.StandUp()
		r.w.clock.Step(longestStep) // the desk rests
	}
	for i := range shares.Aside {
		namespace, before := fmt.Sprint("other-", i), leave
		turn, may := r.Turns.Enter(types.NamespacedName{Namespace: namespace, Name: "run"})
		Expect(may).To(BeTrue())
		desk := r.Desks.For(namespace)
		desk.From(turn)
		Expect(desk.StepAside()).To(Succeed())
		leave = func() {
			before()
			r.Turns.Release(turn)
		}
	}
	return leave
}

// mutation: mayWrite that does not ask for a desk makes this fail.
func TestALargeRunIsWrittenFromADesk(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	turns := shares.NewTurns(2, shares.KindMetrics{}, func(types.NamespacedName) {})
	r := &Reconciler{Clock: clk, Turns: turns, Desks: shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, turns, clk, shares.KindMetrics{}), Writes: shares.New(1, false, shares.KindMetrics{})}
	if !r.Desks.For("a").SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for bytes, want := range map[int]bool{1 << 10: false, 1 << 20: true} {
		p := &pass{r: r, desk: r.Desks.For("b"), run: aRun("1"), mem: &memory{lastWriteBytes: bytes}}
		done, err := p.mayWrite(ctx, aRun("1"))
		if err == nil {
			done()
		}
		if errors.Is(err, errTest) != want {
			t.Errorf("a write of %d bytes waits for a desk: %t", bytes, !want)
		}
	}
}

// mutation: deskForObject that measures the run of the pass makes this fail.
func TestARunIsMeasuredAsItIsStored(t *testing.T) {
	p := &pass{run: aRun("1", v1alpha1.StepPending), mem: &memory{}, desk: (*shares.Desks)(nil).For("a")}
	p.spec.WorkflowRef = &v1alpha1.WorkflowReference{Name: "w"}
	p.run.Spec.Steps[0].When = strings.Repeat("x", 1<<20) // of its Workflow
	if err := deskForObject(t.Context(), p); err != nil || p.mem.lastWriteBytes == 0 || p.mem.lastWriteBytes > 1<<10 {
		t.Errorf("%d bytes, %v", p.mem.lastWriteBytes, err)
	}
}

// mutations: mayWrite that spares a large run, or that spares none.
func TestARunWhoseTurnItIsWaitsForAPlaceOnlyIfItIsLarge(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	turns := shares.NewTurns(2, shares.KindMetrics{}, func(types.NamespacedName) {})
	r := &Reconciler{Clock: clk, Turns: turns, Desks: shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, turns, clk, shares.KindMetrics{}), Writes: shares.New(1, false, shares.KindMetrics{})}
	r.Desks.For("a").SitDown(t.Context())
	r.Writes.Take("a", func() {})
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	begun := aRun("2")
	begun.Status = &v1alpha1.WorkflowRunStatus{Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &metav1.Time{}}}
	for bytes, want := range map[int]bool{1 << 10: false, 1 << 20: true} {
		p := &pass{r: r, desk: r.Desks.For("b"), run: aRun("1"), ahead: &ahead.Session{Stored: aRun("1")}, mem: &memory{lastWriteBytes: bytes}}
		if _, err := p.mayWrite(ctx, begun); (err != nil) != want {
			t.Errorf("a first write of %d bytes waits: %v", bytes, err)
		}
	}
}

// mutation: mayWrite that gives up with ErrHandedOver, or that waits for a desk longer.
func TestALargeRunThatIsHandedOverIsWrittenWithoutADesk(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	turns := shares.NewTurns(2, shares.KindMetrics{}, func(types.NamespacedName) {})
	r := &Reconciler{Clock: clk, Turns: turns, Desks: shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, turns, clk, shares.KindMetrics{}), Writes: shares.New(1, false, shares.KindMetrics{})}
	if !r.Desks.For("a").SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	p := &pass{r: r, desk: r.Desks.For("b"), run: aRun("1"), mem: &memory{lastWriteBytes: 1 << 20}}
	early, cancel := context.WithCancelCause(t.Context())
	cancel(driven.ErrHandedOver)
	p.desk.Until(early)
	if done, err := p.mayWrite(t.Context(), aRun("1")); err != nil {
		t.Errorf("it is not written: %v", err)
	} else {
		done()
	}
}

// mutations: stayWithAnswers that has each pass stay that asked, or none; one that does not look at
// one of the two.
func TestAPassGoesOnWithWhatTheNextOneWouldNotGet(t *testing.T) {
	waits := policy.Effective{Admission: policy.Admission{Lock: &policy.AdmissionLock{}}}
	open := slots.Answer{Gate: lifecycle.Gate{State: lifecycle.GateOpen}}
	for name, c := range map[string]struct {
		p    pass
		want bool
	}{
		"it asked nothing":                    {pass{observed: observed{policy: waits}}, false},
		"there is no answer yet":              {pass{observed: observed{policy: waits}, found: found{slot: slots.Answer{Gate: lifecycle.Gate{State: lifecycle.GateAsked}, Until: epoch}}}, false},
		"its gate answered":                   {pass{observed: observed{policy: waits}, found: found{slot: open}}, true},
		"its gate answers as often as wanted": {pass{found: found{slot: open}}, false},
		"it has locks":                        {pass{found: found{locks: holds.Asked{"": {}}}}, true},
	} {
		turns := shares.NewTurns(1, shares.KindMetrics{}, func(types.NamespacedName) {}).WithAside(0, shares.KindMetrics{})
		turn, _ := turns.Enter(types.NamespacedName{Namespace: "a", Name: "run"})
		p := c.p
		p.desk = (*shares.Desks)(nil).For("a")
		p.desk.From(turn)
		stayWithAnswers(&p)
		if err := p.desk.StepAside(); (err == nil) != c.want {
			t.Errorf("%s: it stays: %t", name, !c.want)
		}
	}
}

// mutation: encoded without kind and version, with the spec, or without the resourceVersion; beside
// of another generation, or without one of the four that people may fill, makes this fail.
func TestOnlyTheStatusOfARunIsSent(t *testing.T) {
	run := aRun("7", v1alpha1.StepPending)
	run.Labels, run.Generation = map[string]string{"a": "b"}, 1
	body, err := encoded(run)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.WorkflowRun
	if err := json.Unmarshal(body, &back); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.WorkflowRun{Status: run.Status}
	want.APIVersion, want.Kind = v1alpha1.GroupVersion.String(), "WorkflowRun"
	want.Name, want.Namespace, want.UID, want.ResourceVersion = run.Name, run.Namespace, run.UID, run.ResourceVersion
	if !equality.Semantic.DeepEqual(back, want) {
		t.Errorf("sent: %s", body)
	}
	var b beside
	rest, err := b.of(run)
	whole, wholeErr := json.Marshal(run)
	if about := len(whole) - len(body); err != nil || wholeErr != nil || rest < about/2 || rest > len(whole) {
		t.Errorf("%d bytes beside a status of %d, of %d; %v", rest, len(body), len(whole), errors.Join(err, wholeErr))
	}
	run.Spec.Steps = append(run.Spec.Steps, run.Spec.Steps...)
	if again, _ := b.of(run); again != rest {
		t.Errorf("measured again for the same generation: %d, before %d", again, rest)
	}
	large := strings.Repeat("x", 1<<20)
	for name, meta := range map[string]metav1.ObjectMeta{
		"labels": {Labels: map[string]string{"a": large}}, "annotations": {Annotations: map[string]string{large: ""}},
		"finalizers": {Finalizers: []string{large}}, "owners": {OwnerReferences: []metav1.OwnerReference{{Name: large}}},
	} {
		filled := &v1alpha1.WorkflowRun{ObjectMeta: meta, Spec: run.Spec}
		filled.Generation = run.Generation
		if again, _ := b.of(filled); again < 1<<20 {
			t.Errorf("%s of a MiB: %d bytes", name, again)
		}
	}
	run.Generation++
	if again, _ := b.of(run); again <= rest {
		t.Errorf("not measured again for another generation: %d, before %d", again, rest)
	}
}

// sizes are statuses that note how large runs are said to be.
type sizes struct{ of []int }

func (s *sizes) Put(_ context.Context, _ *v1alpha1.WorkflowRun, _ []byte, size int) error {
	s.of = append(s.of, size)
	return nil
}

// What was written stays in memory, until the watch tells of it, as large as it is.
//
// mutation: put that gives the size of the request makes this fail.
func TestAWrittenRunIsAsLargeAsAllOfIt(t *testing.T) {
	var s sizes
	r := &Reconciler{Clock: clocktesting.NewFakeClock(epoch), Statuses: &s, Metrics: NewMetrics(prometheus.NewRegistry(), nil)}
	p := &pass{r: r, run: aRun("1"), mem: &memory{}}
	next := aRun("1", v1alpha1.StepPending)
	next.Spec.Steps[0].When = strings.Repeat("x", 1<<10)
	if _, err := p.put(t.Context(), next); err != nil || len(s.of) != 1 || s.of[0] < 1<<10 {
		t.Errorf("%v, %v", s.of, err)
	}
}
