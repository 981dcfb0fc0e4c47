// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/payloads"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	topic  = "media.encode"
	tenant = "acme"
)

// server is the API server that all tests share; each begins with no runs.
var server *rest.Config

func TestMain(m *testing.M) {
	if natstest.Main() {
		return
	}
	log.SetLogger(logr.Discard())
	testenv.Main(m, func(s *envtest.Environment) error { server = s.Config; return nil })
}

// ahead is a clock that goes before the others.
type ahead struct {
	clock.RealClock

	by time.Duration
}

func (a ahead) Now() time.Time { return time.Now().Add(a.by) }

// world is three real stores that agree about some runs.
type world struct {
	*Stores

	t      *testing.T
	client client.Client
	limits *quota.Controller
	// good is under way: it has a slot, a lock, a job and an output.
	good *v1alpha1.WorkflowRun
	// child and done have what runs of their kind have: no slot, and an output only.
	child, done *v1alpha1.WorkflowRun
}

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme, err := testenv.Scheme()
	must(t, err)
	api, err := client.New(server, client.Options{Scheme: scheme})
	must(t, err)
	must(t, api.DeleteAllOf(t.Context(), &v1alpha1.WorkflowRun{}, client.InNamespace("default")))
	redisServer := redistest.Start(t)
	c, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{redisServer.Addr()}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	nats := bustest.Connect(t, bus.Config{URL: natstest.Start(t).URL()})
	w := &world{t: t, client: api, Stores: &Stores{
		API: api, Redis: c, Quota: store.New(c, store.Options{Explain: lockmgr.Explain}), NATS: nats, Clock: clock.RealClock{},
	}}
	w.limits = quota.New(quota.Options{Gate: w.Quota, Client: api, Live: api, Log: logr.Discard()})
	w.openLocks()
	w.openQuotas()
	w.good = w.underWay("good")
	w.child = w.write(w.create("child"), func(st *v1alpha1.WorkflowRunStatus) {
		st.Admission, st.Parent = admitted(), &v1alpha1.ParentStatus{Name: "good", UID: string(w.good.UID), Root: "good"}
	})
	w.done = w.write(w.withOutput(w.create("done"), "done"), ended)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openLocks and openQuotas are what the operator does where Redis is empty.
func (w *world) openLocks() {
	w.t.Helper()
	token, err := w.Quota.BeginLocks(w.t.Context())
	must(w.t, err)
	_, err = w.Quota.RestoreLocks(w.t.Context(), token, 0, nil)
	must(w.t, err)
}

func (w *world) openQuotas() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.limits.Start(ctx) }()
	bustest.Eventually(w.t, "the quotas are open", func() bool {
		c, err := quota.ReadContents(ctx, w.Quota, maxQuotas)
		return err == nil && c != nil
	})
	cancel()
	must(w.t, <-done)
}

func (w *world) create(name string, change ...func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: topic}}, {Name: "send", Job: &v1alpha1.Job{Topic: topic}}}
	run.Spec.Locks = []v1alpha1.LockRequest{{Mutex: name}}
	for _, f := range change {
		f(run)
	}
	must(w.t, w.client.Create(w.t.Context(), run))
	return run
}

func (w *world) write(run *v1alpha1.WorkflowRun, change func(*v1alpha1.WorkflowRunStatus)) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run = run.DeepCopy()
	must(w.t, w.client.Get(w.t.Context(), client.ObjectKeyFromObject(run), run))
	if run.Status == nil || len(run.Status.Steps) == 0 {
		run.Status = &v1alpha1.WorkflowRunStatus{
			Tenant: tenant, Fence: new(int64(1)), Steps: []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepPending}, {Name: "send", Phase: v1alpha1.StepPending}},
		}
	}
	change(run.Status)
	must(w.t, w.client.Status().Update(w.t.Context(), run))
	return run
}

func (w *world) remove(run *v1alpha1.WorkflowRun) {
	w.t.Helper()
	must(w.t, w.client.Delete(w.t.Context(), run))
}

func admitted() *v1alpha1.AdmissionStatus {
	now := metav1.Now()
	return &v1alpha1.AdmissionStatus{AdmittedAt: &now, Policy: "p"}
}

func ended(st *v1alpha1.WorkflowRunStatus) {
	now := metav1.Now()
	st.Phase, st.CompletedAt = v1alpha1.RunCancelled, &now
	for i := range st.Steps {
		st.Steps[i].Phase = v1alpha1.StepCancelled
	}
}

// underWay is a run with all that runs may have.
func (w *world) underWay(name string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := w.create(name)
	w.slot(run)
	fence := w.hold(run)
	w.queue(jobOf(run, 1))
	run = w.withOutput(run, name)
	return w.write(run, func(st *v1alpha1.WorkflowRunStatus) {
		st.Admission, st.Phase = admitted(), v1alpha1.RunRunning
		st.Locks = []v1alpha1.LockHold{{Name: "mutex/default/" + name, Permits: 1, Fence: fence}}
		st.Steps[0].Phase, st.Steps[0].Attempt = v1alpha1.StepDispatched, 1
	})
}

func jobOf(run *v1alpha1.WorkflowRun, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: string(run.UID), Step: "fetch", Item: protocol.NoItem, Attempt: attempt}
}

func (w *world) slot(run *v1alpha1.WorkflowRun) {
	w.t.Helper()
	p := policy.Defaults()
	p.Name = "p"
	a, err := w.limits.Admit(w.t.Context(), run, tenant, p)
	must(w.t, err)
	if !a.Admitted {
		w.t.Fatal("no slot")
	}
}

func (w *world) hold(run *v1alpha1.WorkflowRun) int64 {
	w.t.Helper()
	a := w.takeLock(run, "mutex/default/"+run.Name)
	if a.State != store.LocksHeld {
		w.t.Fatal(a.State)
	}
	return a.Fence
}

func (w *world) takeLock(run *v1alpha1.WorkflowRun, lock string) store.LocksAnswer {
	w.t.Helper()
	t := store.Ticket{ID: locks.TicketOf(run.UID, ""), Run: "default/" + run.Name, Tree: locks.TreeOf(run), Version: run.ResourceVersion, Created: time.Unix(1000, 0)}
	a, err := w.Quota.TakeLocks(w.t.Context(), t, []store.Want{{Name: lock, Permits: 1, Limit: 1, Longest: 10}})
	must(w.t, err)
	return a
}

func (w *world) queue(id protocol.JobID) {
	w.t.Helper()
	bustest.PublishRaw(w.t, w.NATS, w.NATS.Names.Job(topic, id), "{}")
}

func (w *world) withOutput(run *v1alpha1.WorkflowRun, text string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	ref := w.output(run.UID, text)
	return w.write(run, func(st *v1alpha1.WorkflowRunStatus) {
		st.Steps[1].Phase, st.Steps[1].Attempt = v1alpha1.StepSucceeded, 1
		st.Steps[1].OutputRef = &v1alpha1.OutputReference{Name: ref.Name, Digest: ref.Digest, Size: ref.Size}
	})
}

func (w *world) output(uid types.UID, text string) protocol.OutputRef {
	w.t.Helper()
	data := []byte(`"` + text + `"`)
	ref := protocol.NewOutputRef(protocol.JobID{RunUID: string(uid), Step: "send", Item: protocol.NoItem, Attempt: 1}, data)
	bustest.Eventually(w.t, "the output is stored", func() bool { return payloads.New(w.NATS).Put(w.t.Context(), ref, data) == nil })
	return ref
}

// runLock writes the lock of a run as a process has it.
func (w *world) runLock(uid types.UID, fence int64, ttl time.Duration) {
	w.t.Helper()
	for key, value := range map[string]any{"lock": "process.token", "fence": fence} {
		must(w.t, w.Redis.Set(w.t.Context(), "{run:"+string(uid)+"}:"+key, value, ttl).Err())
	}
}

// del deletes a field of a hash, or a member of a set, by its prefix.
func (w *world) delField(key, field string) {
	w.t.Helper()
	n, err := w.Redis.HDel(w.t.Context(), key, field).Result()
	if err != nil && !errors.Is(err, redis.Nil) || n == 0 {
		w.t.Fatalf("%s has no %s: %v", key, field, err)
	}
}
