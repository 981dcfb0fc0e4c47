// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

// mutation: Reconcile that does not say that it is in line.
func TestARunInLineKeepsItsErrors(t *testing.T) {
	turns := shares.NewTurns(1, shares.KindMetrics{}, func(types.NamespacedName) {})
	r := &Reconciler{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0)), Turns: turns}
	if _, may := turns.Enter(types.NamespacedName{Namespace: "other", Name: "a"}); !may {
		t.Fatal("there is no place")
	}
	req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "a"}}
	l := r.backoff.Limiter(firstBackoff, maxBackoff)
	l.When(req)
	l.When(req)
	if result, err := r.Reconcile(t.Context(), req); err != nil || result != (reconcile.Result{}) {
		t.Fatalf("%+v, %v", result, err)
	}
	if l.Forget(req); l.NumRequeues(req) != 2 {
		t.Errorf("%d errors are known, want 2", l.NumRequeues(req))
	}
	if l.Forget(req); l.NumRequeues(req) != 0 {
		t.Error("a pass that was made has its errors forgotten")
	}
}
