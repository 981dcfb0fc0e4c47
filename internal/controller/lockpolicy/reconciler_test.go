package lockpolicy

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestMain(m *testing.M) {
	// Connections to the API server are kept alive after the last request; nobody owns them.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

// startServer runs an API server for one test.
func startServer(t *testing.T) client.Client {
	t.Helper()
	root := filepath.Join("..", "..", "..")
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(root, "bin", "k8s")
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server (make controlplane builds it): %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// verdict is what the status of a policy says.
type verdict struct {
	Status  metav1.ConditionStatus
	Reason  string
	Message string
}

const inForce = "In force for all its classes"

// mutation: Reconcile that only looks at the policy of the request, or a write that is made although nothing changed, or one
// that forgets observedGeneration: each makes a part of this story fail.
func TestPoliciesThatClaimTheSameClass(t *testing.T) {
	c := startServer(t)
	r := &Reconciler{Client: c}

	create(t, c, "a-older", "batch", "etl")
	create(t, c, "b-other", "payments")
	pass(t, r)
	expect(t, c, map[string]verdict{
		"a-older": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"b-other": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
	})

	create(t, c, "c-younger", "gpu", "batch")
	pass(t, r)
	expect(t, c, map[string]verdict{
		"a-older":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"b-other":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"c-younger": {metav1.ConditionFalse, v1alpha1.ReasonClassConflict, `Class "batch" belongs to the older policy "a-older"; take it out of one of them`},
	})

	before := versions(t, c)
	pass(t, r)
	if diff := cmp.Diff(before, versions(t, c)); diff != "" {
		t.Errorf("a pass with nothing new wrote (-before +after):\n%s", diff)
	}

	older := get(t, c, "a-older")
	since := meta.FindStatusCondition(get(t, c, "c-younger").Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime
	if err := c.Delete(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	pass(t, r)
	expect(t, c, map[string]verdict{
		"b-other":   {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
		"c-younger": {metav1.ConditionTrue, v1alpha1.ReasonReady, inForce},
	})
	if now := meta.FindStatusCondition(get(t, c, "c-younger").Status.Conditions, v1alpha1.ConditionReady).LastTransitionTime; now.Before(&since) {
		t.Errorf("the transition went back in time: %s, then %s", since, now)
	}

	changed := get(t, c, "b-other")
	changed.Spec.RunLock.TTLSeconds = 60
	if err := c.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	pass(t, r)
	if got := get(t, c, "b-other"); got.Status.ObservedGeneration != got.Generation || got.Generation != 2 {
		t.Errorf("observedGeneration %d of generation %d", got.Status.ObservedGeneration, got.Generation)
	}
}

func create(t *testing.T, c client.Client, name string, classes ...string) {
	t.Helper()
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.LockPolicySpec{WorkloadClasses: classes}}
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatalf("create policy %s: %v", name, err)
	}
}

func get(t *testing.T, c client.Client, name string) *v1alpha1.LockPolicy {
	t.Helper()
	p := &v1alpha1.LockPolicy{}
	if err := c.Get(t.Context(), client.ObjectKey{Name: name}, p); err != nil {
		t.Fatalf("get policy %s: %v", name, err)
	}
	return p
}

func pass(t *testing.T, r *Reconciler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	res, err := r.Reconcile(ctx, all)
	if err != nil || !res.IsZero() {
		t.Fatalf("reconcile: %v, %v", res, err)
	}
}

func list(t *testing.T, c client.Client) []v1alpha1.LockPolicy {
	t.Helper()
	var l v1alpha1.LockPolicyList
	if err := c.List(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	return l.Items
}

func expect(t *testing.T, c client.Client, want map[string]verdict) {
	t.Helper()
	got := map[string]verdict{}
	for _, p := range list(t, c) {
		if p.Status == nil {
			t.Fatalf("policy %s has no status", p.Name)
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.ObservedGeneration != p.Generation {
			t.Fatalf("policy %s: %+v", p.Name, p.Status)
		}
		got[p.Name] = verdict{ready.Status, ready.Reason, ready.Message}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func versions(t *testing.T, c client.Client) map[string]string {
	t.Helper()
	v := map[string]string{}
	for _, p := range list(t, c) {
		v[p.Name] = p.ResourceVersion
	}
	return v
}
