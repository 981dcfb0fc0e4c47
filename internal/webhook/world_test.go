// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// world is a namespace of runs with the webhook in front of it: its own policies, and its own
// configuration of the API server.
type world struct {
	ns       string // of the runs, and their tenant
	service  string // under which the API server finds the webhook, in the operator's namespace
	redis    *redistest.Server
	instance *instance
}

// instance is the quota as the webhook sees it, on a real Redis. It opens keys that were never
// used, as internal/quota/controller does.
type instance struct {
	quotas  *store.Store
	others  *store.Store // of the controller: it does not wait for the webhook's connections
	asked   atomic.Int64
	shut    atomic.Bool // closed keys stay closed
	metrics *store.Metrics
}

func newInstance(server *redistest.Server) *instance {
	// As the operator's client: short calls, nothing repeated.
	connect := func() *redis.Client {
		c := redis.NewClient(&redis.Options{
			Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, PoolSize: 64,
			DialTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, PoolTimeout: time.Second,
		})
		DeferCleanup(c.Close)
		return c
	}
	k := &instance{metrics: store.NewMetrics(nil, 0)}
	k.quotas = store.New(connect(), store.Options{Metrics: k.metrics})
	k.others = store.New(connect(), store.Options{Metrics: store.NewMetrics(nil, 0)})
	return k
}

func (k *instance) Reserve(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective, ttl time.Duration) (store.Answer, error) {
	k.asked.Add(1)
	key := store.Key{Policy: p.Name, Tenant: tenant}
	a, err := k.quotas.Reserve(ctx, key, limitsOf(p, tenant), quotaRun(run), ttl)
	if _, closed := errors.AsType[*store.RebuildingError](err); !closed || k.shut.Load() {
		return a, err
	}
	token, err := k.quotas.BeginRebuild(ctx, key)
	if err == nil {
		err = k.quotas.FinishRebuild(ctx, key, token, nil)
	}
	if err != nil {
		return store.Answer{}, err
	}
	return k.quotas.Reserve(ctx, key, limitsOf(p, tenant), quotaRun(run), ttl)
}

// ReserveKey and Release are those of the quota controller, which specs of keys have.
func (*instance) ReserveKey(context.Context, *v1alpha1.WorkflowRun, string, time.Duration) (*quota.Owner, error) {
	return nil, nil //nolint:nilnil // as the interface has it
}

func (*instance) Release(context.Context, types.UID, string, string) error { return nil }

// admit is what the controller does when it sees the run.
func (k *instance) admit(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, limit int) store.Answer {
	GinkgoHelper()
	var a store.Answer
	Eventually(ctx, func() (err error) {
		a, err = k.others.Admit(ctx, store.Key{Policy: run.Spec.WorkloadClass, Tenant: tenant}, store.Limits{Max: limit}, quotaRun(run))
		return err
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return a
}

func limitsOf(p policy.Effective, tenant string) store.Limits {
	l := store.Limits{Max: p.Admission.Limit(tenant)}
	if s := p.Admission.Lock; s != nil {
		l.Lock = &store.LockSettings{TTL: s.TTL, MaxWait: s.MaxWait, Retry: s.Retry}
	}
	return l
}

func quotaRun(run *v1alpha1.WorkflowRun) store.Run {
	return store.Run{
		UID: string(run.UID), Name: run.Namespace + "/" + run.Name, Priority: run.Spec.Priority, Created: run.CreationTimestamp.Time,
	}
}

// newWorld makes a namespace; nothing is asked there before register.
func newWorld(ctx context.Context, server *redistest.Server) *world {
	GinkgoHelper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "team-"}}
	Expect(suite.client.Create(ctx, ns)).To(Succeed())
	w := &world{ns: ns.Name, service: "hook-" + ns.Name, redis: server, instance: newInstance(server)}
	// The API server is no part of a cluster network here, so the Service leads it to this
	// process by name.
	Expect(suite.client.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: w.service},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost", Ports: []corev1.ServicePort{{Port: 443, TargetPort: intstr.FromInt32(443)}},
		},
	})).To(Succeed())
	return w
}

// setting is what differs between operators.
type setting struct {
	config  *rest.Config // nil: as an administrator
	certDir string
	clock   clock.WithTicker
	live    bool // the real one, and not the world's stand-in
}

// operator runs a manager with nothing but the webhook until the spec ends, and returns its port.
func (w *world) operator(s setting) (port int) {
	GinkgoHelper()
	if s.config == nil {
		s.config = suite.config
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	port = freePort(GinkgoTB())
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: testScheme(GinkgoTB()), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: GinkgoLogr,
		Cache: cache.Options{SyncPeriod: new(time.Hour)},
	})
	Expect(err).NotTo(HaveOccurred())
	var quotas reserver = w.instance
	if s.live {
		instance := quota.New(quota.Options{Gate: w.instance.quotas, Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Log: GinkgoLogr})
		Expect(mgr.Add(instance)).To(Succeed())
		quotas = instance
	}
	Expect(Setup(mgr, Options{
		Ready: func(string, func(*http.Request) error) {},
		Turns: make(line, AtOnce), Checks: make(line, ChecksAtOnce), Revisions: stubRevisions{},
		Gate: quotas, Host: "localhost", Port: port, CertDir: s.certDir, Namespace: operatorNamespace, Service: w.service, Configuration: w.ns,
		Reservation: time.Hour, // no spec is to depend on how fast this machine is
		Clock:       s.clock, Rand: rand.Float64, Log: GinkgoLogr, Registry: prometheus.NewRegistry(),
	})).To(Succeed())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
	})
	return port
}

func freePort(t testing.TB) int {
	t.Helper()
	port, err := ports.Free()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// shipped is the configuration as users install it.
func shipped() *admissionv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	docs := documents(testenv.Root("config", "webhook", "base", "configuration.yaml"))
	Expect(docs).To(HaveLen(1))
	c := &admissionv1.ValidatingWebhookConfiguration{}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(docs[0].Object, c)).To(Succeed())
	return c
}

// register has the API server ask the webhook at a port about this world's runs, by
// the shipped configuration.
func (w *world) register(ctx context.Context, port int, change ...func(*admissionv1.ValidatingWebhook)) {
	GinkgoHelper()
	c := shipped()
	c.Name = w.ns
	hook := &c.Webhooks[0]
	hook.ClientConfig.Service.Name, hook.ClientConfig.Service.Port = w.service, new(int32(port))
	hook.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}}
	for _, f := range change {
		f(hook)
	}
	Expect(suite.client.Create(ctx, c)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(suite.client.Delete(ctx, c)).To(Succeed()) })
}

// change edits the registration.
func (w *world) change(ctx context.Context, edit func(*admissionv1.ValidatingWebhook)) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		c := &admissionv1.ValidatingWebhookConfiguration{}
		g.Expect(suite.client.Get(ctx, client.ObjectKey{Name: w.ns}, c)).To(Succeed())
		edit(&c.Webhooks[0])
		g.Expect(suite.client.Update(ctx, c)).To(Succeed())
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
}

func patient(h *admissionv1.ValidatingWebhook) { h.TimeoutSeconds = new(int32(30)) }
func closed(h *admissionv1.ValidatingWebhook)  { h.FailurePolicy = new(admissionv1.Fail) }

// policy makes a LockPolicy for a class of the same name, and returns that.
func (w *world) policy(ctx context.Context, name string, a v1alpha1.AdmissionPolicy) string {
	GinkgoHelper()
	p := lockPolicy(w.ns+"-"+name, a)
	Expect(suite.client.Create(ctx, p)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(suite.client.Delete(ctx, p)).To(Succeed()) })
	return p.Name
}

// guarded waits until creations are judged: the API server has the registration, and the operator
// the policies made so far.
func (w *world) guarded(ctx context.Context) {
	GinkgoHelper()
	class := w.policy(ctx, fmt.Sprintf("sentry-%d", w.instance.asked.Load()), rejecting(0))
	Eventually(ctx, func() string {
		return w.create(ctx, w.run(class, "sentry"), "?dryRun=All").cause()
	}).WithTimeout(patience).WithPolling(polling).Should(Equal(v1alpha1.ReasonTenantAtCapacity))
	w.instance.asked.Store(0)
}

func (w *world) run(class, name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkflowRun"},
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.WorkflowRunSpec{
			WorkloadClass: class, Steps: []v1alpha1.Step{{Name: "step", Job: &v1alpha1.Job{Topic: "work"}}},
		},
	}
}

// create sends one POST, and no other whatever comes back. The run has what the API server
// made of it.
func (w *world) create(ctx context.Context, run *v1alpha1.WorkflowRun, query string) reply {
	GinkgoHelper()
	body, err := json.Marshal(run)
	Expect(err).NotTo(HaveOccurred())
	url := strings.TrimSuffix(suite.config.Host, "/") + "/apis/syncopate.dev/v1alpha1/namespaces/" + w.ns + "/workflowruns" + query
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	Expect(err).NotTo(HaveOccurred())
	req.Header.Set("Content-Type", "application/json")
	resp, err := suite.raw.Do(req)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	Expect(err).NotTo(HaveOccurred())
	got := reply{code: resp.StatusCode, header: resp.Header}
	if got.code == http.StatusCreated {
		Expect(json.Unmarshal(text, run)).To(Succeed())
	} else {
		Expect(json.Unmarshal(text, &got.status)).To(Succeed(), string(text))
	}
	return got
}
