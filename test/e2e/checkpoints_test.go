// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun"
	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// auditedNamespace is the one of which the API server keeps an audit log.
const auditedNamespace = "audited"

// auditPolicy has all writes in that namespace logged.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata, namespaces: [` + auditedNamespace + `]}
- {level: None}
`

var auditLog string // path

// audited are the arguments of an API server that keeps the log below dir.
func audited(dir string) map[string]string {
	GinkgoHelper()
	policy := filepath.Join(dir, "audit.yaml")
	Expect(os.WriteFile(policy, []byte(auditPolicy), 0o600)).To(Succeed())
	auditLog = filepath.Join(dir, "audit.log")
	return map[string]string{"audit-policy-file": policy, "audit-log-path": auditLog}
}

// audit counts the writes that the API server took about a run, by verb and resource. Those that it
// refused count by their code, too.
func audit(run string) map[string]int {
	GinkgoHelper()
	f, err := os.Open(auditLog)
	Expect(err).NotTo(HaveOccurred())
	defer func() { _ = f.Close() }()
	writes := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct {
			Verb      string
			ObjectRef struct{ Resource, Subresource, Name string }
			// ResponseStatus has the code.
			ResponseStatus struct{ Code int }
		}
		Expect(json.Unmarshal(lines.Bytes(), &e)).To(Succeed(), lines.Text())
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			what += "/" + e.ObjectRef.Subresource
		}
		if e.ResponseStatus.Code >= 300 {
			what += fmt.Sprint(" ", e.ResponseStatus.Code)
		}
		if e.ObjectRef.Resource != "workflowruns" || e.ObjectRef.Name == run {
			writes[what]++
		}
	}
	return writes
}

// coalesced has a policy for the runs of a world. It is gone with the spec.
func (w *world) coalesced(ctx context.Context, checkpoint v1alpha1.CheckpointPolicy) {
	GinkgoHelper()
	checkpoint.Mode = v1alpha1.CheckpointCoalesced
	apply(ctx, &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: []string{w.namespace}, Checkpoint: checkpoint},
	})
}

// chain creates a run of steps one after the other.
func (w *world) chain(ctx context.Context, name string, steps int) *v1alpha1.WorkflowRun {
	GinkgoHelper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Spec: chainOf(steps, "quick.work")}
	run.Spec.WorkloadClass = w.namespace
	Expect(k8s.Create(ctx, run)).To(Succeed())
	return run
}

// succeeds waits for the end of a run.
func succeeds(ctx context.Context, run *v1alpha1.WorkflowRun) {
	GinkgoHelper()
	Eventually(func(g Gomega) v1alpha1.RunPhase {
		g.Expect(k8s.Get(ctx, client.ObjectKeyFromObject(run), run)).To(Succeed())
		if run.Unwritten() {
			return v1alpha1.RunPending
		}
		return run.Status.Phase
	}).WithContext(ctx).WithPolling(pollInterval).Should(Equal(v1alpha1.RunSucceeded))
}

var _ = Describe("runs with checkpoints", func() {
	// The delay is long, so that a busy machine does not have more writes. The run is created when
	// the operator knows that no other has worked on it.
	//
	// mutation: mayRunAhead that is always false makes this fail: there are six writes.
	It("of five quick steps are written twice at most, by the API server's own account", func(ctx context.Context) {
		w := newWorldIn(ctx, auditedNamespace)
		w.coalesced(ctx, v1alpha1.CheckpointPolicy{MaxDelayMillis: 5000})
		w.startManager(ctx, "operator")
		w.startWorker(ctx, 4, echo, "quick.work")
		alone := time.Now().Add(workflowrun.AloneAfter + 2*time.Second)
		Eventually(time.Now).WithContext(ctx).WithPolling(pollInterval).Should(BeTemporally(">", alone))
		run := w.chain(ctx, "quick", 5)
		succeeds(ctx, run)
		Expect(run.Status.Checkpoint).To(HaveField("Mode", v1alpha1.CheckpointCoalesced))
		var writes map[string]int
		Eventually(func() map[string]int {
			writes = audit("quick")
			return writes
		}).WithContext(ctx).WithPolling(pollInterval).Should(HaveKeyWithValue("create events", 2), "of its begin and its end")
		AddReportEntry("writes", fmt.Sprint(writes))
		Expect(writes["create workflowruns"]).To(Equal(1))
		Expect(writes["update workflowruns/status"]).To(Or(Equal(1), Equal(2)))
		// A new namespace has objects that Kubernetes makes. There is nothing else: no write was
		// refused, none is of another kind.
		Expect([]string{"create workflowruns", "update workflowruns/status", "create events", "create configmaps", "create serviceaccounts"}).To(ContainElements(slices.Collect(maps.Keys(writes))))
	}, NodeTimeout(specTimeout))

	It("of steps that take a second have a status that lags little, by a watch", func(ctx context.Context) {
		const steps = 5
		w := newWorld(ctx)
		w.coalesced(ctx, v1alpha1.CheckpointPolicy{MaxDelayMillis: 200})
		w.startManager(ctx, "operator")
		var mu sync.Mutex
		done := map[string]time.Time{} // when the handler of a step returned
		w.startWorker(ctx, 4, func(ctx context.Context, job worker.Job) (any, error) {
			out, err := lasting(time.Second)(ctx, job)
			mu.Lock()
			defer mu.Unlock()
			done[job.ID.Step] = time.Now()
			return out, err
		}, "quick.work")
		watch, err := k8s.Watch(ctx, &v1alpha1.WorkflowRunList{}, client.InNamespace(w.namespace))
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		w.chain(ctx, "slow", steps)
		lags := map[string]time.Duration{}
		for len(lags) < steps {
			select {
			case <-ctx.Done():
				Fail(fmt.Sprintf("of %d steps only %v were seen", steps, lags))
			case e, open := <-watch.ResultChan():
				Expect(open).To(BeTrue())
				now := time.Now()
				run, ok := e.Object.(*v1alpha1.WorkflowRun)
				if !ok || run.Unwritten() {
					continue
				}
				mu.Lock()
				for _, s := range run.Status.Steps {
					if _, seen := lags[s.Name]; s.Phase == v1alpha1.StepSucceeded && !seen {
						lags[s.Name] = now.Sub(done[s.Name])
					}
				}
				mu.Unlock()
			}
		}
		var all []time.Duration
		for _, lag := range lags {
			all = append(all, lag.Round(time.Millisecond))
		}
		slices.Sort(all)
		AddReportEntry("from a handler's return to its step's success in a watch", fmt.Sprint(all))
		Expect(all[len(all)/2]).To(BeNumerically("<", 2*time.Second), "half of them within ten times maxDelayMillis")
		Expect(all[len(all)-1]).To(BeNumerically("<", 30*time.Second))
	}, NodeTimeout(specTimeout))
})
