// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// lookEvery is the time between two looks at what does not tell of itself.
const lookEvery = 50 * time.Millisecond

// longestLook is the longest time between two looks at a run: to read a large one costs the API
// server as much as a write of it, and what the tenants' own clients ask of it is no harm that the
// operator could keep from the neighbours.
const longestLook = time.Second

// Scene is where a play takes place: an environment that is shared with others, and names of its
// own in it.
type Scene struct {
	// Env has the servers.
	Env *devenv.Env
	// Client may do everything.
	Client client.WithWatch
	// Binary is the path of the operator.
	Binary string
	// Name is the prefix of namespaces, streams, policies and operators; lower case, at
	// most 20 bytes.
	Name string
	// Operators drive the runs. A process that only does harm has none.
	Operators *Operators

	nats, redisAddr string // where the servers are
	change          func(context.Context) error

	nc    *nats.Conn
	js    jetstream.JetStream
	redis *redis.Client
}

// Open connects to the servers and starts an operator. Close must be called also after an error.
func Open(ctx context.Context, s *Scene) error {
	s.Operators = &Operators{scene: s}
	s.nats, s.redisAddr, s.change = s.Env.NATS.URL(), s.Env.Redis.Addr, s.Operators.Change
	if err := s.connect(); err != nil {
		return err
	}
	if err := ForgetOwners(ctx, s.Client); err != nil {
		return err
	}
	return s.Operators.start(ctx)
}

// ForgetOwners deletes what operators of before have left of who drives which run. With another
// prefix, an operator would refuse to start.
func ForgetOwners(ctx context.Context, c client.Client) error {
	owners := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: devenv.OperatorNamespace, Name: ownership.ObjectName}}
	return errors.Join(
		c.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(devenv.OperatorNamespace)),
		client.IgnoreNotFound(c.Delete(ctx, owners)),
	)
}

func (s *Scene) connect() error {
	var err error
	if s.nc, err = s.dial(); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	s.redis = redis.NewClient(&redis.Options{Addr: s.redisAddr})
	return nil
}

// leave closes the connections.
func (s *Scene) leave() error {
	var err error
	if s.redis != nil {
		err = s.redis.Close()
	}
	if s.nc != nil {
		s.nc.Close()
	}
	return err
}

// Close ends the operators, and deletes the streams, which may be large.
func (s *Scene) Close(ctx context.Context) error {
	var errs []error
	if s.Operators != nil {
		errs = append(errs, s.Operators.stop(ctx))
	}
	if s.js != nil {
		errs = append(errs, s.deleteStreams(ctx))
	}
	return errors.Join(append(errs, s.leave())...)
}

func (s *Scene) deleteStreams(ctx context.Context) error {
	n := s.names()
	var errs []error
	for _, name := range []string{n.JobsStream(), n.ResultsStream(), n.DeadLettersStream(), n.ControlStream(), "OBJ_" + s.Name + "-payloads"} {
		if err := s.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("delete stream %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *Scene) dial() (*nats.Conn, error) {
	nc, err := nats.Connect(s.nats, nats.MaxReconnects(-1), nats.ReconnectWait(lookEvery))
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	return nc, nil
}

// allAnswered says whether the results of all jobs of a topic are stored: a worker acknowledges a
// job after that. While the server is too busy to say, they are not.
func (s *Scene) allAnswered(ctx context.Context, topic string) (bool, error) {
	jobs, err := s.js.Stream(ctx, s.names().JobsStream())
	if err == nil {
		var info *jetstream.StreamInfo
		if info, err = jobs.Info(ctx, jetstream.WithSubjectFilter(s.names().TopicJobs(topic))); err == nil {
			return len(info.State.Subjects) == 0, nil
		}
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return false, nil
	}
	return false, fmt.Errorf("look at the jobs: %w", err)
}

func (s *Scene) names() protocol.Names { return protocol.Names{Prefix: s.Name} }

// tenant is one namespace with its workers.
type tenant struct {
	scene     *Scene
	namespace string
	class     string // of its runs; no policy lists it unless the tenant makes one
	log       workerLog
	cleanups  []func(context.Context) error
}

// tenant makes a namespace. Its runs may be for the tenants that are given.
func (s *Scene) tenant(ctx context.Context, name string, tenants ...string) (*tenant, error) {
	t := &tenant{scene: s, namespace: s.Name + "-" + name, class: s.Name + "-" + name}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: t.namespace, Annotations: map[string]string{v1alpha1.AnnotationAllowedTenants: strings.Join(tenants, ",")},
	}}
	err := s.Client.Create(ctx, ns)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create namespace: %w", err)
	}
	t.cleanups = append(t.cleanups, t.deleteRuns)
	return t, nil
}

// close undoes what the tenant did, last things first.
func (t *tenant) close(ctx context.Context) error {
	var errs []error
	for _, f := range slices.Backward(t.cleanups) {
		errs = append(errs, f(ctx))
	}
	t.cleanups = nil
	return errors.Join(errs...)
}

func (t *tenant) deleteRuns(ctx context.Context) error {
	if err := t.scene.Client.DeleteAllOf(ctx, &v1alpha1.WorkflowRun{}, client.InNamespace(t.namespace)); err != nil {
		return fmt.Errorf("delete runs: %w", err)
	}
	return nil
}

// policy makes a LockPolicy for the runs of this tenant until it closes.
func (t *tenant) policy(ctx context.Context, spec v1alpha1.LockPolicySpec) error {
	spec.WorkloadClasses = []string{t.class}
	return t.make(ctx, &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: t.class}, Spec: spec})
}

// make creates an object until the tenant closes.
func (t *tenant) make(ctx context.Context, o client.Object) error {
	if err := t.scene.Client.Create(ctx, o); err != nil {
		return fmt.Errorf("create %T: %w", o, err)
	}
	t.cleanups = append(t.cleanups, func(ctx context.Context) error {
		if err := t.scene.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %T: %w", o, err)
		}
		return nil
	})
	return nil
}

// create creates a run and fills in what the API server says of it.
func (t *tenant) create(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	run.Namespace, run.Spec.WorkloadClass = t.namespace, t.class
	if err := t.scene.Client.Create(ctx, run); err != nil {
		return fmt.Errorf("create run %s: %w", run.Name, err)
	}
	return nil
}

func (t *tenant) delete(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	if err := t.scene.Client.Delete(ctx, run); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete run %s: %w", run.Name, err)
	}
	return nil
}

// read reads a run, live.
func (t *tenant) read(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	if err := t.scene.Client.Get(ctx, client.ObjectKeyFromObject(run), run); err != nil {
		return fmt.Errorf("read run %s: %w", run.Name, err)
	}
	return nil
}

// finished waits until a run has ended.
func (t *tenant) finished(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	for pause := lookEvery; ; pause = min(pause*3/2, longestLook) {
		if err := t.read(ctx, run); err != nil || run.Status != nil && run.Status.CompletedAt != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait: %w", context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// serve works on topics until the tenant closes. h may wait for as long as ctx lives.
func (t *tenant) serve(ctx context.Context, topic string, concurrency int, h worker.Handler) error {
	nc, err := t.scene.dial()
	if err != nil {
		return err
	}
	w := worker.New(nc, worker.Options{Prefix: t.scene.Name, BindInterval: 2 * lookEvery, GracePeriod: -1})
	w.Handle(topic, func(ctx context.Context, job worker.Job) (any, error) {
		t.log.begin(job)
		out, err := h(ctx, job)
		if ctx.Err() == nil {
			t.log.end(job.ID, time.Now())
		}
		return out, err
	}, worker.Concurrency(concurrency))
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- w.Run(running) }()
	t.cleanups = append(t.cleanups, func(context.Context) error {
		stop()
		defer nc.Close()
		return <-done
	})
	return nil
}

// until looks until a condition holds or ctx ends.
func until(ctx context.Context, holds func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		ok, err := holds()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// within bounds one wait.
func within(ctx context.Context, d time.Duration, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return until(ctx, holds)
}

// linger is a part of the play: somebody takes his time.
func linger(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lockKey is where the lock of a run is in Redis.
func lockKey(runUID string) string { return "{run:" + runUID + "}:lock" }

// hold takes the lock of a run, as another process would that does not give it back, when
// it is free.
func (s *Scene) hold(ctx context.Context, runUID string, atMost time.Duration) error {
	return until(ctx, func() (bool, error) {
		err := s.redis.SetArgs(ctx, lockKey(runUID), "somebody-else", redis.SetArgs{Mode: "NX", TTL: atMost}).Err()
		if errors.Is(err, redis.Nil) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("hold the lock: %w", err)
		}
		return true, nil
	})
}

// free gives back what hold took.
func (s *Scene) free(ctx context.Context, runUID string) error {
	if err := s.redis.Del(ctx, lockKey(runUID)).Err(); err != nil {
		return fmt.Errorf("free the lock: %w", err)
	}
	return nil
}

// step is a job of a topic, after others.
func step(name, topic string, after ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: after, Job: &v1alpha1.Job{Topic: topic}}
}

func named(parts ...any) metav1.ObjectMeta {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = fmt.Sprint(p)
	}
	return metav1.ObjectMeta{Name: strings.Join(texts, "-")}
}
