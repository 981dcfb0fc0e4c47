// SPDX-License-Identifier: Apache-2.0

package stepapproval

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server that all tests share; each has a namespace of its own.
var server testenv.Shared

func TestMain(m *testing.M) { server.Main(m) }

// world is a namespace, and a reconciler on the API server driven by hand.
type world struct {
	t       *testing.T
	client  client.WithWatch
	ns      string
	r       *Reconciler
	patches atomic.Int64
	// beforePatch, if set, is called before each of them.
	beforePatch func()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, ns := server.Namespace(t, "owner-")
	w := &world{t: t, client: c, ns: ns}
	counted := interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			w.patches.Add(1)
			if w.beforePatch != nil {
				w.beforePatch()
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	w.r = &Reconciler{Client: counted, Live: c}
	return w
}

func (w *world) run(name string) *v1alpha1.WorkflowRun {
	w.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "publish", Approval: &v1alpha1.Approval{}}}
	if err := w.client.Create(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
	return run
}

// decide makes a decision about a run of that name; the UID may be empty.
func (w *world) decide(run, uid string, owners ...metav1.OwnerReference) *v1alpha1.StepApproval {
	w.t.Helper()
	a := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, GenerateName: "decision-", OwnerReferences: owners}}
	a.Spec = v1alpha1.StepApprovalSpec{Run: run, RunUID: uid, Step: "publish", Decision: v1alpha1.Approve, Approver: "jane"}
	if err := w.client.Create(w.t.Context(), a); err != nil {
		w.t.Fatal(err)
	}
	return a
}

// inALaterSecond waits until the API server's clock gives times after the given one.
func (w *world) inALaterSecond(than metav1.Time) {
	w.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, GenerateName: "clock-"}}
		if err := w.client.Create(w.t.Context(), probe); err != nil {
			w.t.Fatal(err)
		}
		if probe.CreationTimestamp.After(than.Time) {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatal("the clock stands still")
		}
	}
}

// look has the reconciler look once.
func (w *world) look(a *v1alpha1.StepApproval) (reconcile.Result, error) {
	return w.r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
}

// owners is who owns the decision now.
func (w *world) owners(a *v1alpha1.StepApproval) []metav1.OwnerReference {
	w.t.Helper()
	got := &v1alpha1.StepApproval{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(a), got); err != nil {
		w.t.Fatal(err)
	}
	return got.OwnerReferences
}
