// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

var server testenv.Shared

func TestMain(m *testing.M) { server.Main(m) }

// world is a namespace, and operators that are driven by hand.
type world struct {
	t      *testing.T
	client client.WithWatch
	ns     string
	clock  *clocktesting.FakePassiveClock
	hour   time.Time         // in which the last schedule was made
	funcs  interceptor.Funcs // of operators made from now on
	events *events.FakeRecorder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	c, ns := server.Namespace(t, "schedules-")
	now := time.Now()
	return &world{
		t: t, client: c, ns: ns, clock: clocktesting.NewFakePassiveClock(now), hour: now.Truncate(time.Hour), events: events.NewFakeRecorder(1000),
	}
}

type always struct{}

func (always) Early(ctx context.Context, _ types.UID) (context.Context, func()) {
	return context.WithCancel(ctx)
}

func (always) Enter(ctx context.Context, _ types.UID) (context.Context, func() bool, bool) {
	return ctx, func() bool { return false }, true
}

func (w *world) operator() *Reconciler {
	c := interceptor.NewClient(w.client, w.funcs)
	return &Reconciler{
		Client: c, Live: w.client, Clock: w.clock, Events: w.events, Driven: always{}, Metrics: NewMetrics(prometheus.NewRegistry()),
		Below: func(context.Context, *v1alpha1.WorkflowRun) (bool, error) { return false, nil },
		Runs: func(ctx context.Context, s *v1alpha1.Schedule) ([]v1alpha1.WorkflowRun, error) {
			var list v1alpha1.WorkflowRunList
			if err := c.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
				return nil, err
			}
			var own []v1alpha1.WorkflowRun
			for _, run := range list.Items {
				if metav1.IsControlledBy(&run, s) {
					own = append(own, run)
				}
			}
			return own, nil
		},
	}
}

const steps = `{"steps":[{"name":"work","job":{"topic":"reports.daily"}}]}`

// schedule creates one that is due at each full hour.
func (w *world) schedule(name string, change func(*v1alpha1.Schedule)) *v1alpha1.Schedule {
	w.t.Helper()
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
	s.Spec.Cron = []string{"0 * * * *"}
	s.Spec.RunTemplate.Spec.Raw = []byte(steps)
	if change != nil {
		change(s)
	}
	if err := w.client.Create(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	w.hour = s.CreationTimestamp.Truncate(time.Hour)
	return s
}

// pass is one that has to succeed, after conflicts.
func (w *world) pass(r *Reconciler, s *v1alpha1.Schedule) reconcile.Result {
	w.t.Helper()
	for range 10 {
		result, err := r.Reconcile(w.t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		if err != nil {
			w.t.Fatal(err)
		}
		if result.RequeueAfter != conflictPause {
			return result
		}
	}
	w.t.Fatal("conflicts without an end")
	return reconcile.Result{}
}

// settle makes passes until nothing is to be done at once.
func (w *world) settle(r *Reconciler, s *v1alpha1.Schedule) *v1alpha1.ScheduleStatus {
	w.t.Helper()
	for range 100 {
		if result := w.pass(r, s); result.RequeueAfter != time.Millisecond && result.RequeueAfter != confirmPause {
			return w.stored(s).Status
		}
	}
	w.t.Fatal("passes without an end")
	return nil
}

func (w *world) stored(s *v1alpha1.Schedule) *v1alpha1.Schedule {
	w.t.Helper()
	got := &v1alpha1.Schedule{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(s), got); err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) edit(s *v1alpha1.Schedule, change func(*v1alpha1.Schedule)) {
	w.t.Helper()
	got := w.stored(s)
	change(got)
	if err := w.client.Update(w.t.Context(), got); err != nil {
		w.t.Fatal(err)
	}
}

// at sets the clock to some time in a later hour than that of the last schedule, which may end
// while the test runs.
func (w *world) at(hours int, minutes time.Duration) {
	w.clock.SetTime(w.hour.Add(time.Duration(hours)*time.Hour + minutes*time.Minute))
}

// slot is a full hour, by the same count.
func (w *world) slot(hours int) time.Time {
	return w.hour.Add(time.Duration(hours) * time.Hour)
}

func (w *world) runs() map[string]*v1alpha1.WorkflowRun {
	w.t.Helper()
	var list v1alpha1.WorkflowRunList
	if err := w.client.List(w.t.Context(), &list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}
	all := map[string]*v1alpha1.WorkflowRun{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	return all
}

// end ends a run as the run controller would.
func (w *world) end(name string, phase v1alpha1.RunPhase) {
	w.t.Helper()
	run := w.runs()[name]
	if run == nil {
		w.t.Fatalf("no run %s", name)
	}
	at := metav1.NewTime(w.clock.Now())
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: phase, CompletedAt: &at, Outputs: &runtime.RawExtension{Raw: []byte(`{"left":0}`)}}
	if err := w.client.Status().Update(w.t.Context(), run); err != nil {
		w.t.Fatal(err)
	}
}

// reasons are those of slots without a run, as "Overlap x 2".
func reasons(s *v1alpha1.ScheduleStatus) (all []string) {
	for _, r := range s.Skipped {
		all = append(all, fmt.Sprintf("%s x %d", r.Reason, r.Count))
	}
	return all
}
