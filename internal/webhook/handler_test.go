// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/internal/testenv/likecache"
)

// asked is one call of the quota.
type asked struct {
	UID, Tenant, Policy string
	TTL, MaxWait        time.Duration
}

// stubQuotas answers as it is told, and remembers what it was asked.
type stubQuotas struct {
	answer store.Answer
	err    error
	errs   int // how many of the next calls end with err; 0: all
	calls  []asked
	owner  *quota.Owner    // of idempotency keys
	late   bool            // it has the key only once there is room
	keys   []time.Duration // what keys were asked for
	left   []string        // who left
	asked  func()          // is called for each; nil: nothing is
	bound  time.Duration   // of the last call's context, at the start of it
}

func (g *stubQuotas) Reserve(ctx context.Context, run *v1alpha1.WorkflowRun, tenant string, p policy.Effective, ttl time.Duration) (store.Answer, error) {
	a := asked{UID: string(run.UID), Tenant: tenant, Policy: p.Name, TTL: ttl}
	if g.asked != nil {
		g.asked()
	}
	if p.Admission.Lock != nil {
		a.MaxWait = p.Admission.Lock.MaxWait
	}
	g.calls = append(g.calls, a)
	deadline, _ := ctx.Deadline()
	g.bound = time.Until(deadline)
	if g.errs > 0 && len(g.calls) > g.errs {
		return g.answer, nil
	}
	return g.answer, g.err
}

func (g *stubQuotas) ReserveKey(_ context.Context, _ *v1alpha1.WorkflowRun, _ string, ttl time.Duration) (*quota.Owner, error) {
	g.keys = append(g.keys, ttl)
	if g.late && len(g.keys) == 1 {
		return nil, nil //nolint:nilnil // as the interface has it
	}
	return g.owner, nil
}

func (g *stubQuotas) Release(_ context.Context, uid types.UID, tenant, policyName string) error {
	g.left = append(g.left, fmt.Sprint(uid, " ", tenant, " ", policyName))
	return nil
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func objects(t testing.TB, o ...client.Object) client.WithWatch {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(o...).Build()
}

// lockPolicy governs the class of its name.
func lockPolicy(name string, a v1alpha1.AdmissionPolicy) *v1alpha1.LockPolicy {
	return &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: []string{name}, Admission: a},
	}
}

func rejecting(limit int32) v1alpha1.AdmissionPolicy {
	return v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &limit, OnLimit: v1alpha1.OnLimitReject}
}

func underLock(a v1alpha1.AdmissionPolicy, maxWaitMillis int64) v1alpha1.AdmissionPolicy {
	a.Strategy, a.Lock.MaxWaitMillis = v1alpha1.AdmissionStrategyLock, &maxWaitMillis
	return a
}

func namespace(name string, annotations map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: map[string]string{v1alpha1.LabelTenant: "acme"}}}
}

// creation is the request of the API server for a run of a class, changed as the test wants it.
func creation(t testing.TB, class string, change func(*v1alpha1.WorkflowRun, *hooks.Request)) hooks.Request {
	t.Helper()
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "run", UID: "uid-1"},
		Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: class},
	}
	req := hooks.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "request", Operation: admissionv1.Create, Namespace: "team", Name: "run",
		Resource: metav1.GroupVersionResource{Group: "syncopate.dev", Version: "v1alpha1", Resource: "workflowruns"},
	}}
	if change != nil {
		change(run, &req)
	}
	if req.Object.Raw == nil {
		raw, err := json.Marshal(run)
		if err != nil {
			t.Fatal(err)
		}
		req.Object.Raw = raw
	}
	return req
}

func newHandler(cache, live client.Reader, quotas reserver) *handler {
	return &handler{
		cache: cache, live: live, quotas: quotas,
		rand: func() float64 { return 0.5 }, metrics: newMetrics(prometheus.NewRegistry()), ttl: reservation, turns: make(line, 1), checks: make(line, 1), revisions: stubRevisions{},
	}
}

// Which creations cost a question, and which one.
//
// mutation: each condition of refusable, limited and asks taken out makes a row fail, and so does a
// reservation for a dry run.
func TestWhatTheQuotasAreAsked(t *testing.T) {
	one := &asked{UID: "uid-1", Tenant: "acme", Policy: "payments", TTL: reservation}
	with := func(change func(*asked)) *asked {
		a := *one
		change(&a)
		return &a
	}
	tests := map[string]struct {
		class  string
		change func(*v1alpha1.WorkflowRun, *hooks.Request)
		want   *asked
	}{
		"a run of a policy that rejects": {"payments", nil, one},
		"a dry run reserves nothing":     {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.DryRun = new(true) }, with(func(a *asked) { a.TTL = 0 })},
		"not a dry run":                  {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.DryRun = new(false) }, one},
		"a limit of none":                {"closed", nil, with(func(a *asked) { a.Policy = "closed" })},
		"a tenant that it may name": {
			"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Spec.Tenant = "globex" }, with(func(a *asked) { a.Tenant = "globex" }),
		},
		"a lock within the time of the request":        {"locked", nil, with(func(a *asked) { a.Policy, a.MaxWait = "locked", 2*time.Second })},
		"a wait for the lock that leaves time to tell": {"patient", nil, with(func(a *asked) { a.Policy, a.MaxWait = "patient", 6*time.Second })},

		"a tenant that it may not name": {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Spec.Tenant = "initech" }, nil},
		"a tenant without a limit":      {"some", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Spec.Tenant = "" }, nil},
		"a policy that queues":          {"batch", nil, nil},
		"no policy":                     {"unheard-of", nil, nil},
		"a child run, as it says": {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
			run.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("WorkflowRun"))}
		}, nil},
		"owned by something else": {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) {
			run.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("CronRun"))}
		}, &asked{UID: "uid-1", Tenant: "acme", Policy: "payments", TTL: reservation}},
		"suspended": {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Spec.Suspend = true }, nil},
		"to be cancelled": {
			"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Spec.Shutdown = v1alpha1.ShutdownCancel }, nil,
		},
		"a name that is taken":       {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Name = "old" }, nil},
		"a name that was just freed": {"payments", func(run *v1alpha1.WorkflowRun, _ *hooks.Request) { run.Name = "deleted" }, one},
		"an update":                  {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.Operation = admissionv1.Update }, nil},
		"a deletion":                 {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.Operation = admissionv1.Delete }, nil},
		"a status":                   {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.SubResource = "status" }, nil},
		"another resource":           {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.Resource.Resource = "lockpolicies" }, nil},
		"another group":              {"payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) { r.Resource.Group = "example.com" }, nil},
	}
	old := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "old"}}
	deleted := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "deleted"}}
	live := objects(t, old)
	cache := objects(t, old.DeepCopy(), deleted, namespace("team", map[string]string{v1alpha1.AnnotationAllowedTenants: "globex, hooli"}),
		lockPolicy("payments", rejecting(2)), lockPolicy("closed", rejecting(0)),
		lockPolicy("batch", v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(2)), OnLimit: v1alpha1.OnLimitQueue}),
		lockPolicy("some", v1alpha1.AdmissionPolicy{OnLimit: v1alpha1.OnLimitReject, Tenants: []v1alpha1.TenantLimit{{Name: "globex", MaxConcurrentRuns: 1}}}),
		lockPolicy("locked", underLock(rejecting(2), 2000)), lockPolicy("patient", underLock(rejecting(2), 10000)))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			quotas := &stubQuotas{answer: store.Answer{Admitted: true}}
			h := newHandler(cache, live, quotas)
			got := h.Handle(t.Context(), creation(t, test.class, test.change))
			if !got.Allowed {
				t.Errorf("refused: %+v", got.Result)
			}
			var want []asked
			outcome := outcomeNotAsked
			if test.want != nil {
				want, outcome = []asked{*test.want}, outcomeAdmitted
			}
			if diff := cmp.Diff(want, quotas.calls); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if n := testutil.ToFloat64(h.metrics.answers.WithLabelValues(outcome)); n != 1 {
				t.Errorf("%v answers counted as %s", n, outcome)
			}
		})
	}
}

// mutation: a key that is asked for only once there is room, or claimed before, or a slot that is
// kept by whoever is refused for the key makes a row fail.
func TestIdempotencyKeysAreClaimedOnceThereIsRoom(t *testing.T) {
	other, another := &quota.Owner{Name: "team/first", Same: true}, &quota.Owner{Name: "team/first"}
	const same, differs = "DuplicateRun: run team/first of tenant acme has the same idempotency key and the same spec: see there",
		"IdempotencyConflict: run team/first of tenant acme has the same idempotency key and another spec"
	for name, test := range map[string]struct {
		class   string
		quotas  stubQuotas
		dryRun  bool
		code    int32
		message string
		keys    []time.Duration
		slots   int
		left    []string
	}{
		"nobody has it":                    {class: "payments", quotas: stubQuotas{answer: store.Answer{Admitted: true}}, keys: []time.Duration{0, reservation}, slots: 1},
		"another has it":                   {class: "payments", quotas: stubQuotas{owner: other}, code: 409, message: same, keys: []time.Duration{0}},
		"another has it, for another spec": {class: "payments", quotas: stubQuotas{owner: another}, code: 409, message: differs, keys: []time.Duration{0}},
		"there is no room": {
			class: "payments", quotas: stubQuotas{answer: store.Answer{Limit: 1}}, code: 429, keys: []time.Duration{0}, slots: 1,
			message: "TenantAtCapacity: tenant acme is at its limit of 1 under way at a time (LockPolicy payments): 0 under way, 0 being created, 0 waiting",
		},
		"another got it meanwhile": {
			class: "payments", quotas: stubQuotas{answer: store.Answer{Admitted: true}, owner: other, late: true}, code: 409, message: same,
			keys: []time.Duration{0, reservation}, slots: 1, left: []string{"uid-1 acme payments"},
		},
		"a dry run claims nothing": {
			class: "payments", quotas: stubQuotas{answer: store.Answer{Admitted: true}}, dryRun: true, keys: []time.Duration{0, 0}, slots: 1,
		},
		"no limit for the tenant": {class: "some", keys: []time.Duration{0, reservation}},
		"a policy that queues":    {class: "batch"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)), lockPolicy("some", v1alpha1.AdmissionPolicy{OnLimit: v1alpha1.OnLimitReject}),
				lockPolicy("batch", v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(2)), OnLimit: v1alpha1.OnLimitQueue}))
			got := newHandler(cache, cache, &test.quotas).Handle(t.Context(), creation(t, test.class, func(run *v1alpha1.WorkflowRun, r *hooks.Request) {
				run.Spec.IdempotencyKey, r.DryRun = "k", &test.dryRun
			}))
			var code int32
			var message string
			if !got.Allowed {
				code, message = got.Result.Code, got.Result.Message
			}
			if code != test.code || message != test.message || (code == 409) != (!got.Allowed && got.Result.Details.RetryAfterSeconds == 0) {
				t.Errorf("answered %d %q; want %d %q", code, message, test.code, test.message)
			}
			if diff := cmp.Diff(test.keys, test.quotas.keys); diff != "" || len(test.quotas.calls) != test.slots {
				t.Errorf("asked for %d slots, keys (-want +got):\n%s", len(test.quotas.calls), diff)
			}
			if diff := cmp.Diff(test.left, test.quotas.left); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
		})
	}
}

// plannedError is an error as package admission has them; its own cannot be made outside.
type plannedError struct {
	reason string
	delay  time.Duration
}

func (plannedError) Error() string               { return "no luck" }
func (e plannedError) Reason() string            { return e.reason }
func (e plannedError) RetryDelay() time.Duration { return e.delay }

// What the client gets for what the quota says.
//
// mutation: a retry that is rounded down, a cause that is lost, or a 503 for a full tenant makes
// a row fail.
func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		answer  store.Answer
		err     error
		code    int32
		reason  metav1.StatusReason
		cause   string
		message string
		retry   int32
		outcome string
	}{
		"full": {
			answer: store.Answer{Limit: 2, Used: 1, Reserved: 1, Waiting: 3}, code: 429, reason: metav1.StatusReasonTooManyRequests, cause: "TenantAtCapacity",
			message: "tenant acme is at its limit of 2 under way at a time (LockPolicy payments): 1 under way, 1 being created, 3 waiting", retry: 2, outcome: outcomeRejected,
		},
		"none at all": {
			answer: store.Answer{Limit: 0}, code: 429, reason: metav1.StatusReasonTooManyRequests, cause: "TenantAtCapacity",
			message: "tenant acme is admitted none: LockPolicy payments sets its limit to 0 (0 under way)", retry: 2, outcome: outcomeRejected,
		},
		"no Redis": {
			err: plannedError{v1alpha1.ReasonAdmissionUnavailable, 1100 * time.Millisecond}, code: 503, reason: metav1.StatusReasonServiceUnavailable,
			cause: "AdmissionUnavailable", message: "no luck", retry: 2, outcome: outcomeUnavailable,
		},
		"a lock that is not free": {
			err: fmt.Errorf("reserve: %w", plannedError{v1alpha1.ReasonAdmissionBusy, 400 * time.Millisecond}), code: 503, reason: metav1.StatusReasonServiceUnavailable,
			cause: "AdmissionBusy", message: "reserve: no luck", retry: 1, outcome: outcomeBusy,
		},
		"data that was lost": {
			err: plannedError{v1alpha1.ReasonAdmissionRebuilding, time.Second}, code: 503, reason: metav1.StatusReasonServiceUnavailable,
			cause: "AdmissionRebuilding", message: "no luck", retry: 1, outcome: outcomeRebuilding,
		},
		"anything else": {
			err: errors.New("cache gone"), code: 503, reason: metav1.StatusReasonServiceUnavailable,
			cause: "AdmissionUnavailable", message: "cache gone", retry: 1, outcome: outcomeUnavailable,
		},
	}
	cache := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHandler(cache, cache, &stubQuotas{answer: test.answer, err: test.err})
			got := h.Handle(t.Context(), creation(t, "payments", nil))
			want := &metav1.Status{
				Status: metav1.StatusFailure, Code: test.code, Reason: test.reason, Message: test.cause + ": " + test.message,
				Details: &metav1.StatusDetails{
					Name: "run", Group: "syncopate.dev", Kind: "workflowruns", RetryAfterSeconds: test.retry,
					Causes: []metav1.StatusCause{{Type: metav1.CauseType(test.cause), Message: test.message}},
				},
			}
			if diff := cmp.Diff(want, got.Result); got.Allowed || diff != "" {
				t.Errorf("allowed: %v, status (-want +got):\n%s", got.Allowed, diff)
			}
			if n := testutil.ToFloat64(h.metrics.answers.WithLabelValues(test.outcome)); n != 1 {
				t.Errorf("%v answers counted as %s", n, test.outcome)
			}
		})
	}
}

// mutation: more tries, fewer, or tries for those who waited already make a row fail.
func TestQuotasThatCannotBeReachedAreAskedAgain(t *testing.T) {
	tests := map[string]struct {
		reason  string
		errs    int
		allowed bool
		calls   int
	}{
		"reached at the third try":   {v1alpha1.ReasonAdmissionUnavailable, 2, true, 3},
		"not reached":                {v1alpha1.ReasonAdmissionUnavailable, 0, false, 3},
		"a lock that was waited for": {v1alpha1.ReasonAdmissionBusy, 1, false, 1},
		"data that is rebuilt":       {v1alpha1.ReasonAdmissionRebuilding, 1, false, 1},
	}
	cache := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			quotas := &stubQuotas{answer: store.Answer{Admitted: true}, err: plannedError{test.reason, time.Second}, errs: test.errs}
			got := newHandler(cache, cache, quotas).Handle(t.Context(), creation(t, "payments", nil))
			if got.Allowed != test.allowed || len(quotas.calls) != test.calls {
				t.Errorf("allowed: %v after %d calls", got.Allowed, len(quotas.calls))
			}
		})
	}
}

// mutation: the same wait for all makes this fail.
func TestThoseRefusedTogetherComeBackApart(t *testing.T) {
	got := map[int32]bool{}
	for _, r := range []float64{0, 0.32, 0.34, 0.65, 0.67, 0.999999} {
		got[atCapacity("acme", "p", store.Answer{Limit: 1}, r).response("run").Result.Details.RetryAfterSeconds] = true
	}
	if diff := cmp.Diff(map[int32]bool{1: true, 2: true, 3: true}, got); diff != "" {
		t.Errorf("seconds (-want +got):\n%s", diff)
	}
}

func TestAnObjectThatIsNoneIsRefusedForGood(t *testing.T) {
	cache := objects(t)
	got := newHandler(cache, cache, &stubQuotas{}).Handle(t.Context(), creation(t, "payments", func(_ *v1alpha1.WorkflowRun, r *hooks.Request) {
		r.Object.Raw = []byte(`{"spec": 1}`)
	}))
	if got.Allowed || got.Result.Code != 400 || got.Result.Details.RetryAfterSeconds != 0 {
		t.Errorf("answer %+v", got.Result)
	}
}

// One file makes a namespace and a run in it: the cache does not have the namespace yet.
//
// mutation: the namespace read from the cache alone makes this fail.
func TestANamespaceThatTheCacheDoesNotHaveYetIsReadLive(t *testing.T) {
	quotas := &stubQuotas{answer: store.Answer{Admitted: true}}
	h := newHandler(objects(t, lockPolicy("payments", rejecting(2))), objects(t, namespace("team", nil)), quotas)
	got := h.Handle(t.Context(), creation(t, "payments", nil))
	if !got.Allowed || len(quotas.calls) != 1 || quotas.calls[0].Tenant != "acme" {
		t.Errorf("answer %+v, asked %+v", got.Result, quotas.calls)
	}
}

// mutation: an error of a read taken for "not found" makes a row fail.
func TestWhatCannotBeReadIsNoYes(t *testing.T) {
	errDown := errors.New("etcd is down")
	whole := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)), &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "run"}})
	failing := func(kind client.Object) client.Reader {
		return interceptor.NewClient(whole, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", kind) {
					return errDown
				}
				return c.Get(ctx, key, o, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
				if _, ok := kind.(*v1alpha1.LockPolicy); ok {
					return errDown
				}
				return c.List(ctx, l, opts...)
			},
		})
	}
	tests := map[string]struct{ cache, live client.Reader }{
		"policies":          {failing(&v1alpha1.LockPolicy{}), whole},
		"the namespace":     {failing(&corev1.Namespace{}), whole},
		"the name":          {failing(&v1alpha1.WorkflowRun{}), whole},
		"the name, live":    {whole, failing(&v1alpha1.WorkflowRun{})},
		"no such namespace": {objects(t, lockPolicy("payments", rejecting(2))), objects(t)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			quotas := &stubQuotas{answer: store.Answer{Admitted: true}}
			got := newHandler(test.cache, test.live, quotas).Handle(t.Context(), creation(t, "payments", nil))
			if got.Allowed || got.Result.Code != 503 || got.Result.Details.RetryAfterSeconds < 1 || len(quotas.calls) != 0 {
				t.Errorf("answer %+v, asked %d times", got.Result, len(quotas.calls))
			}
		})
	}
}

// line is a number of turns, which are taken by namespaces.
type line chan string

func (l line) Wait(ctx context.Context, namespace string) (func(), error) {
	select {
	case l <- namespace:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mutation: a turn that is not given back, that is taken for strategy Lock too, or not as the run's
// namespace, makes this fail.
func TestABurstTakesTurns(t *testing.T) {
	cache := objects(t, namespace("team", nil), lockPolicy("payments", rejecting(2)), lockPolicy("locked", underLock(rejecting(2), 0)))
	quotas := &stubQuotas{answer: store.Answer{Admitted: true}}
	h := newHandler(cache, cache, quotas)
	turns := make(line, 1)
	h.turns = turns
	turns <- "other" // is with the quota
	ctx := withBudget(t.Context(), httptest.NewRequest(http.MethodPost, Path+"?timeout=1s", nil))
	if got := h.Handle(ctx, creation(t, "payments", nil)); got.Allowed || got.Result.Code != 503 || !strings.Contains(got.Result.Message, "too many") {
		t.Errorf("answer %+v", got.Result)
	}
	if got := h.Handle(ctx, creation(t, "locked", nil)); !got.Allowed {
		t.Errorf("answer %+v to who has to wait for nobody", got.Result)
	}
	<-turns
	quotas.asked = func() {
		if who := <-turns; who != "team" {
			t.Errorf("a turn of namespace %q", who)
		}
		turns <- "team"
	}
	for range 3 {
		if got := h.Handle(ctx, creation(t, "payments", nil)); !got.Allowed {
			t.Errorf("answer %+v", got.Result)
		}
	}
}

// mutation: a budget that does not heed the API server's makes a row fail.
func TestARequestIsAnsweredBeforeTheAPIServerGivesUp(t *testing.T) {
	tests := map[string]struct {
		query          string
		bound, maxWait time.Duration
	}{
		"as shipped":                {"?timeout=10s", 9 * time.Second, 6 * time.Second},
		"less":                      {"?timeout=5s", 4 * time.Second, time.Second},
		"hardly any time":           {"?timeout=1s", shortest, 0},
		"more than is needed":       {"?timeout=30s", longest, 6 * time.Second},
		"not said":                  {"", longest, 6 * time.Second},
		"said in another language":  {"?timeout=never", longest, 6 * time.Second},
		"less than none, by an odd": {"?timeout=-5s", shortest, 0},
	}
	cache := objects(t, namespace("team", nil), lockPolicy("payments", underLock(rejecting(2), 10000)))
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			quotas := &stubQuotas{answer: store.Answer{Admitted: true}}
			r := httptest.NewRequest(http.MethodPost, Path+test.query, nil)
			newHandler(cache, cache, quotas).Handle(withBudget(t.Context(), r), creation(t, "payments", nil))
			if len(quotas.calls) != 1 || quotas.bound > test.bound || quotas.calls[0].MaxWait != test.maxWait {
				t.Errorf("asked %+v within %s", quotas.calls, quotas.bound)
			}
		})
	}
}

func TestThePolicyOfTheCacheIsNotChanged(t *testing.T) {
	long := func() *policy.AdmissionLock { return &policy.AdmissionLock{MaxWait: 8 * time.Second} }
	p := policy.Effective{Admission: policy.Admission{Lock: long(), Trial: &policy.AdmissionTrial{Candidate: "4f2a-2", Lock: long()}}}
	got := within(p, 5*time.Second).Admission
	if got.Lock.MaxWait != 2*time.Second || got.Trial.Lock.MaxWait != 2*time.Second || got.Trial.Candidate != "4f2a-2" {
		t.Errorf("waits %s, and %s in a trial", got.Lock.MaxWait, got.Trial.Lock.MaxWait)
	}
	if p.Admission.Lock.MaxWait != 8*time.Second || p.Admission.Trial.Lock.MaxWait != 8*time.Second {
		t.Errorf("the original waits %s, and %s in a trial", p.Admission.Lock.MaxWait, p.Admission.Trial.Lock.MaxWait)
	}
	p.Admission.Lock, p.Admission.Trial.Lock = nil, nil
	if got := within(p, 5*time.Second).Admission; got.Lock != nil || got.Trial.Lock != nil {
		t.Error("Atomic has a lock")
	}
}

// mutation: observe that has the policies copied.
func TestACreationCostsNoMoreWithManyPolicies(t *testing.T) {
	allocs := func(policies int) float64 {
		var all likecache.Client
		for range policies {
			p := &v1alpha1.LockPolicy{}
			p.Spec.WorkloadClasses = []string{"batch"}
			all.Objects = append(all.Objects, p)
		}
		h := &handler{cache: all}
		return testing.AllocsPerRun(10, func() {
			if _, err := h.observe(t.Context(), &v1alpha1.WorkflowRun{}); err != nil {
				t.Error(err)
			}
		})
	}
	if one, many := allocs(1), allocs(1000); many > one+10 {
		t.Errorf("%.0f allocations with 1,000 policies, %.0f with one", many, one)
	}
}
