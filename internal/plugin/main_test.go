// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/buildinfo"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/bus/deadletters"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/bus/results"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

const (
	patience  = 20 * time.Second // for what must happen
	succeeded = `{"status":"Succeeded","output":{"pages":3}}`
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, append(natstest.Leaks(), redistest.Leaks()...)...)
}

// testRun is a run in the API server.
func testRun(namespace, name, uid string) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{}
	run.Namespace, run.Name, run.UID = namespace, name, types.UID(uid)
	run.CreationTimestamp = metav1.Time{Time: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	run.Spec.WorkloadClass = "default"
	run.Spec.Steps = []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}}}
	return run
}

func fakeCluster(t *testing.T, runs ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme, mapper, err := reads.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	byRun := func(o client.Object) []string {
		a, ok := o.(*v1alpha1.StepApproval)
		if !ok {
			return nil
		}
		return []string{a.Spec.Run}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(runs...).
		WithIndex(&v1alpha1.StepApproval{}, "spec.run", byRun)
}

// forbid makes a cluster refuse lists of some kind and namespace.
func forbid(refuse func(list client.ObjectList, o *client.ListOptions) bool) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		o := (&client.ListOptions{}).ApplyOptions(opts)
		if refuse(list, o) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no"))
		}
		return c.List(ctx, list, opts...)
	}}
}

// selecting is a cluster that selects runs by their phase, which the fake client cannot.
type selecting struct {
	client.Client
	note func(selector string)
}

func (s selecting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	runs, ok := list.(*v1alpha1.WorkflowRunList)
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if !ok || o.FieldSelector == nil {
		return s.Client.List(ctx, list, opts...)
	}
	selector := o.FieldSelector
	s.note(selector.String())
	o.FieldSelector = nil
	err := s.Client.List(ctx, list, o)
	runs.Items = slices.DeleteFunc(runs.Items, func(run v1alpha1.WorkflowRun) bool {
		phase := ""
		if run.Status != nil {
			phase = string(run.Status.Phase)
		}
		return !selector.Matches(fields.Set{"status.phase": phase, "metadata.name": run.Name})
	})
	return err
}

func (s selecting) Watch(ctx context.Context, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
	c, ok := s.Client.(client.WithWatch)
	if !ok {
		return nil, errors.New("cannot watch")
	}
	return c.Watch(ctx, list, opts...)
}

// plugin is one installation to call the commands in.
type plugin struct {
	t       *testing.T
	cluster func() (client.Client, string, error)
	config  func() (*rest.Config, string, error) // for check
	nats    *natstest.Server
	env     map[string]string
	color   bool
	// selected is told how runs are selected.
	selected func(selector string)
}

func newPlugin(t *testing.T, runs ...client.Object) *plugin {
	t.Helper()
	c := fakeCluster(t, runs...).Build()
	return &plugin{t: t, cluster: func() (client.Client, string, error) { return c, "team-a", nil }, selected: func(string) {}}
}

// call runs a command line and returns what it wrote.
func (p *plugin) call(line ...string) (out, errOut string, err error) {
	p.t.Helper()
	var o, e bytes.Buffer
	cmd := NewCommand(Env{
		Out: &o, Err: &e, Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 20, 10, 10, 0, 0, time.UTC)), Color: p.color,
		Getenv: func(name string) string { return p.env[name] }, Build: buildinfo.Info{Version: "v1.2.3", Commit: "1a2b3c", Go: "go1.26.8", Platform: "linux/amd64"}, Config: p.config,
		Cluster: func() (client.Client, string, error) {
			c, namespace, err := p.cluster()
			return selecting{c, p.selected}, namespace, err
		},
	})
	if p.nats != nil {
		line = append(line, "--nats-url", p.nats.URL())
	}
	cmd.SetArgs(line)
	err = cmd.ExecuteContext(p.t.Context())
	return o.String(), e.String(), err
}

// must is call for what must succeed and note nothing.
func (p *plugin) must(line ...string) string {
	p.t.Helper()
	out, errOut, err := p.call(line...)
	if err != nil || errOut != "" {
		p.t.Fatalf("%v: %v, notes %q", line, err, errOut)
	}
	return out
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update rewrites it:\n%s", name, diff)
	}
}

// operator is the bus of an operator whose results come out of a channel.
type operator struct {
	t    *testing.T
	bus  *bus.Conn
	keys keys.Keyring
	got  chan *results.Delivery
	nats *natstest.Server
}

func startOperator(t *testing.T, s *natstest.Server) *operator {
	t.Helper()
	o := &operator{t: t, nats: s, got: make(chan *results.Delivery, 100), keys: keys.Keyring{
		Current: keys.Key{ID: "k1", Secret: []byte("0123456789abcdef0123456789abcdef")},
	}}
	var err error
	if o.bus, err = bus.Connect(t.Context(), bus.Config{URL: s.URL()}); err != nil {
		t.Fatal(err)
	}
	signing, err := keys.New(o.keys, nil, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	consumer := results.NewConsumer(o.bus, signing, deadletters.NewWriter(o.bus), results.Options{})
	consumer.Follow(protocol.AllPartitions()...)
	for deadline := time.Now().Add(patience); o.bus.EnsureStreams(t.Context()) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no streams")
		}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- consumer.Consume(ctx, func(_ context.Context, d *results.Delivery) { o.got <- d }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		o.bus.Close(context.WithoutCancel(t.Context()))
	})
	return o
}

// next is the next result that the operator gets.
func (o *operator) next() *results.Delivery {
	o.t.Helper()
	select {
	case d := <-o.got:
		return d
	case <-time.After(patience):
		o.t.Fatal("no result")
		return nil
	}
}

func (o *operator) settle(err error) {
	o.t.Helper()
	d := o.next()
	if err := d.Settle(o.t.Context(), err); err != nil {
		o.t.Fatal(err)
	}
}

func job(uid string, attempt int32) protocol.JobID {
	return protocol.JobID{RunUID: uid, Step: "fetch", Item: protocol.NoItem, Attempt: attempt}
}

// bury puts a result aside.
func (o *operator) bury(id protocol.JobID, reason, body string) {
	o.t.Helper()
	token := o.keys.Sign(id)
	o.publish(id, body, token)
	o.settle(results.Permanent(reason, errors.New("cause\x1b[31m of it")))
}
