// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/slots"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// rival is a run whose status the API server refuses, beside one of the same tenant whose status it
// takes, where there is one slot.
type rival struct {
	w          *world
	r          *replica
	woken      *woken
	run, other *v1alpha1.WorkflowRun
}

func newRival(ctx SpecContext, change ...func(*v1alpha1.WorkflowRunSpec)) *rival {
	w := newWorld(ctx, withOwnRedis())
	w.limit(ctx, 1)
	v := &rival{w: w, r: w.newReplica(ctx, "r")}
	v.woken = v.r.gated(ctx)
	v.r.locked(ctx)
	v.run = w.create(ctx, diamond(), change...)
	return v
}

func (v *rival) refuses() {
	v.r.refuse = func(now *v1alpha1.WorkflowRun) error {
		if now.UID == v.run.UID {
			return refused()
		}
		return nil
	}
}

func (v *rival) standsOff() bool {
	m := v.r.memories.peek(client.ObjectKeyFromObject(v.run))
	return m != nil && m.standoff.tries > 0
}

// tried has the run tried until the API server refused it once more.
func (v *rival) tried(ctx context.Context) {
	GinkgoHelper()
	m := v.r.memories.peek(client.ObjectKeyFromObject(v.run))
	before := 0
	if m != nil {
		before = m.standoff.tries
	}
	until(ctx, "it is refused", func() bool {
		v.w.clock.Step(lookAgain)
		v.r.turn(ctx, v.run)
		m = v.r.memories.peek(client.ObjectKeyFromObject(v.run))
		return m.standoff.tries > before
	})
}

// doubted has a write get no answer, and each one after that refused: the first of them at once.
func (v *rival) doubted(ctx context.Context, cause error) {
	GinkgoHelper()
	v.r.hook = once("status/before", func() error { return cause })
	_, err := v.r.pass(ctx, v.run)
	Expect(err).To(HaveOccurred())
	v.refuses()
	for n := 0; !v.standsOff(); n++ {
		Expect(n).To(BeNumerically("<", 30), "passes")
		v.w.clock.Step(time.Second)
		v.r.turn(ctx, v.run)
	}
}

// deaf is a quota that hears only so many tries to give something up later.
type deaf struct {
	slots.Quota
	hears int
}

func (d *deaf) GiveUp(ctx context.Context, run *v1alpha1.WorkflowRun, tenant, policyName string) error {
	if d.hears--; d.hears > 0 {
		return errTest
	}
	return d.Quota.GiveUp(ctx, run, tenant, policyName)
}

var _ = Describe("a policy that forbids the status of a run that is not admitted", func() {
	// mutations: standOff that keeps the slot; letGo that looks at the slot alone, or at
	// the locks alone.
	It("leaves the slot and the locks to others", func(ctx SpecContext) {
		wants := withLocks(mutex("m"))
		v := newRival(ctx, wants)
		v.refuses()
		v.tried(ctx)
		v.other = v.w.create(ctx, diamond(), wants)
		v.r.drive(ctx, v.other, lifecycle.Admitted)
		v.tried(ctx)
		v.r.refuse = nil
		v.r.finish(ctx, v.other)
		v.w.clock.Step(lookAgain)
		v.r.finish(ctx, v.run)
	}, NodeTimeout(2*patience))

	// mutation: standOff that keeps the place in line.
	It("leaves the place in line to others, and the slot whenever there is one for it", func(ctx SpecContext) {
		v := newRival(ctx, func(spec *v1alpha1.WorkflowRunSpec) { spec.Priority = 1 })
		first := v.w.create(ctx, diamond())
		v.r.inFlight(ctx, first, 2)
		v.r.drive(ctx, v.run, withReason(v1alpha1.ReasonTenantAtCapacity))
		v.other = v.w.create(ctx, diamond())
		v.r.drive(ctx, v.other, withReason(v1alpha1.ReasonTenantAtCapacity))
		v.refuses()
		v.r.finish(ctx, first)
		Expect(v.woken.take(v.run)).To(BeTrue(), "it is first")
		v.tried(ctx)
		Expect(v.woken.take(v.other)).To(BeTrue())
		v.r.drive(ctx, v.other, lifecycle.Admitted)
		v.r.refuse = nil
		v.r.finish(ctx, v.other)
		v.w.clock.Step(5 * time.Minute)
		v.r.finish(ctx, v.run)
	}, NodeTimeout(2*patience))

	// mutation: letGo without a look at what is in doubt.
	It("keeps the slot while a write may have been taken, until the run is another", func(ctx SpecContext) {
		v := newRival(ctx)
		v.doubted(ctx, context.DeadlineExceeded)
		v.other = v.w.create(ctx, diamond())
		v.r.drive(ctx, v.other, withReason(v1alpha1.ReasonTenantAtCapacity))
		v.w.patch(ctx, v.run, `{"metadata":{"labels":{"a":"b"}}}`)
		v.tried(ctx)
		Expect(v.woken.take(v.other)).To(BeTrue())
		v.r.drive(ctx, v.other, lifecycle.Admitted)
	}, NodeTimeout(2*patience))

	// mutations: inDoubt that ends by a new resourceVersion alone, or at once.
	It("leaves the slot to others once no write can be under way any more that was in doubt", func(ctx SpecContext) {
		v := newRival(ctx)
		v.doubted(ctx, apierrors.NewInternalError(errTest)) // the policy's webhook was away
		v.other = v.w.create(ctx, diamond())
		v.r.drive(ctx, v.other, withReason(v1alpha1.ReasonTenantAtCapacity))
		v.tried(ctx)
		Expect(v.woken.take(v.other)).To(BeTrue())
		v.r.drive(ctx, v.other, lifecycle.Admitted)
	}, NodeTimeout(2*patience))

	// mutation: idles that does not give back what could not be given back before.
	It("leaves the slot to others once Redis hears of it", func(ctx SpecContext) {
		v := newRival(ctx)
		quota := &deaf{Quota: v.r.Slots.Quota, hears: 3}
		v.r.Slots.Quota = quota
		v.refuses()
		v.tried(ctx)
		v.other = v.w.create(ctx, diamond())
		v.r.drive(ctx, v.other, withReason(v1alpha1.ReasonTenantAtCapacity))
		for n := 0; quota.hears > 0; n++ {
			Expect(n).To(BeNumerically("<", 5), "passes")
			v.r.mustPass(ctx, v.run)
		}
		Expect(v.standsOff()).To(BeTrue())
		Expect(v.woken.take(v.other)).To(BeTrue())
		v.r.drive(ctx, v.other, lifecycle.Admitted)
	}, NodeTimeout(2*patience))
})
