// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// drill is a cluster whose etcd is put back from a copy.
type drill struct {
	*site

	data, copied string // directories of etcd
	api          *devenv.APIServer

	holder  atomic.Value // topic of the job that was given the mutex last
	holding atomic.Int32 // jobs under the mutex that are being worked on
	most    atomic.Int32 // of them at the same time

	mu    sync.Mutex
	gates map[string]chan struct{} // by topic; closed once its jobs may end
}

func newDrill(t *testing.T) *drill {
	t.Helper()
	d := &drill{data: t.TempDir(), copied: filepath.Join(t.TempDir(), "copy"), gates: map[string]chan struct{}{}}
	d.site = newSiteOn(t, d.data)
	var err error
	if d.api, err = d.env.StartSecondAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.api.Kill(); err != nil {
			t.Error(err)
		}
	})
	// From here on all use the server that is started anew with its etcd.
	text, err := os.ReadFile(d.env.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.TrimPrefix(strings.TrimSuffix(d.env.Config.Host, "/"), "https://")
	if err := os.WriteFile(d.env.Kubeconfig, []byte(strings.ReplaceAll(string(text), first, d.api.Config.Host)), 0o600); err != nil {
		t.Fatal(err)
	}
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	if d.k8s, err = client.New(d.api.Config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	return d
}

// withoutEtcd stops the API server and etcd, does something to the data, and starts both.
func (d *drill) withoutEtcd(change func() error) {
	d.t.Helper()
	for _, step := range []func() error{
		d.api.Kill, d.env.StopEtcd, change, d.env.StartEtcd, func() error { return d.api.Start(d.t.Context()) },
	} {
		if err := step(); err != nil {
			d.t.Fatal(err)
		}
	}
}

// gate is closed once jobs of a topic may end.
func (d *drill) gate(topic string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gates[topic] == nil {
		d.gates[topic] = make(chan struct{})
	}
	return d.gates[topic]
}

// shut has the next jobs of a topic wait, after its gate was closed.
func (d *drill) shut(topic string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.gates, topic)
}

// work is what the worker does with a job.
func (d *drill) work(ctx context.Context, job worker.Job) (any, error) {
	if len(job.LockFences) > 0 {
		d.holder.Store(job.Topic)
		n := d.holding.Add(1)
		defer d.holding.Add(-1)
		for most := d.most.Load(); n > most && !d.most.CompareAndSwap(most, n); most = d.most.Load() {
		}
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-d.gate(job.Topic):
		return "done", nil
	}
}

// worker serves the topics until it is stopped.
func (d *drill) worker(topics ...string) (stop func()) {
	d.t.Helper()
	nc, err := nats.Connect(d.env.NATS.URL(), natstest.Patient())
	if err != nil {
		d.t.Fatal(err)
	}
	w := worker.New(nc, worker.Options{GracePeriod: -1})
	for _, topic := range topics {
		w.Handle(topic, d.work, worker.Concurrency(4))
	}
	ctx, cancel := context.WithCancel(d.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			d.t.Errorf("the worker: %v", err)
		}
		nc.Close()
	})
}

// run creates a run of one job, whose topic has the same name.
func (d *drill) run(name string, locks ...v1alpha1.LockRequest) {
	d.t.Helper()
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: name}, Locks: locks}}},
	}
	if err := d.k8s.Create(d.t.Context(), run); err != nil {
		d.t.Fatal(err)
	}
}

// becomes waits until a run is in a phase.
func (d *drill) becomes(name string, phase v1alpha1.RunPhase) {
	d.t.Helper()
	d.eventually(name+" is "+string(phase), func() bool { return d.phase(dispatched{run: name}) == phase })
}

// holds waits until the job of a run, and no other, is being worked on under the mutex.
func (d *drill) holds(name string) {
	d.t.Helper()
	d.eventually(name+" holds the mutex", func() bool { return d.holding.Load() == 1 && d.holder.Load() == name })
}

// moveOn writes until the revision is far above that of a copy, as each API server writes
// by itself, too, and waits until the operator has noted that in Redis, which it does
// each ten seconds.
func (d *drill) moveOn() {
	d.t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "busy"}}
	if err := d.k8s.Create(d.t.Context(), object); err != nil {
		d.t.Fatal(err)
	}
	for i := range 1_000 {
		object.Data = map[string]string{"n": strconv.Itoa(i)}
		if err := d.k8s.Update(d.t.Context(), object); err != nil {
			d.t.Fatal(err)
		}
	}
	reached, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	locks := redis.NewClient(&redis.Options{Addr: d.env.Redis.Addr})
	defer func() { _ = locks.Close() }()
	d.eventually("the mark in Redis is that of after the copy", func() bool {
		text, err := locks.Get(d.t.Context(), "{adm-installation}:revision").Result()
		_, text, _ = strings.Cut(text, " ")
		mark, bad := strconv.ParseUint(text, 10, 64)
		return errors.Join(err, bad) == nil && mark >= reached
	})
}

// alone says that the job which holds the mutex is the only one that does, once the operator has
// worked off what it found: a run without a lock, which is made after that, goes to its end.
func (d *drill) alone(holder string) {
	d.t.Helper()
	d.run("after")
	d.becomes("after", v1alpha1.RunSucceeded)
	d.holds(holder)
	if most := d.most.Load(); most != 1 {
		d.t.Errorf("%d jobs were under the mutex at the same time", most)
	}
}

// endsBehind says that an operator ends, as its API server is behind what Redis knows.
func (d *drill) endsBehind() {
	d.t.Helper()
	m, err := d.env.StartManager(d.t.Context(), d.binary, "early")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := m.Kill(); err != nil {
			d.t.Error(err)
		}
	})
	d.eventually("an operator ends where etcd was put back and Redis was not emptied", func() bool {
		select {
		case <-m.Done():
			return true
		default:
			return false
		}
	})
	text, err := os.ReadFile(m.Log)
	if err != nil || !strings.Contains(string(text), "etcd was restored from a backup") {
		d.t.Errorf("its log does not say why (%v):\n%s", err, text)
	}
}

// beginAnew is what docs/production.md, Backups, says of NATS and Redis.
func (d *drill) beginAnew() {
	d.t.Helper()
	for _, stream := range []string{d.names.JobsStream(), d.names.ResultsStream()} {
		if err := d.js.DeleteStream(d.t.Context(), stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			d.t.Fatal(err)
		}
	}
	locks := redis.NewClient(&redis.Options{Addr: d.env.Redis.Addr})
	defer func() { _ = locks.Close() }()
	if err := locks.FlushAll(d.t.Context()).Err(); err != nil {
		d.t.Fatal(err)
	}
}

// The restore of docs/production.md, with an etcd that is put back from a copy: a mutex that was
// handed over since the copy is its former holder's again, and nobody else's meanwhile; what ended
// and was deleted since is there again, what was created since is not.
// mutation: an operator that does not look how far history went makes this fail.
func TestARestoreOfEtcdAsThePageSays(t *testing.T) {
	d := newDrill(t)
	topics := []string{"ended", "former", "latter", "young", "after"}
	for _, free := range []string{"ended", "young", "after"} {
		close(d.gate(free))
	}
	operator := d.operator("first")
	stop := d.worker(topics...)
	d.run("ended")
	d.becomes("ended", v1alpha1.RunSucceeded)
	d.run("former", v1alpha1.LockRequest{Mutex: "m"})
	d.holds("former")
	d.run("latter", v1alpha1.LockRequest{Mutex: "m"})
	d.becomes("latter", v1alpha1.RunRunning)

	d.withoutEtcd(func() error { return os.CopyFS(d.copied, os.DirFS(d.data)) })
	close(d.gate("former"))
	d.becomes("former", v1alpha1.RunSucceeded)
	d.holds("latter")
	d.run("young")
	d.becomes("young", v1alpha1.RunSucceeded)
	if err := d.k8s.Delete(t.Context(), &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ended"}}); err != nil {
		t.Fatal(err)
	}
	d.moveOn()

	stop()
	if err := operator.Terminate(t.Context()); err != nil {
		t.Error(err)
	}
	d.withoutEtcd(func() error {
		return errors.Join(os.RemoveAll(d.data), os.CopyFS(d.data, os.DirFS(d.copied)))
	})
	d.endsBehind()
	d.beginAnew()
	d.shut("former")
	d.operator("second")
	stop = d.worker(topics...)
	defer stop()
	d.holds("former")
	d.becomes("ended", v1alpha1.RunSucceeded)
	d.alone("former")
	close(d.gate("former"))
	close(d.gate("latter"))
	d.becomes("former", v1alpha1.RunSucceeded)
	d.becomes("latter", v1alpha1.RunSucceeded)
	if most := d.most.Load(); most != 1 {
		t.Errorf("%d jobs were under the mutex at the same time", most)
	}
	young := &v1alpha1.WorkflowRun{}
	if err := d.k8s.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "young"}, young); !apierrors.IsNotFound(err) {
		t.Errorf("a run from after the copy is there: %v", err)
	}
}
