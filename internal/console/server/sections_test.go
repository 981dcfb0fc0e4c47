// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/consoletest"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

// letterBox has one dead letter, and notes what is redriven.
type letterBox struct{ redriven []uint64 }

func (b *letterBox) List(context.Context, int) (facts.Letters, error) {
	one := facts.Letter{Sequence: 7, Reason: "ResultRejected", Cause: "not a result: <script>", Run: "gone-uid", StoredAt: time.Now()}
	return facts.Letters{All: []facts.Letter{one}, More: 3, Warning: "NATS is another cluster's"}, nil
}

func (b *letterBox) Redrive(_ context.Context, sequence uint64) error {
	if sequence != 7 {
		return errors.New("there is no such dead letter")
	}
	b.redriven = append(b.redriven, sequence)
	return nil
}

// mutation: UnderWay without its selector counts runs that ended; PoliciesOf that takes both arms
// from one makes the arms equal; Lines unsorted changes who is first.
func TestPagesOfWhatIsShared(t *testing.T) {
	ns := namespace(t)
	must(t, consoletest.Seed(t.Context(), admin, ns, "syncopate-system", time.Now()))
	view, err := cluster.NewView(apiServer.Config, nil, "")
	must(t, err)
	who, box := access.NewLocal(view), &letterBox{}
	c := serve(t, who, server.Options{Base: who.Base(), Namespace: ns, Letters: box})
	text := c.get("/policies")
	wants(t, text, "canary: the edit", "control: as before", "20 percent of the runs have the edit", "61 of 40 contended", "not in force, or not for all of its classes", "42 retries a minute", "syncopate-5d8c7-k4m2p")
	wants(t, text, `<td class="number">210</td>`, `<td class="number">204</td>`, "BusyRunsWorse", "busyRetry.mode: Jittered -&gt; Fixed", "wait.mode: Poll -&gt; HandOff")
	text = c.get("/tenants")
	wants(t, text, "Queue of acme", `<ol><li><a href="`+who.Base()+"/runs/"+ns+`/next-report">`, "a100", "/runs/"+ns+`/report">`, "priority 5")
	lacks(t, text, "/runs/"+ns+"/import")
	text = c.get("/schedules")
	wants(t, text, "nightly", "Europe/Berlin", "3 runs failed in a row", "/runs/"+ns+"/nightly-29578000", "2 overlap")
	text = c.get("/replicas")
	wants(t, text, "syncopate-5d8c7-x2x8b.q6w2m5j7ra3yd4fn", "does what is done once", "partition 63: owned by")
	text = c.get("/dead-letters")
	wants(t, text, "not a result: &lt;script&gt;", "gone-uid", "And 3 more", "NATS is another cluster&#39;s")
	found := tokens.FindStringSubmatch(text)
	if status, text, _ := c.do(http.MethodPost, "/dead-letters/7/redrive", "csrf="+found[1]); status != http.StatusSeeOther || len(box.redriven) != 1 {
		t.Errorf("%d: %s", status, text)
	}
	if status, _, _ := c.do(http.MethodPost, "/dead-letters/7/redrive", ""); status != http.StatusForbidden || len(box.redriven) != 1 {
		t.Errorf("without the form's token: %d", status)
	}
	wants(t, c.get("/runs/"+ns+"/report"), "waits for approval", "4010 of 10000 items", "StepRetry", "policies#batch", "in the canary of 9a1e-2")
	wants(t, c.get("/runs/"+ns+"/train-large"), "lock gpu/a100", "place 1 of 1 for it", "held by "+ns+"/report")
	poor := local(t, user(t, "jane-poor", ns, sees()), ns)
	wants(t, poor.get("/policies"), "You may not see LockPolicies")
	wants(t, poor.get("/tenants"), "You may not see Semaphores", "Only those of "+ns+" are counted")
	wants(t, poor.get("/dead-letters"), "this console has no rights there")
	if status, text, _ := poor.do(http.MethodGet, "/replicas", ""); status != http.StatusForbidden {
		t.Errorf("%d: %s", status, text)
	}
	sayThatRunsAreLeftOut(t, ns)
}

// endless has the API server's lists of runs go on without an end, and without a run.
type endless struct{ http.RoundTripper }

func (e endless) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); path.Base(r.URL.Path) != "workflowruns" || q.Get("limit") == "" || q.Get("watch") != "" {
		return e.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		Request: r, StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"metadata":{"resourceVersion":"0","continue":"more"}}`)),
	}, nil
}

// mutation: replicas or policies that says nothing of runs which were not read makes this fail.
func sayThatRunsAreLeftOut(t *testing.T, ns string) {
	t.Helper()
	config := rest.CopyConfig(apiServer.Config)
	config.QPS = -1
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return endless{rt} })
	c := local(t, config, ns)
	wants(t, c.get("/replicas"), "There are more runs under way than are counted here")
	text := c.get("/policies")
	wants(t, text, "some that are under way may be missing here")
	lacks(t, text, "No run is under way that was written")
}

// With a leader from the start there is no ConfigMap of partitions.
//
// mutation: Owners that returns before it reads the Lease of the leader makes this fail.
func TestALeaderFromTheStartIsNamed(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "report", in(v1alpha1.RunRunning, ""))
	view, err := cluster.NewView(apiServer.Config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	c := serve(t, who, server.Options{Base: who.Base(), Namespace: ns, Operator: ns})
	wants(t, c.get("/replicas"), "There are no partitions in namespace "+ns)
	lacks(t, c.get("/runs/"+ns+"/report"), "drives the run")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: ownership.LeaderLeaseName}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("pod-l_1"), RenewTime: new(metav1.NowMicro()), LeaseDurationSeconds: new(int32(3600))}
	must(t, admin.Create(t.Context(), lease))
	wants(t, c.get("/replicas"), "pod-l_1 drives all runs")
	wants(t, c.get("/runs/"+ns+"/report"), "the leader pod-l_1 drives the run")
}

// lockRun is a run that asks for permits of a semaphore, and holds as many as held says.
func lockRun(sem string, permits, held int32, more ...v1alpha1.LockRequest) func(*v1alpha1.WorkflowRun) {
	return func(r *v1alpha1.WorkflowRun) {
		r.Spec.Locks = append(slices.Clone(more), v1alpha1.LockRequest{Semaphore: sem, Permits: &permits})
		at := metav1.Now()
		r.Status.Admission = &v1alpha1.AdmissionStatus{QueuedAt: &at}
		if held > 0 {
			in(v1alpha1.RunRunning, "")(r)
			r.Status.Admission.AdmittedAt = &at
			r.Status.Locks = []v1alpha1.LockHold{{Name: sem + "/", Permits: held, Fence: 7}}
			return
		}
		in(v1alpha1.RunQueued, "")(r)
		name := sem + "/"
		if len(more) > 0 {
			name = "mutex:" + r.Namespace + "/" + more[0].Mutex
		}
		r.Status.Admission.LockWait = &v1alpha1.LocksWait{Lock: name, StartedAt: at}
	}
}

// The page of a run that waits for locks says what kubectl syncopate why says of it.
//
// mutations: RunOf without Run has less of the locks that expressions name, and UnderWay whose
// outlines have no locks of spec leaves out who waits for a second lock, too, and takes each
// for one permit.
func TestWhyARunWaitsForLocksIsNotGuessed(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "pool-" + ns}, Spec: v1alpha1.SemaphoreSpec{Permits: 4}}
	must(t, admin.Create(t.Context(), sem))
	t.Cleanup(func() { must(t, admin.Delete(context.WithoutCancel(t.Context()), sem)) })
	newRun(t, ns, "holder", lockRun(sem.Name, 2, 2))
	newRun(t, ns, "first", func(r *v1alpha1.WorkflowRun) {
		lockRun(sem.Name, 1, 0, v1alpha1.LockRequest{Mutex: "deploy"})(r)
		r.Spec.Priority = 5
	})
	newRun(t, ns, "waiter", lockRun(sem.Name, 3, 0))
	newRun(t, ns, "named", func(r *v1alpha1.WorkflowRun) {
		lockRun(sem.Name, 3, 0)(r)
		r.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"key":"eu"}`)}
		r.Spec.Locks = append(r.Spec.Locks, v1alpha1.LockRequest{Semaphore: sem.Name, Key: "${inputs.key}", Permits: new(int32(5))})
	})
	newRun(t, ns, "stepper", func(r *v1alpha1.WorkflowRun) {
		in(v1alpha1.RunRunning, "")(r)
		r.Spec.Steps[0].Locks = []v1alpha1.LockRequest{{Semaphore: sem.Name, Permits: new(int32(3))}}
		r.Status.Steps = []v1alpha1.StepStatus{{Name: "work", Phase: v1alpha1.StepPending, LockWait: &v1alpha1.LocksWait{Lock: sem.Name + "/", StartedAt: metav1.Now()}}}
	})
	c := local(t, apiServer.Config, ns)
	text := c.get("/runs/" + ns + "/waiter")
	wants(t, text, "no room: 2 of 4 free", " of 4 for it", "held by "+ns+"/holder")
	wants(t, c.get("/runs/"+ns+"/stepper"), "no room: 2 of 4 free", "held by "+ns+"/holder")
	wants(t, c.get("/runs/"+ns+"/named"), "lock "+sem.Name+"/eu", "needs 5 permits, and there are 4")
}

// pages has the API server give so many schedules or semaphores at a time, where 500 are asked for.
type pages struct {
	http.RoundTripper
	size int
}

func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if last := path.Base(r.URL.Path); (last == "schedules" || last == "semaphores") && q.Get("limit") == "500" {
		r = r.Clone(r.Context())
		q.Set("limit", strconv.Itoa(p.size))
		r.URL.RawQuery = q.Encode()
	}
	return p.RoundTripper.RoundTrip(r)
}

// mutations: Schedules and Semaphores that do not say that there are more, and Run that takes the
// first page of semaphores for all, or as many pages as it reads, make this fail.
func TestWhatIsLeftOutIsTold(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for i := range 12 {
		must(t, admin.Create(t.Context(), schedule(ns, fmt.Sprint("s-", i))))
		sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("zz-%s-%02d", ns, i)}, Spec: v1alpha1.SemaphoreSpec{Permits: 4}}
		must(t, admin.Create(t.Context(), sem))
		t.Cleanup(func() { must(t, admin.Delete(context.WithoutCancel(t.Context()), sem)) })
	}
	last := "zz-" + ns + "-11"
	newRun(t, ns, "holder", lockRun(last, 3, 3))
	newRun(t, ns, "waiter", lockRun(last, 2, 0))
	of := func(size int) *console {
		config := rest.CopyConfig(apiServer.Config)
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return pages{rt, size} })
		return local(t, config, ns)
	}
	few := of(1)
	wants(t, few.get("/schedules?namespace="+ns), "There are more schedules than the console reads")
	wants(t, few.get("/tenants"), "There are more Semaphores than are shown here")
	text := few.get("/runs/" + ns + "/waiter")
	wants(t, text, "it is not known how many permits there are")
	lacks(t, text, "there is no such Semaphore")
	wants(t, of(8).get("/runs/"+ns+"/waiter"), "no room: 1 of 4 free")
	all := of(500)
	lacks(t, all.get("/schedules?namespace="+ns), "There are more schedules")
	lacks(t, all.get("/tenants"), "There are more Semaphores")
}
