// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// lockObjects are a semaphore, a run that holds all of it, two that wait, and one of a mutex in
// another namespace.
func lockObjects() []client.Object {
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "gpu-pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 1, OnBusy: v1alpha1.OnBusyQueue}}
	holder, waiter, other := testRun("team-a", "holder", "u-1"), testRun("team-a", "waiter", "u-2"), testRun("team-b", "other", "u-3")
	at := holder.CreationTimestamp
	holder.Status = &v1alpha1.WorkflowRunStatus{
		Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &at}, Locks: []v1alpha1.LockHold{{Name: "gpu-pool/eu", Permits: 1, Fence: 17}},
	}
	waiter.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunQueued, Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "gpu-pool/eu", StartedAt: at}},
	}
	other.Status = &v1alpha1.WorkflowRunStatus{
		Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &at}, Locks: []v1alpha1.LockHold{{Name: "mutex:team-b/deploy", Permits: 1, Fence: 18}},
	}
	last := testRun("team-a", "waiter-2", "u-4")
	last.Status = waiter.Status.DeepCopy()
	return []client.Object{sem, holder, waiter, other, last}
}

// mutations: names that are not looked at, or a bound that is not applied to JSON, makes this fail.
func TestLocks(t *testing.T) {
	p := newPlugin(t, lockObjects()...)
	all := p.must("locks")
	for _, want := range []string{"gpu-pool/eu", "1 of 1", "team-a/holder", "10m ago", "17", "1 of 2   team-a/waiter", "no room: 0 of 1 free", "team-b/other", "kubectl syncopate why holder -n team-a"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	one := p.must("locks", "gpu-pool", "gpu-pool/eu", "--limit", "1", "-o", "json")
	var locks []runview.Lock
	if err := json.Unmarshal([]byte(one), &locks); err != nil || len(locks) != 1 || len(locks[0].Holders) != 1 || locks[0].Holders[0].Fence != 17 || locks[0].Waiting != 2 || len(locks[0].Waiters) != 1 {
		t.Errorf("%v:\n%s", err, one)
	}
	if text := p.must("locks", "mutex:deploy"); !strings.Contains(text, "mutex:team-a/deploy   0 of 1") || strings.Contains(text, "team-b") {
		t.Errorf("a free mutex:\n%s", text)
	}
	why := p.must("why", "waiter")
	if !strings.Contains(why, "lock gpu-pool/eu  place 1 of 2 for it; no room: 0 of 1 free; held by team-a/holder") || strings.Contains(why, "line ") {
		t.Errorf("why:\n%s", why)
	}
	if out, note, err := newPlugin(t).call("locks"); err != nil || out != "" || !strings.Contains(note, "No lock is held") {
		t.Errorf("none: %q, %q, %v", out, note, err)
	}
}

// mutation: a note that is left out makes this fail.
func TestLocksThatMayNotBeSeen(t *testing.T) {
	p := newPlugin(t)
	c := fakeCluster(t, lockObjects()...).WithInterceptorFuncs(forbid(func(list client.ObjectList, o *client.ListOptions) bool {
		_, sems := list.(*v1alpha1.SemaphoreList)
		return sems || o.Namespace == ""
	})).Build()
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	out, note, err := p.call("locks")
	if err != nil || !strings.Contains(out, "1 of ?") || strings.Contains(out, "team-b") {
		t.Errorf("%v:\n%s", err, out)
	}
	for _, want := range []string{"Only the runs of namespace team-a are seen", "Semaphores are not seen"} {
		if !strings.Contains(note, want) {
			t.Errorf("it does not note %q: %q", want, note)
		}
	}
	if _, _, err := p.call("locks", "us-pool"); err == nil || !strings.Contains(err.Error(), "you may not list Semaphores") {
		t.Errorf("a semaphore that may not be seen: %v", err)
	}
}

// mutation: why that ends where other runs may not be listed makes this fail.
func TestWhyOfARunWhereOthersMayNotBeSeen(t *testing.T) {
	run := testRun("team-a", "report", "uid-1")
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued}
	p := newPlugin(t)
	c := fakeCluster(t, run).WithInterceptorFuncs(forbid(func(list client.ObjectList, _ *client.ListOptions) bool {
		_, runs := list.(*v1alpha1.WorkflowRunList)
		return runs
	})).Build()
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	if out, _, err := p.call("why", "report"); err != nil || !strings.Contains(out, "the other runs under way could not be read: list runs: ") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// pagedRuns gives runs in so many pages, and notes until when each is waited for.
type pagedRuns struct {
	client.Client
	pages int
	until []time.Time
}

func (p *pagedRuns) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if runs, ok := list.(*v1alpha1.WorkflowRunList); ok {
		until, _ := ctx.Deadline()
		if p.until = append(p.until, until); len(p.until) < p.pages {
			runs.Continue = "more"
			return nil
		}
	}
	return p.Client.List(ctx, list, opts...)
}

// There may be a thousand pages, and the link may be slow.
//
// mutation: seeWaits that bounds all pages together, or none, makes this fail.
func TestWhyWaitsForEachPageOfOthers(t *testing.T) {
	run := testRun("team-a", "report", "uid-1")
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued}
	cluster := &pagedRuns{Client: fakeCluster(t, run).Build(), pages: 3}
	p := newPlugin(t)
	p.cluster = func() (client.Client, string, error) { return cluster, "team-a", nil }
	begin := time.Now()
	if out := p.must("why", "report"); !strings.Contains(out, "place 1 of 1") {
		t.Errorf("no place:\n%s", out)
	}
	if len(cluster.until) != cluster.pages {
		t.Errorf("%d pages", len(cluster.until))
	}
	var last time.Time
	for n, until := range cluster.until {
		if until.Before(begin) || until.After(time.Now().Add(othersPatience)) || !until.After(last) {
			t.Errorf("page %d is waited for until %s, the one before until %s", n+1, until, last)
		}
		last = until
	}
}

// mutation: why that ends where other runs or semaphores cannot be read makes this fail.
func TestWhyOfARunWhereOthersCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		away client.ObjectList
		want []string
	}{
		"runs":       {&v1alpha1.WorkflowRunList{}, []string{"team-a/waiter  Queued", "the other runs under way could not be read: list runs: "}},
		"semaphores": {&v1alpha1.SemaphoreList{}, []string{"team-a/waiter  Queued", "held by team-a/holder"}},
	} {
		p := newPlugin(t)
		cluster := fakeCluster(t, lockObjects()...).WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c2 client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if fmt.Sprintf("%T", list) == fmt.Sprintf("%T", c.away) {
					return apierrors.NewTimeoutError("etcd is slow", 1)
				}
				return c2.List(ctx, list, opts...)
			},
		}).Build()
		p.cluster = func() (client.Client, string, error) { return cluster, "team-a", nil }
		out, _, err := p.call("why", "waiter")
		if !apierrors.IsTimeout(err) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: it does not say %q:\n%s", name, want, out)
			}
		}
	}
}

// templateLocks are a semaphore of which one of four permits is free, a mutex that is held, and two
// runs of a Workflow that ask for two permits and the mutex.
func templateLocks(t *testing.T) []client.Object {
	t.Helper()
	spec := v1alpha1.WorkflowSpec{Template: v1alpha1.WorkflowTemplate{
		Locks: []v1alpha1.LockRequest{{Semaphore: "gpu-pool", Key: "eu", Permits: new(int32(2))}, {Mutex: "deploy"}},
		Steps: []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}}},
	}}
	data, revision, err := template.Encode(&spec)
	if err != nil {
		t.Fatal(err)
	}
	at := metav1.Time{Time: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)}
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "gpu-pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 4, OnBusy: v1alpha1.OnBusyQueue}}
	holder := testRun("team-a", "holder", "u-1")
	holder.Status = &v1alpha1.WorkflowRunStatus{
		Admission: &v1alpha1.AdmissionStatus{AdmittedAt: &at},
		Locks:     []v1alpha1.LockHold{{Name: "gpu-pool/eu", Permits: 3, Fence: 17}, {Name: "mutex:team-a/deploy", Permits: 1, Fence: 17}},
	}
	kept := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: template.ObjectName("train", revision)}, Data: runtime.RawExtension{Raw: data},
	}
	all := []client.Object{sem, holder, kept}
	for i, name := range []string{"first", "second"} {
		run := testRun("team-a", name, "u-"+name)
		run.CreationTimestamp = metav1.NewTime(at.Add(time.Duration(i) * time.Minute))
		run.Spec = v1alpha1.WorkflowRunSpec{WorkloadClass: "default", WorkflowRef: &v1alpha1.WorkflowReference{Name: "train"}}
		run.Status = &v1alpha1.WorkflowRunStatus{
			Phase: v1alpha1.RunQueued, Workflow: &v1alpha1.WorkflowRevision{Name: "train", Revision: revision},
			Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "gpu-pool/eu", StartedAt: run.CreationTimestamp}},
		}
		all = append(all, run)
	}
	return all
}

// mutations: seeLocks that leaves the run as the API server stores it, locks that does not read
// what runs follow, or reads it for each run, makes this fail.
func TestWhatARunOfAWorkflowAsksForIsNotGuessed(t *testing.T) {
	p, read := newPlugin(t), 0
	c := fakeCluster(t, templateLocks(t)...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is {
				read++
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	why := strings.Join(strings.Fields(p.must("why", "first")), " ")
	for _, want := range []string{"place 1 of 2 for it; no room: 1 of 4 free", "lock mutex:team-a/deploy place 1 of 1 for it; no room: 0 of 1 free"} {
		if !strings.Contains(why, want) {
			t.Errorf("why does not say %q:\n%s", want, why)
		}
	}
	read = 0
	text := strings.Join(strings.Fields(p.must("locks")), " ")
	for _, want := range []string{"gpu-pool/eu 1 of 2 team-a/first - 2 10m ago - no room: 1 of 4 free", "mutex:team-a/deploy 2 of 2 team-a/second - 1 9m ago - no room: 0 of 1 free"} {
		if !strings.Contains(text, want) {
			t.Errorf("locks does not say %q:\n%s", want, text)
		}
	}
	if read != 1 {
		t.Errorf("the revision of two runs is read %d times", read)
	}
}

// mutation: one permit, and room, for who asks for nobody knows what makes this fail.
func TestWhatCannotBeKnownOfALockIsNotClaimed(t *testing.T) {
	objects := templateLocks(t)
	gone := newPlugin(t, slices.Delete(slices.Clone(objects), 2, 3)...)
	hidden := newPlugin(t)
	c := fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*appsv1.ControllerRevision); is {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "controllerrevisions"}, key.Name, errors.New("no"))
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	hidden.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	for name, p := range map[string]*plugin{"gone": gone, "hidden": hidden} {
		const want = "1 of 4 free; it is not known how many permits it needs, and of which other locks"
		why, note, err := p.call("why", "first")
		if err != nil || !strings.Contains(why, want) || (note != "") != (name == "hidden") {
			t.Errorf("%s: why does not say %q: %v, %q\n%s", name, want, err, note, why)
		}
		if text := strings.Join(strings.Fields(p.must("locks")), " "); !strings.Contains(text, "1 of 2 team-a/first - ? 10m ago - "+want) {
			t.Errorf("%s: locks does not say %q:\n%s", name, want, text)
		}
	}
	ill := newPlugin(t)
	broken := fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ types.NamespacedName, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewInternalError(errors.New("ill"))
		},
	}).Build()
	ill.cluster = func() (client.Client, string, error) { return broken, "team-a", nil }
	if _, _, err := ill.call("locks"); err == nil || !strings.Contains(err.Error(), "ill") {
		t.Errorf("an API server that is ill: %v", err)
	}
}

// withoutEnd is an API server that has more runs with each page. It counts the questions, and notes
// which runs they select.
func withoutEnd(t *testing.T, asked map[string]int, objects ...client.Object) func() (client.Client, string, error) {
	t.Helper()
	c := fakeCluster(t, objects...).Build()
	return func() (client.Client, string, error) { return endless{c, asked}, "team-a", nil }
}

type endless struct {
	client.Client
	asked map[string]int
}

func (e endless) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	runs, ok := list.(*v1alpha1.WorkflowRunList)
	if !ok {
		return e.Client.List(ctx, list, opts...)
	}
	e.asked[fmt.Sprint(o.Limit)]++
	runs.Continue = "more"
	return nil
}

// mutation: UnderWay that ends at its bound without a word makes this fail.
func TestRunsBeyondTheBoundAreToldOf(t *testing.T) {
	sem := &v1alpha1.Semaphore{ObjectMeta: metav1.ObjectMeta{Name: "gpu-pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 1}}
	object := owners(t, func(int) string { return "pod-a.one" })
	queued := testRun("team-a", "queued", "u-q")
	queued.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunQueued}
	for _, line := range [][]string{{"locks"}, {"tenants"}, {"shards"}, {"why", "queued"}} {
		p, asked := newPlugin(t), map[string]int{}
		p.cluster = withoutEnd(t, asked, sem, object, queued)
		_, note, err := p.call(line...)
		if err != nil || !strings.Contains(note, "There are more than 100000 runs under way. The others are not seen.") {
			t.Errorf("%v: %q, %v", line, note, err)
		}
		if len(asked) != 1 || asked["100"] != 1000 {
			t.Errorf("%v: pages by their size: %v", line, asked)
		}
	}
}

// mutation: UnderWay without its selector makes this fail.
func TestRunsThatHaveEndedAreNotRead(t *testing.T) {
	under, ended := testRun("team-a", "under", "u-1"), testRun("team-a", "ended", "u-2")
	under.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning}
	ended.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunTimedOut, CompletedAt: &under.CreationTimestamp}
	var selected []string
	p := newPlugin(t, under, ended)
	p.selected = func(selector string) { selected = append(selected, selector) }
	if _, _, err := p.call("tenants"); err != nil {
		t.Fatal(err)
	}
	if len(selected) != 1 {
		t.Fatalf("%d questions", len(selected))
	}
	selector, err := fields.ParseSelector(selected[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, phase := range []v1alpha1.RunPhase{"", v1alpha1.RunPending, v1alpha1.RunQueued, v1alpha1.RunRunning, v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut} {
		over := slices.Contains([]v1alpha1.RunPhase{v1alpha1.RunSucceeded, v1alpha1.RunFailed, v1alpha1.RunCancelled, v1alpha1.RunTimedOut}, phase)
		if selector.Matches(fields.Set{"status.phase": string(phase)}) == over {
			t.Errorf("%q selects runs of phase %q: %t", selected[0], phase, !over)
		}
	}
}

// A child run that cleans up after its run at the top has ended waits in the place of that one.
//
// mutations: lockSight without Tops, or Tops that takes a run that it may not read for one that is
// gone, makes this fail.
func TestAChildOfARunThatHasEndedWaitsWhereThatOneDoes(t *testing.T) {
	objects := lockObjects()
	top, child := testRun("team-a", "top", "u-8"), testRun("team-a", "child", "u-9")
	at := metav1.NewTime(top.CreationTimestamp.Add(time.Minute))
	top.Spec.Priority = 500
	top.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: &at}
	child.CreationTimestamp = at
	child.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunQueued, Parent: &v1alpha1.ParentStatus{Name: "top", Root: "top"},
		Admission: &v1alpha1.AdmissionStatus{LockWait: &v1alpha1.LocksWait{Lock: "gpu-pool/eu", StartedAt: at}},
	}
	p := newPlugin(t, append(objects, top, child)...)
	const uncertain = "places are not certain: of 1 child runs that wait the run at the top"
	for _, line := range [][]string{{"locks", "gpu-pool"}, {"why", "child"}} {
		text := strings.Join(strings.Fields(p.must(line...)), " ")
		if !strings.Contains(text, "1 of 3 team-a/child") && !strings.Contains(text, "place 1 of 3 for it") || strings.Contains(text, uncertain) {
			t.Errorf("%v: the child is not the first in line:\n%s", line, text)
		}
	}
	c := fakeCluster(t, append(lockObjects(), top, child)...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if key.Name == "top" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "workflowruns"}, key.Name, errors.New("no"))
			}
			return c.Get(ctx, key, object, opts...)
		},
	}).Build()
	p.cluster = func() (client.Client, string, error) {
		return selecting{Client: c, note: func(string) {}}, "team-a", nil
	}
	for _, line := range [][]string{{"locks", "gpu-pool"}, {"why", "child"}} {
		if text := p.must(line...); !strings.Contains(text, uncertain) {
			t.Errorf("%v: it does not say that places are not certain:\n%s", line, text)
		}
	}
}

func TestLocksThatMakeNoSense(t *testing.T) {
	p := newPlugin(t, lockObjects()...)
	for name, c := range map[string]struct {
		line []string
		want string
	}{
		"a run":             {[]string{"locks", "holder"}, "kubectl syncopate run-locks holder"},
		"a key":             {[]string{"locks", "us-pool/us"}, `"us-pool/us"`},
		"a limit below 0":   {[]string{"locks", "--limit", "-1"}, "--limit -1"},
		"no such format":    {[]string{"locks", "-o", "yaml"}, "yaml"},
		"Redis is not used": {[]string{"locks", "--redis-addrs", "x:1"}, "--redis-addrs"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := p.call(c.line...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v: %v; want %s", c.line, err, c.want)
			}
		})
	}
	p.cluster = func() (client.Client, string, error) { return nil, "", errors.New("no cluster") }
	if _, _, err := p.call("locks"); err == nil || !strings.Contains(err.Error(), "no cluster") {
		t.Errorf("without a cluster: %v", err)
	}
}
