// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const topic = "e2e.work"

var (
	worlds  atomic.Int32
	current *world // of the spec that runs, for dump
)

// world is what one spec works in: a namespace, a policy for the class of the same name, and a page
// of the ledger.
type world struct {
	namespace string // and tenant, class, policy, ledger
	created   int
	refused   []string // why runs were not created at first
	crashed   string   // the operator's pod that the spec made crash
	history   *history
}

// newWorld makes a world in which limit runs may be under way at the same time; adjust
// changes its policy.
func newWorld(ctx context.Context, limit int32, adjust ...func(*v1alpha1.LockPolicySpec)) *world {
	GinkgoHelper()
	// A cluster that was kept has the worlds of earlier suites.
	w := &world{namespace: fmt.Sprintf("e2e-%d-%s", worlds.Add(1), strconv.FormatInt(time.Now().Unix(), 36))}
	current = w
	Expect(k8s.Create(ctx, namespaceNamed(w.namespace))).To(Succeed())
	policy := &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec: v1alpha1.LockPolicySpec{
			WorkloadClasses: []string{w.namespace},
			Admission:       v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &limit},
		},
	}
	for _, f := range adjust {
		f(&policy.Spec)
	}
	Expect(k8s.Create(ctx, policy)).To(Succeed())
	// A run that comes in the same moment may be admitted before the limit is known.
	kubectl(ctx, "wait", "--for=condition=Ready", waitFlag, "lockpolicy/"+policy.Name)
	DeferCleanup(func(ctx context.Context) {
		current = nil
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, namespaceNamed(w.namespace)))).To(Succeed())
		err := k8s.Delete(ctx, policy)
		if !meta.IsNoMatchError(err) { // the specs at the end take the CRDs away
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
	}, NodeTimeout(specTimeout))
	w.history = watchHistory(ctx, w.namespace, int(limit))
	return w
}

// job is a step that takes some time with the worker that writes down what it does.
func (w *world) job(name string, millis int, after ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: after, Job: &v1alpha1.Job{Topic: topic, Input: &runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"ledger":%q,"millis":%d}`, w.namespace, millis),
	}}}
}

// child is a step that is a run of its own, of one job.
func (w *world) child(name string, millis int, after ...string) v1alpha1.Step {
	return v1alpha1.Step{Name: name, DependsOn: after, Run: &v1alpha1.ChildRun{Spec: runtime.RawExtension{
		Raw: fmt.Appendf(nil, `{"steps":[{"name":"only","job":{"topic":%q,"input":%s}}]}`, topic, w.job("", millis).Job.Input.Raw),
	}}}
}

// jobsOfAll is how many jobs the steps of all have.
const jobsOfAll = 5

// all is one step of each kind with jobs, one after the other.
func (w *world) all(millis int) []v1alpha1.Step {
	list := w.job("list", millis, "first")
	list.ForEach = &v1alpha1.ForEach{Items: "${[1, 2]}"}
	return []v1alpha1.Step{w.job("first", millis), list, w.child("child", millis, "list"), w.job("last", millis, "child")}
}

// isChild says whether a run belongs to another one, in whose place at the gate it runs.
func isChild(run *v1alpha1.WorkflowRun) bool {
	return len(run.OwnerReferences) > 0
}

// run is an object for steps, not created yet.
func (w *world) run(name string, steps ...v1alpha1.Step) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: w.namespace, Steps: steps},
	}
}

// create creates runs of the same steps. What the API server refuses for a moment, as when its
// webhook is away, is tried again.
func (w *world) create(ctx context.Context, count int, steps ...v1alpha1.Step) {
	GinkgoHelper()
	for range count {
		run := w.run(fmt.Sprintf("run-%03d", w.created), steps...)
		w.created++
		Eventually(func() error {
			err := client.IgnoreAlreadyExists(k8s.Create(ctx, run.DeepCopy()))
			if err != nil {
				w.refused = append(w.refused, err.Error())
			}
			return err
		}).WithContext(ctx).WithPolling(listInterval).Should(Succeed())
	}
}

// stream creates runs at a steady pace until done says so.
func (w *world) stream(ctx context.Context, done <-chan struct{}, steps ...v1alpha1.Step) {
	GinkgoHelper()
	tick := time.NewTicker(streamInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-done:
			return
		case <-tick.C:
			w.create(ctx, 1, steps...)
		}
	}
}

func (w *world) get(ctx context.Context, name string) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	run := &v1alpha1.WorkflowRun{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, run)).To(Succeed())
	return run
}

// reason is that of a run's condition Succeeded: what it waits for, or how it ended.
func (w *world) reason(ctx context.Context, name string) func() string {
	return func() string {
		run := &v1alpha1.WorkflowRun{}
		if k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, run) != nil || run.Status == nil {
			return ""
		}
		if c := meta.FindStatusCondition(run.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
			return c.Reason
		}
		return ""
	}
}

// stepRuns says whether a worker works on a step.
func (w *world) stepRuns(ctx context.Context, name string, step int) func() bool {
	return func() bool {
		run := &v1alpha1.WorkflowRun{}
		return k8s.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, run) == nil && run.Status != nil &&
			len(run.Status.Steps) > step && run.Status.Steps[step].Phase == v1alpha1.StepRunning
	}
}

// setLimit edits the world's policy.
func (w *world) setLimit(ctx context.Context, limit int) {
	GinkgoHelper()
	w.history.allow(limit)
	kubectl(ctx, "patch", "lockpolicy", w.namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"admission":{"maxConcurrentRuns":%d}}}`, limit))
}

// finished waits until so many runs of the world ended.
func (w *world) finished(ctx context.Context, count int) {
	GinkgoHelper()
	Eventually(w.history.done).WithContext(ctx).WithPolling(pollInterval).Should(BeNumerically(">=", count))
}

// nothingLostNothingTwice waits until all runs succeeded and asks the questions of doc.go. jobs is
// how many there were in all.
func (w *world) nothingLostNothingTwice(ctx context.Context, jobs int) {
	GinkgoHelper()
	for id, by := range w.nothingLost(ctx, jobs) {
		Expect(by).To(HaveLen(1), "job %s was begun more than once", id)
	}
}

// nothingLost is the same for faults after which a worker may be given a job again. It returns who
// began each job.
func (w *world) nothingLost(ctx context.Context, jobs int) map[string][]string {
	GinkgoHelper()
	w.allSucceed(ctx)
	begun, done := readLedger(ctx, w.namespace)
	Expect(done).To(HaveLen(jobs))
	Expect(begun).To(HaveLen(jobs))
	return begun
}

// allSucceed waits for all runs of the world, and checks their status and their history.
func (w *world) allSucceed(ctx context.Context) {
	GinkgoHelper()
	var list v1alpha1.WorkflowRunList
	Eventually(func(g Gomega) {
		g.Expect(k8s.List(ctx, &list, client.InNamespace(w.namespace))).To(Succeed())
		phases := map[v1alpha1.RunPhase]int{}
		for i := range list.Items {
			switch run := &list.Items[i]; {
			case isChild(run): // the parent waits for it
			case run.Status == nil:
				phases[v1alpha1.RunPending]++
			default:
				phases[run.Status.Phase]++
			}
		}
		g.Expect(phases).To(Equal(map[v1alpha1.RunPhase]int{v1alpha1.RunSucceeded: w.created}))
	}).WithContext(ctx).WithPolling(listInterval).Should(Succeed())
	for _, run := range list.Items {
		Expect(run.Status.Phase).To(Equal(v1alpha1.RunSucceeded), run.Name)
		Expect(meta.IsStatusConditionTrue(run.Status.Conditions, v1alpha1.ConditionDeadLettered)).To(BeFalse(), run.Name)
		for _, step := range run.Status.Steps {
			Expect(step.Attempt).To(BeNumerically("<=", 1), "%s: attempts of %s", run.Name, step.Name)
		}
	}
	w.finished(ctx, w.created)
	w.history.expectKept()
	expectNoCrash(ctx, w.crashed)
}
