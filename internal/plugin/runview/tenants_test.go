// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var midnight = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// waiting is a run that was created so many minutes after midnight and waits since then.
func waiting(name, tenant string, minute int, priority int32) v1alpha1.WorkflowRun {
	at := metav1.NewTime(midnight.Add(time.Duration(minute) * time.Minute))
	return v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), CreationTimestamp: at},
		Spec:       v1alpha1.WorkflowRunSpec{WorkloadClass: "batch", Priority: priority},
		Status:     &v1alpha1.WorkflowRunStatus{Tenant: tenant, Phase: v1alpha1.RunQueued, Admission: &v1alpha1.AdmissionStatus{QueuedAt: &at}},
	}
}

func underWay(name, tenant, policy string) v1alpha1.WorkflowRun {
	run := waiting(name, tenant, 0, 0)
	run.Status.Phase, run.Status.Admission.AdmittedAt, run.Status.Admission.Policy = v1alpha1.RunRunning, run.Status.Admission.QueuedAt, policy
	return run
}

func batch(limit int32) []v1alpha1.LockPolicy {
	return []v1alpha1.LockPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: "batch-policy"},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: []string{"batch"}, Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &limit}},
	}}
}

// mutations of all three: the policy of a run looked for in all policies, for each run.
func TestRunsOfManyPoliciesAreCountedSoon(t *testing.T) {
	policies := make([]v1alpha1.LockPolicy, 1000)
	for i := range policies {
		policies[i].Name = fmt.Sprintf("policy-%d", i)
		for class := range 50 {
			policies[i].Spec.WorkloadClasses = append(policies[i].Spec.WorkloadClasses, fmt.Sprintf("class-%03d-%02d", i, class))
		}
	}
	runs := make([]v1alpha1.WorkflowRun, 20_000)
	for i := range runs {
		runs[i] = waiting(fmt.Sprintf("run-%d", i), "acme", 0, 0)
		runs[i].Spec.WorkloadClass = "class-999-49"
	}
	began := time.Now()
	if got := Tenants(runs, policies); len(got) != 1 || got[0].Policy != "policy-999" || got[0].Waiting != len(runs) {
		t.Errorf("got %+v", got)
	}
	if got := Lines(runs, policies); len(got) != 1 || len(got[0].Runs) != len(runs) {
		t.Errorf("got %d lines", len(got))
	}
	if got := PlaceOf(&runs[0], runs, policies, true); got == nil || got.Of != len(runs) {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(began); took > 10*time.Second { // it is some 100 ms
		t.Errorf("took %s", took)
	}
}

// mutation: finished runs counted, or runs that wait counted under the policy of their last write,
// makes this fail.
func TestTenantsAreCounted(t *testing.T) {
	over := underWay("over", "acme", "batch-policy")
	over.Status.CompletedAt = over.Status.Admission.QueuedAt
	suspended := underWay("suspended", "acme", "batch-policy")
	suspended.Status.Phase = v1alpha1.RunSuspended
	old := waiting("moved", "acme", 3, 0)
	old.Status.Policy = &v1alpha1.PolicyReference{Name: "old-policy"}
	runs := []v1alpha1.WorkflowRun{
		over, suspended, underWay("a", "acme", "batch-policy"), underWay("b", "acme", "old-policy"), underWay("c", "free", ""),
		waiting("w", "acme", 7, 0), old,
		{},
	}
	var b strings.Builder
	if err := TenantsText(&b, Tenants(runs, batch(2)), midnight.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	want := `TENANT   POLICY         LIMIT   USED   WAITING   OLDEST
acme     batch-policy   2       2      2         57m
acme     old-policy     ?       1      0         -
free     -              none    1      0         -
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// A slot that a run keeps while it waits for a lock is taken, and whoever waits for it
// sees by whom.
//
// mutations: hasSlot without idle, slotPolicy that looks at the admission alone, and a place that
// does not name the run, make this fail.
func TestASlotThatIsKeptIdleIsSeen(t *testing.T) {
	kept := waiting("idle", "acme", 1, 0)
	kept.Status.Admission.LockWait = &v1alpha1.LocksWait{Lock: "gpus", StartedAt: *kept.Status.Admission.QueuedAt}
	kept.Status.Admission.SlotExpiresAt = &metav1.MicroTime{Time: midnight.Add(time.Hour)}
	back := *kept.DeepCopy() // gave its slot back
	back.Name, back.Status.Admission.SlotExpiresAt = "back", nil
	runs := []v1alpha1.WorkflowRun{kept, waiting("w", "acme", 7, 0), back}
	got := Tenants(runs, batch(1))
	if len(got) != 1 || got[0].Policy != "batch-policy" || got[0].Used != 1 || got[0].Waiting != 1 {
		t.Errorf("%+v", got)
	}
	want := "place 1 of 1 in line now; 1 of at most 1 slots of the tenant are taken, one by team-a/idle, which waits for its locks"
	if diff := cmp.Diff(want, PlaceOf(&runs[1], runs, batch(1), true).text()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if p := PlaceOf(&runs[0], runs, batch(1), true); p != nil {
		t.Errorf("with a slot it has place %+v", p)
	}
}

// A run that lacks its Workflow or its parent, or says that it is a child run, stands in no line:
// the gate is not asked for it.
//
// mutations: queued that does not look at one of the reasons, or at the parent that
// is claimed alone.
func TestWhoIsNotAskedForStandsInNoLine(t *testing.T) {
	lacks := func(name, reason string) v1alpha1.WorkflowRun {
		run := waiting(name, "acme", 1, 9)
		run.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAdmitted, Status: metav1.ConditionFalse, Reason: reason}}
		return run
	}
	claims := waiting("claims", "acme", 1, 9)
	claims.Annotations = map[string]string{v1alpha1.AnnotationParent: "boss/u-1"}
	pinned := waiting("pinned", "acme", 1, 9)
	pinned.Status.Parent = &v1alpha1.ParentStatus{Name: "boss", UID: "u-1"}
	for name, other := range map[string]v1alpha1.WorkflowRun{
		"no Workflow": lacks("workflow", v1alpha1.ReasonWaitingForWorkflow), "not named by its parent": lacks("parent", v1alpha1.ReasonWaitingForParent),
		"claims a parent": claims, "a child": pinned,
	} {
		t.Run(name, func(t *testing.T) {
			if name == "claims a parent" && other.ClaimsParent() == nil {
				t.Fatal("it claims none")
			}
			runs := []v1alpha1.WorkflowRun{other, lacks("w", v1alpha1.ReasonTenantAtCapacity)}
			if got := Tenants(runs, batch(1)); len(got) != 1 || got[0].Waiting != 1 {
				t.Errorf("tenants: %+v", got)
			}
			if got := Lines(runs, batch(1)); len(got) != 1 || len(got[0].Runs) != 1 || got[0].Runs[0].Name != "w" {
				t.Errorf("lines: %+v", got)
			}
			for i, want := range []string{"", "place 1 of 1 in line now; 0 of at most 1 slots of the tenant are taken"} {
				answer := Why(&runs[i], batch(1), midnight)
				answer.Stands(PlaceOf(&runs[i], runs, batch(1), true))
				got := ""
				for _, f := range answer.Facts {
					if f.About == "line" {
						got += f.Text
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("why of %s (-want +got):\n%s", runs[i].Name, diff)
				}
			}
		})
	}
}

func TestTenantsShowWhoLends(t *testing.T) {
	policies := batch(9)
	policies[0].Spec.Admission.Total = &v1alpha1.AdmissionTotal{MaxConcurrentRuns: 3}
	policies[0].Spec.Admission.Tenants = []v1alpha1.TenantLimit{{Name: "acme", MaxConcurrentRuns: 3, Guaranteed: 2, Weight: 3}}
	runs := []v1alpha1.WorkflowRun{
		underWay("a", "beta", "batch-policy"), underWay("b", "beta", "batch-policy"), underWay("c", "free", ""), waiting("w", "beta", 7, 0),
	}
	var b strings.Builder
	if err := TenantsText(&b, Tenants(runs, policies), midnight.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	want := `TENANT   POLICY         LIMIT   USED   WAITING   OLDEST
acme     batch-policy   3       0      0         -
beta     batch-policy   3       2      1         53m
free     -              none    1      0         -

POLICY         TOTAL    TENANT   USED   GUARANTEED   WEIGHT   LENDS       BORROWS
batch-policy   2 of 3   acme     0      2            3        1 to beta   -
batch-policy   2 of 3   beta     2      0            1        -           1 from acme
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// mutation: another order than that of the gate makes this fail.
func TestThePlaceInLine(t *testing.T) {
	runs := []v1alpha1.WorkflowRun{
		waiting("late", "acme", 9, 0), waiting("urgent", "acme", 8, 5), waiting("early-b", "acme", 1, 0), waiting("early-a", "acme", 1, 0),
		waiting("last", "acme", 0, -1), waiting("other", "another", 0, 100), underWay("a", "acme", "batch-policy"), underWay("b", "acme", "batch-policy"),
	}
	for i, name := range []string{"urgent", "early-a", "early-b", "late", "last"} {
		for k := range runs {
			if runs[k].Name != name {
				continue
			}
			want := fmt.Sprintf("place %d of 5 in line now", i+1)
			if i > 0 {
				want += ", behind team-a/" + []string{"urgent", "early-a", "early-b", "late"}[i-1]
			}
			want += "; 2 of at most 2 slots of the tenant are taken"
			if diff := cmp.Diff(want, PlaceOf(&runs[k], runs, batch(2), true).text()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	if p := PlaceOf(&runs[6], runs, batch(2), true); p != nil {
		t.Errorf("a run under way has place %+v", p)
	}
	if p := PlaceOf(&runs[0], nil, nil, false); p.Position != 1 || p.Of != 1 || p.Limit != nil || !p.AtLeast {
		t.Errorf("where nothing may be read: %+v", p)
	}
}

// Somebody may see one namespace of a tenant with several.
//
// mutation: text that takes the runs of one namespace for all makes this fail.
func TestAPlaceAmongSomeRunsIsNotCalledOneOfAll(t *testing.T) {
	t.Parallel()
	runs := []v1alpha1.WorkflowRun{waiting("mine", "acme", 1, 0)}
	got := PlaceOf(&runs[0], runs, batch(10), false).text()
	want := "at least place 1 in line now; 0 slots of the tenant are taken by runs that you may see, of at most 10; not all runs could be seen: others may be before it"
	if got != want {
		t.Errorf("%s", got)
	}
}
