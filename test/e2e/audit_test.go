// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	differences "github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/audit/stores"
	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/internal/lockmgr"
	"github.com/syncopate-dev/syncopate/internal/quota/store"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	// auditedRuns are submitted while audits are made; $AUDIT_RUNS says otherwise.
	auditedRuns = 60
	// betweenLooks is less than the 30 s in which the operator repairs slots and locks by itself.
	betweenLooks = 5 * time.Second
)

func runsToAudit() int {
	n, err := strconv.Atoi(os.Getenv("AUDIT_RUNS"))
	if err != nil {
		return auditedRuns
	}
	return n
}

// stores are those of this world, as an audit reads them.
func (w *world) stores(ctx context.Context) *stores.Stores {
	GinkgoHelper()
	redis, err := lockmgr.NewClient(lockmgr.ClientConfig{Addrs: []string{env.Redis.Addr}})
	Expect(err).NotTo(HaveOccurred())
	conn, err := bus.Connect(ctx, bus.Config{URL: env.NATS.URL(), Names: protocol.Names{Prefix: w.prefix}})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) { conn.Close(ctx); Expect(redis.Close()).To(Succeed()) })
	conn.AwaitConnected(ctx)
	return &stores.Stores{API: k8s, Redis: redis, Quota: store.New(redis, store.Options{}), NATS: conn, Clock: clock.RealClock{}}
}

// allStores has a slot, a lock across runs, items, and an end after which it is deleted.
func allStores(class string, i int) v1alpha1.WorkflowRunSpec {
	return v1alpha1.WorkflowRunSpec{
		WorkloadClass: class, TTLSecondsAfterFinished: new(int32(i % 2 * 3600)), Locks: []v1alpha1.LockRequest{{Mutex: fmt.Sprintf("audit-%d", i%16)}},
		Steps: []v1alpha1.Step{
			{Name: "read", Job: &v1alpha1.Job{Topic: "audit.work"}},
			{Name: "each", DependsOn: []string{"read"}, ForEach: &v1alpha1.ForEach{Items: "${[1, 2, 3]}"}, Job: &v1alpha1.Job{Topic: "audit.work"}},
			{Name: "write", DependsOn: []string{"each"}, Job: &v1alpha1.Job{Topic: "audit.work"}},
		},
	}
}

var _ = Describe("An audit under load", func() {
	It("finds nothing where nothing is wrong", func(ctx context.Context) {
		w := newWorld(ctx)
		limited(ctx, w.namespace, 50)
		w.startManager(ctx, "only")
		w.startWorker(ctx, 32, echo, "audit.work")
		s, total := w.stores(ctx), runsToAudit()
		begin := time.Now()
		created := make(chan error, 1)
		go func() {
			for i := range total {
				run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: fmt.Sprintf("run-%05d", i)}, Spec: allStores(w.namespace, i)}
				if err := k8s.Create(ctx, run); err != nil {
					created <- err
					return
				}
			}
			created <- nil
		}()
		audits, candidates, done := 0, 0, false
		for !done {
			done = len(w.executions()) == 5*total // one look more after that
			first := differences.Compare(s.Look(ctx))
			candidates += len(first)
			report, err := s.Twice(ctx, betweenLooks)
			Expect(err).NotTo(HaveOccurred())
			Expect(report.Unread).To(BeEmpty())
			Expect(report.Findings).To(BeEmpty())
			Expect(w.phases(ctx)).NotTo(HaveKey(v1alpha1.RunFailed))
			audits++
			fmt.Fprintf(GinkgoWriter, "audit %d: %d runs, %d jobs done, %d differences in one look\n", audits, report.Runs, len(w.executions()), candidates)
		}
		Expect(<-created).To(Succeed())
		AddReportEntry("audits under load", fmt.Sprintf("%d audits over %d runs in %s: no finding; %d differences were in one look only",
			audits, total, time.Since(begin).Round(time.Second), candidates))
	}, NodeTimeout(max(specTimeout, time.Duration(runsToAudit())*time.Second)))
})
