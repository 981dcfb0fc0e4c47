// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/stepapproval"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// strictAboutOwners is an API server with OwnerReferencesPermissionEnforcement, which some clusters
// have on, and with the operator's cluster role: a client of the administrator, and one of
// the operator.
func strictAboutOwners(t *testing.T) (admin, operator client.Client) {
	t.Helper()
	env, err := devenv.StartAPIServerWith(devenv.Assets(moduleRoot),
		map[string]string{"enable-admission-plugins": "OwnerReferencesPermissionEnforcement"}, testenv.CRDs())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	admin, err = devenv.Client(env.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, kustomize(t, "config/default")) {
		if o.GetName() == "syncopate" && (o.GetKind() == "ClusterRole" || o.GetKind() == "ClusterRoleBinding") {
			if err := admin.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	config := rest.CopyConfig(env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	operator, err = devenv.Client(config)
	if err != nil {
		t.Fatal(err)
	}
	return admin, operator
}

// Where OwnerReferencesPermissionEnforcement is on, who changes the owners of an object needs the
// right to delete it, and who makes one that blocks the deletion of its owner a right to the
// owner's finalizers. The operator does both: a decision belongs to its run, child runs and runs of
// schedules block the deletion of theirs.
// mutation: delete of stepapprovals, update of workflowruns/finalizers or update of
// schedules/finalizers taken out of config/rbac/role.yaml makes this fail.
func TestTheOperatorSetsOwnersWhereThatTakesTheRightToDelete(t *testing.T) {
	admin, operator := strictAboutOwners(t)
	spec := v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "publish", Approval: &v1alpha1.Approval{}}}}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "report"}, Spec: spec}
	schedule := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "daily"}}
	schedule.Spec.Cron = []string{"0 6 * * *"}
	schedule.Spec.RunTemplate.Spec.Raw = []byte(`{"steps": [{"name": "publish", "approval": {}}]}`)
	for _, o := range []client.Object{run, schedule} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	decision := &v1alpha1.StepApproval{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "yes"}}
	decision.Spec = v1alpha1.StepApprovalSpec{Run: run.Name, RunUID: string(run.UID), Step: "publish", Decision: v1alpha1.Approve, Approver: "jane"}
	if err := admin.Create(t.Context(), decision); err != nil {
		t.Fatal(err)
	}

	r := &stepapproval.Reconciler{Client: operator, Live: operator}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(decision)}); err != nil {
		t.Errorf("the owner of a decision: %v", err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(decision), decision); err != nil {
		t.Fatal(err)
	}
	if owners := decision.OwnerReferences; len(owners) != 1 || owners[0].UID != run.UID {
		t.Errorf("owners of the decision: %v", owners)
	}
	for name, owner := range map[string]metav1.OwnerReference{ // as children.Create and the schedule controller make them
		"child":     *metav1.NewControllerRef(run, v1alpha1.GroupVersion.WithKind("WorkflowRun")),
		"scheduled": *metav1.NewControllerRef(schedule, v1alpha1.GroupVersion.WithKind("Schedule")),
	} {
		owned := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: spec}
		if err := operator.Create(t.Context(), owned); err != nil {
			t.Errorf("a run that is %s: %v", name, err)
		}
	}
}
