// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	topic = "work"
	// tinyWindow is the least dedup window that the server accepts: after it,
	// Msg-Ids protect nothing.
	tinyWindow = 100 * time.Millisecond
	// ackWait is how long after a crash the unsettled results of the dead process come again.
	ackWait = 300 * time.Millisecond
)

var testKeys = keys.Keyring{Current: keys.Key{ID: "k1", Secret: []byte("0123456789abcdef0123456789abcdef")}}

// world is what one spec plays in: a namespace, a nats-server of its own, a clock that the spec
// moves, and a worker.
type world struct {
	client client.WithWatch
	ns     string
	clock  *clocktesting.FakeClock
	nats   *natstest.Server
	redis  *redistest.Server
	window time.Duration
	names  protocol.Names
	js     jetstream.JetStream

	policies []v1alpha1.LockPolicy
	replicas []*replica // all that there were, dead ones too

	mu         sync.Mutex
	violations []string
	settled    []settled
	stored     map[string]map[uint64]bool // job id -> sequences under which workers saw it
	followed   map[int]bool               // partitions of which there are results
	runs       sync.Map                   // names of runs, by UID
}

// settled is one call of Settle that left a replica.
type settled struct {
	id     protocol.JobID
	status protocol.ResultStatus
	err    error
	stored time.Time

	deliveries uint64 // this one included
	failures   int    // before this one
}

func withRedis(s *redistest.Server) func(*world) { return func(w *world) { w.redis = s } }
func withWindow(d time.Duration) func(*world)    { return func(w *world) { w.window = d } }
func withNamespace(ns corev1.Namespace) func(*world) {
	return func(w *world) { w.ns = createNamespace(w.client, ns) }
}

func createNamespace(c client.Client, ns corev1.Namespace) string {
	ns.GenerateName = "spec-"
	Expect(c.Create(context.Background(), &ns)).To(Succeed())
	return ns.Name
}

// newWorld makes a world; when the spec has ended, every run in it is checked.
func newWorld(ctx context.Context, adjust ...func(*world)) *world {
	w := &world{
		client: suite.client, redis: suite.redis, names: protocol.Names{Prefix: protocol.DefaultPrefix},
		clock: clocktesting.NewFakeClock(time.Now()), nats: natstest.Start(GinkgoTB()), stored: map[string]map[uint64]bool{}, followed: map[int]bool{},
	}
	for _, f := range adjust {
		f(w)
	}
	if w.ns == "" {
		w.ns = createNamespace(w.client, corev1.Namespace{})
	}
	nc, err := nats.Connect(w.nats.URL(), natstest.Patient(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(nc.Close)
	w.js, err = jetstream.New(nc)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx SpecContext) { w.check(ctx) }, NodeTimeout(patience))
	return w
}

// check holds for every run at the end of every spec: its status is consistent, its writes were in
// order, no result was acknowledged too early, and no attempt was given to workers twice.
func (w *world) check(ctx context.Context) {
	var list v1alpha1.WorkflowRunList
	Expect(w.client.List(ctx, &list, client.InNamespace(w.ns))).To(Succeed())
	for i := range list.Items {
		run := &list.Items[i]
		Expect(checkStatus(w.effective(ctx, run))).To(BeEmpty())
		var versions []*v1alpha1.WorkflowRun
		Eventually(func() int {
			versions = suite.history.of(run.UID, run.ResourceVersion)
			return len(versions)
		}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeNumerically(">", 0), "the watch has seen the last write")
		Expect(checkHistory(versions)).To(BeEmpty())
		Expect(suite.history.checkBeliefs(versions)).To(BeEmpty())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	Expect(w.violations).To(BeEmpty())
	for id, sequences := range w.stored {
		Expect(sequences).To(HaveLen(1), "job %s was dispatched more than once", id)
	}
}

// step is a step that depends on others.
func step(name string, deps ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: deps, Job: &v1alpha1.Job{Topic: topic}}
}

// diamond is two steps and one after both.
func diamond() []v1alpha1.Step { return []v1alpha1.Step{step("a"), step("b"), step("c", "a", "b")} }

func (w *world) create(ctx context.Context, steps []v1alpha1.Step, adjust ...func(*v1alpha1.WorkflowRunSpec)) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "run-", Namespace: w.ns},
		Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: w.ns, Steps: steps},
	}
	for _, f := range adjust {
		f(&run.Spec)
	}
	Expect(w.client.Create(ctx, run)).To(Succeed())
	return run
}

// policy governs the runs of this world.
func (w *world) policy(ctx context.Context, lock v1alpha1.RunLockPolicy) { w.policyOf(ctx, w.ns, lock) }

// policyOf governs those of a workload class.
func (w *world) policyOf(ctx context.Context, class string, lock v1alpha1.RunLockPolicy) {
	w.policySpec(ctx, class, v1alpha1.LockPolicySpec{RunLock: lock})
}

func (w *world) policySpec(ctx context.Context, class string, spec v1alpha1.LockPolicySpec) {
	spec.WorkloadClasses = []string{class}
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: spec}
	Expect(w.client.Create(ctx, p)).To(Succeed())
	w.policies = append(w.policies, *p)
	DeferCleanup(func(ctx SpecContext) { Expect(w.client.Delete(ctx, p)).To(Succeed()) })
}

// brief lingers never: for specs in which two replicas share runs.
func brief() v1alpha1.RunLockPolicy { return v1alpha1.RunLockPolicy{LingerMillis: new(int64)} }

// quick renews early and lingers never: for specs in which a lease is lost, or Redis hangs. It
// believes a call of Redis lost after 200 ms of real time, whatever else the machine does.
func quick() v1alpha1.RunLockPolicy {
	return v1alpha1.RunLockPolicy{
		TTLSeconds: 5, LingerMillis: new(int64),
		Renewal: v1alpha1.RenewalPolicy{IntervalMillis: new(int64(300)), TimeoutMillis: 200},
	}
}

func (w *world) get(ctx context.Context, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	now := &v1alpha1.WorkflowRun{}
	Expect(w.client.Get(ctx, client.ObjectKeyFromObject(run), now)).To(Succeed())
	return now
}

func (w *world) patch(ctx context.Context, run *v1alpha1.WorkflowRun, mergePatch string) {
	Expect(w.client.Patch(ctx, run.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(mergePatch)))).To(Succeed())
}

// dropLock does what the TTL does some time after the death of a holder.
func (w *world) dropLock(ctx context.Context, run *v1alpha1.WorkflowRun) {
	Expect(w.redis.Client().Del(ctx, lockKey(run)).Err()).To(Succeed())
}

// takeLock makes somebody else the holder.
func (w *world) takeLock(ctx context.Context, run *v1alpha1.WorkflowRun) {
	Expect(w.redis.Client().Set(ctx, lockKey(run), "somebody-else", 0).Err()).To(Succeed())
}

func lockKey(run *v1alpha1.WorkflowRun) string { return fmt.Sprintf("{run:%s}:lock", run.UID) }

// outliveWindow waits until the server has forgotten all Msg-Ids.
func (w *world) outliveWindow(ctx context.Context) {
	over := time.Now().Add(2 * w.window)
	Eventually(time.Now).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(BeTemporally(">", over))
}

// loseNATS has NATS restarted with another store, which has not all that was in the one before, and
// waits until the worker is back and the replica knows of the loss. Each job may be given to
// workers once more.
func (w *world) loseNATS(ctx context.Context, r *replica, restart func()) {
	GinkgoHelper()
	restart()
	w.connected(ctx)
	w.lossTold(ctx, r)
}

// lossTold waits until a replica is told of a loss of data.
func (w *world) lossTold(ctx context.Context, r *replica) {
	GinkgoHelper()
	Eventually(r.bus.LossNoticed()).WithContext(ctx).WithTimeout(patience).Should(Receive())
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.stored)
}

// restartNATS waits until the worker is back, too.
func (w *world) restartNATS(ctx context.Context) {
	w.nats.Restart()
	w.connected(ctx)
}

// connected waits until the worker is connected, and JetStream answers.
func (w *world) connected(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		_, err := w.js.AccountInfo(ctx)
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// jobsStored is how many jobs were ever stored, whether they are still there or not.
func (w *world) jobsStored(ctx context.Context) int {
	fences := 0
	for _, r := range w.replicas {
		fences += int(r.counter("syncopate_job_fences_total"))
	}
	return int(w.stream(ctx, w.names.JobsStream()).LastSeq) - fences
}

// jobsQueued is how many jobs wait, or are with workers.
func (w *world) jobsQueued(ctx context.Context) int {
	s, err := w.js.Stream(ctx, w.names.JobsStream())
	Expect(err).NotTo(HaveOccurred())
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
	Expect(err).NotTo(HaveOccurred())
	n := 0
	for subject := range info.State.Subjects {
		if _, _, err := w.names.ParseJob(subject); err == nil { // else it is a fence message
			n++
		}
	}
	return n
}

// messages is how many messages a stream has now.
func (w *world) messages(ctx context.Context, stream string) int {
	return int(w.stream(ctx, stream).Msgs)
}

func (w *world) stream(ctx context.Context, name string) jetstream.StreamState {
	s, err := w.js.Stream(ctx, name)
	Expect(err).NotTo(HaveOccurred())
	return s.CachedInfo().State
}

func (w *world) violation(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// settledWith returns the settlements of results of a run so far. An acknowledgement of what was
// acknowledged is no other: it came again as that took longer than AckWait.
func (w *world) settledWith(run *v1alpha1.WorkflowRun) []settled {
	w.mu.Lock()
	defer w.mu.Unlock()
	var of []settled
	for _, s := range w.settled {
		again := s.err == nil && slices.ContainsFunc(of, func(o settled) bool {
			return o.err == nil && o.id == s.id && o.stored.Equal(s.stored) && o.deliveries < s.deliveries
		})
		if s.id.RunUID == string(run.UID) && !again {
			of = append(of, s)
		}
	}
	return of
}

// checkAck is G1: what is acknowledged is in status, or can never get there.
func (w *world) checkAck(fact lifecycle.Result) {
	run, err := w.byUID(fact.ID.RunUID)
	switch {
	case err != nil:
		w.violation("read the run of %s: %v", fact.ID, err)
	case run != nil && !accounted(run, fact):
		w.violation("result %s of %s was acknowledged but is not in status", fact.Result.Status, fact.ID)
	}
}

// byUID reads a run; nil: it is gone. All runs are listed for the first of a run only.
func (w *world) byUID(uid string) (*v1alpha1.WorkflowRun, error) {
	ctx := context.Background()
	name, known := w.runs.Load(uid)
	if !known {
		var list v1alpha1.WorkflowRunList
		if err := w.client.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			w.runs.Store(string(list.Items[i].UID), list.Items[i].Name)
		}
		if name, known = w.runs.Load(uid); !known {
			return nil, nil
		}
	}
	var run v1alpha1.WorkflowRun
	err := w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: fmt.Sprint(name)}, &run)
	if apierrors.IsNotFound(err) || (err == nil && string(run.UID) != uid) {
		return nil, nil
	}
	return &run, err
}

func accounted(run *v1alpha1.WorkflowRun, fact lifecycle.Result) bool {
	if lifecycle.Finished(run) {
		return true
	}
	if run.Unwritten() {
		return false
	}
	for _, s := range run.Status.Steps {
		if s.Name == fact.ID.Step && s.ForEach != nil {
			return lifecycle.Over(run, fact.ID) || (fact.Result.Status == protocol.StatusStarted && slices.Contains(lifecycle.InFlight(run), fact.ID))
		}
		if s.Name == fact.ID.Step {
			started := fact.Result.Status == protocol.StatusStarted && s.Phase == v1alpha1.StepRunning
			return s.Attempt > fact.ID.Attempt || (s.Attempt == fact.ID.Attempt && (started || !isInFlight(s.Phase)))
		}
	}
	return false
}

// task is a job in the hands of the worker.
type task struct {
	w   *world
	msg jetstream.Msg
	id  protocol.JobID
}

// take takes all jobs that wait, unacknowledged.
func (w *world) take(ctx context.Context) []*task { return w.takeOf(ctx, topic) }

// takeOf is take for the jobs of a topic.
func (w *world) takeOf(ctx context.Context, topic string) []*task {
	c, err := w.js.Consumer(ctx, w.names.JobsStream(), protocol.Durable(topic))
	if err != nil {
		return nil // nothing was dispatched yet, or NATS is being restarted
	}
	batch, err := c.FetchNoWait(300)
	if err != nil {
		return nil
	}
	var tasks []*task
	for m := range batch.Messages() {
		id, err := protocol.ParseJobID(m.Headers().Get(protocol.HeaderMsgID))
		Expect(err).NotTo(HaveOccurred())
		meta, err := m.Metadata()
		Expect(err).NotTo(HaveOccurred())
		w.mu.Lock()
		if w.stored[id.String()] == nil {
			w.stored[id.String()] = map[uint64]bool{}
		}
		w.stored[id.String()][meta.Sequence.Stream] = true
		w.mu.Unlock()
		tasks = append(tasks, &task{w: w, msg: m, id: id})
	}
	return tasks
}

// takeAll waits for n jobs.
func (w *world) takeAll(ctx context.Context, n int) []*task {
	var tasks []*task
	Eventually(func() int {
		tasks = append(tasks, w.take(ctx)...)
		return len(tasks)
	}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Equal(n))
	return tasks
}

// say publishes a result of a job, as a worker does.
func (t *task) say(ctx context.Context, body string) { t.w.say(ctx, t.id, body) }

func (w *world) say(ctx context.Context, id protocol.JobID, body string) {
	w.follow(protocol.Partition(id.RunUID))
	token := testKeys.Sign(id)
	m := nats.NewMsg(w.names.Result(id))
	m.Data = []byte(body)
	m.Header.Set(protocol.HeaderToken, token)
	m.Header.Set(protocol.HeaderMsgID, protocol.ResultMsgID(id, token)+fmt.Sprint(len(body)))
	Eventually(func() error {
		_, err := w.js.PublishMsg(ctx, m)
		return err
	}).WithContext(ctx).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

// follow has all replicas take the results of a partition. To follow all 64 would cost each spec as
// many consumers.
func (w *world) follow(partition int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.followed[partition] {
		return
	}
	w.followed[partition] = true
	for _, r := range w.replicas {
		if !r.handed {
			r.bus.Results.Follow(partition)
		}
	}
}

// succeeded is a result with an output that the API server would store in other bytes.
func succeeded(id protocol.JobID) string {
	return fmt.Sprintf(`{"status":"Succeeded","output":{"z":[1.0, -0.0, 1e3, null], "html":"<&>", "job":%q}}`, id)
}

// succeed answers a job and then acknowledges it, in the order that the protocol asks for.
func (t *task) succeed(ctx context.Context) {
	t.say(ctx, succeeded(t.id))
	Expect(t.msg.DoubleAck(ctx)).To(Succeed())
}

// work does all jobs that wait.
func (w *world) work(ctx context.Context) {
	for _, t := range w.take(ctx) {
		t.succeed(ctx)
	}
}

// until polls: it ends the spec when it takes too long.
func until(ctx context.Context, what string, done func() bool) {
	GinkgoHelper()
	untilWithin(ctx, patience, what, done)
}

func untilWithin(ctx context.Context, limit time.Duration, what string, done func() bool) {
	GinkgoHelper()
	err := wait.PollUntilContextTimeout(ctx, polling, limit, true, func(context.Context) (bool, error) { return done(), nil })
	Expect(err).NotTo(HaveOccurred(), what)
}
