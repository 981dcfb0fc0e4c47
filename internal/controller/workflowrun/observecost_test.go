// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/testenv/likecache"
)

// mutations: observePolicy that has the policies copied, and See that makes a map of
// them each time.
func TestAPassCostsNoMoreWithManyPolicies(t *testing.T) {
	allocs := func(policies int) float64 {
		var all likecache.Client
		for i := range policies {
			name := "p" + strconv.Itoa(i)
			p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: name}}
			p.Spec.WorkloadClasses = []string{name}
			all.Objects = append(all.Objects, p)
		}
		run := aRun("1")
		run.Spec.WorkloadClass = "p0"
		p := &pass{r: &Reconciler{Client: all, Clock: clocktesting.NewFakeClock(epoch)}, run: run, ahead: &ahead.Session{State: &ahead.State{}}}
		return testing.AllocsPerRun(10, func() {
			if err := p.observePolicy(t.Context()); err != nil || p.policy.Name != "p0" {
				t.Errorf("%q, %v", p.policy.Name, err)
			}
		})
	}
	if one, many := allocs(1), allocs(1000); many > one+10 {
		t.Errorf("%.0f allocations with 1,000 policies, %.0f with one", many, one)
	}
}
