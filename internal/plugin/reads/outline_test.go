// SPDX-License-Identifier: Apache-2.0

package reads_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/internal/template"
)

const mib = 1 << 20

// pages is an API server that has so many runs, each as make has it.
type pages struct {
	client.Reader
	runs, given int
	make        func(n int) *v1alpha1.WorkflowRun
}

func (p *pages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	all, ok := list.(*v1alpha1.WorkflowRunList)
	if !ok {
		return fmt.Errorf("no list of runs: %T", list)
	}
	for range min(int(o.Limit), p.runs-p.given) {
		all.Items = append(all.Items, *p.make(p.given))
		p.given++
	}
	if p.given < p.runs {
		all.Continue = "more"
	}
	return nil
}

// bulky is a run of about 100 KB.
func bulky(n int) *v1alpha1.WorkflowRun {
	name := fmt.Sprintf("run-%d", n)
	text := func() *apiruntime.RawExtension {
		return &apiruntime.RawExtension{Raw: []byte(`"` + strings.Repeat("x", 9000) + `"`)}
	}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}}
	run.ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(text().Raw))}}
	run.Spec.Inputs = text()
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Outputs: text()}
	for i := range 4 {
		step := fmt.Sprintf("step-%d", i)
		run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: step, Job: &v1alpha1.Job{Topic: "t", Input: text()}})
		run.Status.Steps = append(run.Status.Steps, v1alpha1.StepStatus{Name: step, Phase: v1alpha1.StepSucceeded, Output: text()})
	}
	return run
}

// bulkyWaiter is one that waits for locks which expressions name.
func bulkyWaiter(n int) *v1alpha1.WorkflowRun {
	run := bulky(n)
	run.Spec.Locks = []v1alpha1.LockRequest{{Mutex: "${inputs}"}, {Mutex: "deploy"}}
	run.Status.Admission = &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "mutex:team/deploy"}}
	return run
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// mutations: UnderWay that keeps runs as they are, or all that wait as a whole, makes this fail.
func TestOfRunsUnderWayLittleIsKept(t *testing.T) {
	const runs = 2000 // 180 MiB
	for name, c := range map[string]struct {
		run  func(n int) *v1alpha1.WorkflowRun
		most int
	}{
		"that go on": {bulky, 10 * mib},
		"that wait":  {bulkyWaiter, 64*mib + 10*mib},
	} {
		t.Run(name, func(t *testing.T) {
			for _, detail := range []reads.Detail{reads.Bare, reads.Locks} {
				before := heap()
				seen, err := reads.UnderWay(t.Context(), &pages{runs: runs, make: c.run}, "", detail)
				if kept := heap() - before; err != nil || len(seen.Runs) != runs || seen.More || kept > c.most {
					t.Errorf("%d bytes of %d runs, more: %t, %v", kept, len(seen.Runs), seen.More, err)
				}
				runtime.KeepAlive(seen)
			}
		})
	}
}

// mutations: a weight that is not looked at, and one that stops before there is another run, make
// this fail.
func TestRunsWithManyLocksAreReadUpToAWeight(t *testing.T) {
	run := bulky(0)
	run.Status.Steps[0].ForEach = &v1alpha1.ForEachStatus{Locks: slices.Repeat([]v1alpha1.ItemLocks{{Locks: make([]v1alpha1.LockHold, 1)}}, 100_000)}
	same := func(int) *v1alpha1.WorkflowRun { return run }
	seen, err := reads.UnderWay(t.Context(), &pages{runs: 500, make: same}, "", reads.Locks)
	if err != nil || !seen.More || seen.Bound != len(seen.Runs) || seen.Bound < 5 || seen.Bound > 50 {
		t.Fatalf("%d runs of a bound of %d, more: %t, %v", len(seen.Runs), seen.Bound, seen.More, err)
	}
	bound := seen.Bound
	if seen, err = reads.UnderWay(t.Context(), &pages{runs: bound, make: same}, "", reads.Locks); err != nil || seen.More || len(seen.Runs) != bound {
		t.Errorf("%d of %d runs, more: %t, %v", len(seen.Runs), bound, seen.More, err)
	}
	if seen, err = reads.UnderWay(t.Context(), &pages{runs: 500, make: same}, "", reads.Bare); err != nil || seen.More || len(seen.Runs) != 500 {
		t.Errorf("%d runs without their locks, more: %t, %v", len(seen.Runs), seen.More, err)
	}
}

// What a run of a Workflow asks for is in its revision, whether there is room for all of it or not.
//
// mutations: an outline without what it follows, and one that gets the inputs of its Workflow, make
// this fail.
func TestOutlinesHaveTheLocksOfTheirWorkflow(t *testing.T) {
	const runs = 1000 // of 100 KB: there is no room for so many
	size := v1alpha1.Parameter{Name: "size", Default: &apiruntime.RawExtension{Raw: []byte("1")}}
	spec := v1alpha1.WorkflowSpec{Parameters: []v1alpha1.Parameter{size}, Template: v1alpha1.WorkflowTemplate{
		Locks: []v1alpha1.LockRequest{{Mutex: "${inputs.key}"}, {Mutex: "deploy"}},
		Steps: []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}}},
	}}
	data, revision, err := template.Encode(&spec)
	if err != nil {
		t.Fatal(err)
	}
	scheme, mapper, err := reads.Kinds()
	if err != nil {
		t.Fatal(err)
	}
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: template.ObjectName("train", revision)}, Data: apiruntime.RawExtension{Raw: data},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(kept).Build()
	seen, err := reads.UnderWay(t.Context(), &pages{runs: runs, make: func(n int) *v1alpha1.WorkflowRun {
		run := bulkyWaiter(n)
		run.Spec.Locks, run.Spec.Steps, run.Spec.WorkflowRef = nil, nil, &v1alpha1.WorkflowReference{Name: "train"}
		run.Status.Workflow = &v1alpha1.WorkflowRevision{Name: "train", Revision: revision}
		return run
	}}, "", reads.Locks)
	if err != nil || len(seen.Whole) == 0 || len(seen.Whole) == runs || len(seen.Runs) != runs {
		t.Fatalf("%d of %d runs are whole, %v", len(seen.Whole), len(seen.Runs), err)
	}
	if err := reads.LocksOfWaiting(t.Context(), c, seen); err != nil {
		t.Fatal(err)
	}
	for i := range seen.Runs {
		run := &seen.Runs[i]
		if inputs := run.Spec.Inputs; len(run.Spec.Locks) != 2 || len(run.Spec.Steps) != 1 || (inputs != nil && len(inputs.Raw) > 0) != seen.Whole[run.UID] {
			t.Fatalf("%s, whole %t: %d locks, inputs %v", run.Name, seen.Whole[run.UID], len(run.Spec.Locks), inputs)
		}
	}
}

var sceneNow = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// scene are runs that differ in all that is told of runs under way.
func scene() []v1alpha1.WorkflowRun {
	at, fence := metav1.NewTime(sceneNow.Add(-time.Hour)), int64(7)
	pool := func(permits int32) v1alpha1.LockRequest {
		return v1alpha1.LockRequest{Semaphore: "pool", Permits: &permits}
	}
	holds := []v1alpha1.LockHold{{Name: "pool/", Permits: 2, Fence: 7}}
	waits := &v1alpha1.LocksWait{Lock: "pool/", StartedAt: at}
	run := func(name string) v1alpha1.WorkflowRun {
		r := *bulky(0)
		r.Name, r.UID, r.CreationTimestamp, r.Spec.WorkloadClass = name, types.UID(name), at, "batch"
		r.Status.Tenant, r.Status.Admission = "acme", &v1alpha1.AdmissionStatus{QueuedAt: &at, AdmittedAt: &at, Policy: "batch"}
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonRunning}}
		r.Status.Fence, r.Status.Lock = &fence, &v1alpha1.RunLockStatus{LeaseID: "p.1", Holder: "pod-a", AcquiredAt: new(metav1.NewTime(at.Time))}
		r.Status.Policy = &v1alpha1.PolicyReference{Name: "batch"}
		return r
	}
	asleep, asks, waiter, steps, items := run("asleep"), run("asks"), run("waiter"), run("steps"), run("items")
	queued, child, named := run("queued"), run("child"), run("named")
	asleep.Spec.Suspend, asleep.Spec.Locks, asleep.Status.Locks = true, []v1alpha1.LockRequest{pool(2)}, holds
	asks.Status.Locks, asks.Status.Steps[3].Phase = holds, v1alpha1.StepWaiting
	waiter.Spec.Locks, waiter.Status.Admission.LockWait = []v1alpha1.LockRequest{{Mutex: "deploy"}, pool(3)}, waits
	waiter.Spec.Priority = 5
	steps.Spec.Finally = []v1alpha1.Step{{Name: "tidy", Locks: []v1alpha1.LockRequest{pool(2)}}}
	steps.Spec.Shutdown, steps.Status.Locks = v1alpha1.ShutdownCancel, holds
	steps.Status.Steps = append(steps.Status.Steps, v1alpha1.StepStatus{Name: "tidy", Phase: v1alpha1.StepPending, LockWait: waits})
	items.Spec.Steps = append(items.Spec.Steps, v1alpha1.Step{Name: "each", ForEach: &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{pool(4)}}})
	items.Status.Steps = append(items.Status.Steps, v1alpha1.StepStatus{Name: "each", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Groups: []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepDispatched}},
		Locks:  []v1alpha1.ItemLocks{{Item: 1, Locks: holds}, {Item: 2, LockWait: waits}},
	}})
	queued.Status.Phase, queued.Status.Admission = v1alpha1.RunQueued, &v1alpha1.AdmissionStatus{QueuedAt: &at}
	child.Status.Parent = &v1alpha1.ParentStatus{Name: "asks"}
	named.Spec.Steps = []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}, Locks: []v1alpha1.LockRequest{{Mutex: "${inputs.key}"}, {Mutex: "deploy"}}}}
	named.Spec.Inputs = &apiruntime.RawExtension{Raw: []byte(`{"key":"eu"}`)}
	named.Status.Steps = []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepPending, LockWait: &v1alpha1.LocksWait{Lock: "mutex:team/deploy", StartedAt: at}}}
	return []v1alpha1.WorkflowRun{asleep, asks, waiter, steps, items, queued, child, named}
}

// told is all that commands tell of runs under way.
func told(seen reads.Seen, sight runview.LockSight, run *v1alpha1.WorkflowRun) map[string]any {
	sight.Runs, sight.Whole, sight.Now = seen.Runs, true, sceneNow
	sight.Semaphores = []v1alpha1.Semaphore{{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 5}}}
	rules := []v1alpha1.LockPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "batch"}, Spec: v1alpha1.LockPolicySpec{WorkloadClasses: []string{"batch"}}}}
	locks := map[string]runview.Sight{"asks": {Token: "p.1", Left: time.Minute, Fence: 7}, "steps": {Waiting: 1}}
	var text strings.Builder
	all := runview.Locks(sight)
	_ = runview.LocksText(&text, all, 0, sceneNow)
	return map[string]any{
		"locks": text.String(), "tenants": runview.Tenants(seen.Runs, rules), "tenants, no policies": runview.Tenants(seen.Runs, nil),
		"place": runview.PlaceOf(run, seen.Runs, rules, true), "run locks": runview.RunLocks(seen.Runs, locks, rules, sceneNow),
		"shards": runview.ShardsOf(make([]ownership.Claim, 64), nil, seen.Runs, sceneNow).Partitions,
	}
}

// mutation: an outline that leaves out anything that a command tells makes this fail.
func TestOutlinesTellAsMuchAsWholeRuns(t *testing.T) {
	whole := scene()
	seen, err := reads.UnderWay(t.Context(), &pages{runs: len(whole), make: func(n int) *v1alpha1.WorkflowRun { return whole[n].DeepCopy() }}, "", reads.Locks)
	if err != nil {
		t.Fatal(err)
	}
	want := told(reads.Seen{Runs: whole}, runview.LockSight{}, &whole[5])
	for _, part := range []string{"is suspended, and keeps it", "waits for an approval", "is being shut down", "Dispatched", "mutex:team/deploy", "mutex:team/eu"} {
		if !strings.Contains(fmt.Sprint(want["locks"]), part) {
			t.Errorf("the test does not try %q:\n%s", part, want["locks"])
		}
	}
	if len(seen.Whole) != 1 || !seen.Whole["named"] {
		t.Errorf("whole are %v", seen.Whole)
	}
	if diff := cmp.Diff(want, told(seen, runview.LockSight{Outlines: true, Bodies: seen.Whole}, &whole[5])); diff != "" {
		t.Errorf("(-whole runs +outlines):\n%s", diff)
	}
	bare, err := reads.UnderWay(t.Context(), &pages{runs: len(whole), make: func(n int) *v1alpha1.WorkflowRun { return whole[n].DeepCopy() }}, "", reads.Bare)
	if err != nil {
		t.Fatal(err)
	}
	got := told(bare, runview.LockSight{Outlines: true}, &whole[5])
	got["locks"] = want["locks"]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-whole runs +bare ones):\n%s", diff)
	}
}
