// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const patience = 30 * time.Second // for what must happen

// suite is the API server that all tests share, with a good installation on it. A test that breaks
// it mends it.
var suite struct {
	config *rest.Config
	client client.Client
}

func TestMain(m *testing.M) {
	testenv.Main(m, func(e *envtest.Environment) error {
		log.SetLogger(logr.Discard())
		scheme, _, err := kinds()
		if err := errors.Join(err, rbacv1.AddToScheme(scheme)); err != nil {
			return err
		}
		suite.config = e.Config
		if suite.client, err = client.New(e.Config, client.Options{Scheme: scheme}); err != nil {
			return err
		}
		return installed(context.Background())
	})
}

// installed puts on the API server what the shipped manifests have, and what a running operator
// leaves there.
func installed(ctx context.Context) error {
	for _, file := range []string{
		"manager/namespace.yaml", "rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml", "manager/deployment.yaml",
		"status/policy.yaml", "approval/policy.yaml", "schedules/policy.yaml",
	} {
		objects, err := documents(testenv.Root("config", file))
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := suite.client.Create(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return errors.Join(running(ctx), aRun(ctx), owned(ctx))
}

func documents(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var all []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := d.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// running makes two replicas of the Deployment, as its controller would.
func running(ctx context.Context) error {
	d := &appsv1.Deployment{}
	if err := suite.client.Get(ctx, client.ObjectKey{Namespace: shippedNamespace, Name: operatorName}, d); err != nil {
		return err
	}
	for i := range 2 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: shippedNamespace, Name: fmt.Sprintf("pod-%d", i), Labels: d.Spec.Template.Labels}}
		p.Spec = *d.Spec.Template.Spec.DeepCopy()
		if err := suite.client.Create(ctx, p); err != nil {
			return err
		}
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	return suite.client.Status().Update(ctx, d)
}

// aRun is a run that the operator has written.
func aRun(ctx context.Context) error {
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}}
	run.Spec.WorkloadClass = "default"
	run.Spec.Steps = []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}}}
	if err := suite.client.Create(ctx, run); err != nil {
		return err
	}
	run.Status = &v1alpha1.WorkflowRunStatus{Fence: new(int64(7))}
	config := rest.CopyConfig(suite.config)
	config.Impersonate.UserName = userOf(shippedNamespace, operatorName)
	asOperator, err := client.New(config, client.Options{Scheme: suite.client.Scheme()})
	if err != nil {
		return err
	}
	return asOperator.Status().Update(ctx, run)
}

// installation is what a test looks at.
type installation struct {
	t     *testing.T
	nats  *natstest.Server
	js    jetstream.JetStream
	redis *redistest.Server
	seen  *recorder
	clock clock.PassiveClock
	files []client.Object
}

// wellInstalled has a NATS and a Redis of its own.
func wellInstalled(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, nats: natstest.Start(t), redis: redistest.Start(t, "--appendonly", "yes"), seen: &recorder{}, clock: clock.RealClock{}}
	conn, err := bus.Connect(t.Context(), bus.Config{URL: i.nats.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
	i.eventually("streams", func() error { return conn.EnsureStreams(t.Context()) })
	i.js = conn.JetStream
	for p := range protocol.Partitions {
		_, err := i.js.CreateConsumer(t.Context(), conn.Names.ResultsStream(), jetstream.ConsumerConfig{
			Durable: results.ConsumerName(conn.Names, p), FilterSubject: conn.Names.PartitionResults(p), AckPolicy: jetstream.AckExplicitPolicy,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return i
}

func (i *installation) eventually(what string, try func() error) {
	i.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	i.t.Fatalf("%s: %v", what, err)
}

func (i *installation) options() Options {
	config := rest.CopyConfig(suite.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { i.seen.next = next; return i.seen })
	return Options{
		Config: config, Namespace: "default", Operator: shippedNamespace, Clock: i.clock, Manifests: i.files,
		NATS: bus.Config{URL: i.nats.URL()}, Redis: lockmgr.ClientConfig{Addrs: []string{i.redis.Addr()}},
	}
}

// recorder keeps what would have changed something, had the API server got it.
type recorder struct {
	next http.RoundTripper

	mu     sync.Mutex
	asked  int
	writes []string
}

// RoundTrip implements http.RoundTripper. What is harmless is said here again, in other words.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.asked++
	review := req.URL.Path == "/apis/authorization.k8s.io/v1/subjectaccessreviews" || req.URL.Path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	if req.Method != http.MethodGet && !review && req.URL.Query().Get("dryRun") != "All" {
		r.writes = append(r.writes, req.Method+" "+req.URL.String())
	}
	r.mu.Unlock()
	return r.next.RoundTrip(req)
}
