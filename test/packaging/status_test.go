// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// notTheOperator is what the API server says to who is not the operator.
const notTheOperator = "only the operator (system:serviceaccount:syncopate-system:syncopate) writes the status of runs and policies"

// An administrator who patches status.phase would make a run end that has not. RBAC cannot refuse
// him, the admission policy does. The operator's own account writes; an administrator who must do
// so impersonates it.
//
// mutation: the subresource of either kind taken out of config/status/policy.yaml, or startsWith in
// place of ==, makes this fail.
func TestNobodyButTheOperatorWritesStatus(t *testing.T) {
	made := map[string]*unstructured.Unstructured{
		"run": makeObject(t, "apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {namespace: default, name: status}\n"+
			"spec: {steps: [{name: a, job: {topic: demo.echo}}]}\n"),
		"policy": makeObject(t, "apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {name: status}\nspec: {workloadClasses: [status]}\n"),
	}
	groups := []string{"system:serviceaccounts", "system:authenticated"}
	const almost = operatorUser + "-2" // with all rights, and a name that begins as the operator's
	if err := server.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "status"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: almost}},
	}); err != nil {
		t.Fatal(err)
	}
	users := map[string]client.Client{"admin": server.client, "almost": as(t, almost, groups), "operator": as(t, operatorUser, groups)}
	const end = `{"status":{"phase":"Succeeded","observedGeneration":1}}`
	awaitStatusPolicy(t, made["run"], end)

	type try func(client.Client, *unstructured.Unstructured) error
	patchStatus := func(c client.Client, o *unstructured.Unstructured) error {
		return c.Status().Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1}}`)))
	}
	putStatus := func(c client.Client, o *unstructured.Unstructured) error {
		if err := unstructured.SetNestedField(o.Object, int64(1), "status", "observedGeneration"); err != nil {
			t.Fatal(err)
		}
		return c.Status().Update(t.Context(), o)
	}
	label := func(c client.Client, o *unstructured.Unstructured) error {
		return c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
	}
	for _, row := range []struct {
		name, user, kind string
		try              try
		allowed          bool
	}{
		{"an administrator patches the status of a run", "admin", "run", patchStatus, false},
		{"an administrator replaces it", "admin", "run", putStatus, false},
		{"an administrator patches the status of a policy", "admin", "policy", patchStatus, false},
		{"another account replaces the status of a run", "almost", "run", putStatus, false},
		{"another account replaces that of a policy", "almost", "policy", putStatus, false},
		{"the operator replaces the status of a run", "operator", "run", putStatus, true},
		{"the operator replaces that of a policy", "operator", "policy", putStatus, true},
		{"an administrator labels a run", "admin", "run", label, true},
		{"an administrator labels a policy", "admin", "policy", label, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := made[row.kind].DeepCopy()
			if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			err := row.try(users[row.user], o)
			if (err == nil) != row.allowed || (err != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), notTheOperator))) {
				t.Errorf("allowed is to be %v: %v", row.allowed, err)
			}
		})
	}
}

// docs/security.md has this command for who must write a status by hand.
// mutation: an operator's role without update of workflowruns/status makes this fail.
func TestAnAdministratorWritesStatusInTheNameOfTheOperator(t *testing.T) {
	run := makeObject(t, "apiVersion: syncopate.dev/v1alpha1\nkind: WorkflowRun\nmetadata: {namespace: default, name: by-hand}\n"+
		"spec: {steps: [{name: a, job: {topic: demo.echo}}]}\n")
	awaitStatusPolicy(t, run, `{"status":{"phase":"Failed"}}`)
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(run.Object, "Failed", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	edited, err := run.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(edited, "replace", "--subresource=status", "-f", "-"); err == nil || !strings.Contains(err.Error(), notTheOperator) {
		t.Errorf("in his own name: %v", err)
	}
	if _, err := kubectl(edited, "replace", "--subresource=status", "--as="+operatorUser, "-f", "-"); err != nil {
		t.Error(err)
	}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(run), run); err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(run.Object, "status", "phase"); phase != "Failed" {
		t.Errorf("phase %q", phase)
	}
}

// A chart in another namespace names the account of that one; without the value there is no policy.
// mutation: a fixed namespace in the chart's template makes this fail.
func TestTheChartsStatusPolicyNamesItsOwnAccount(t *testing.T) {
	policies := func(args ...string) (texts []string) {
		for _, o := range objects(t, mustHelm(t, args...)) {
			if strings.HasPrefix(o.GetKind(), "ValidatingAdmissionPolicy") && o.GetName() == "syncopate-status" {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				texts = append(texts, string(text))
			}
		}
		return texts
	}
	if got := policies("--namespace", "elsewhere"); len(got) != 2 ||
		!strings.Contains(strings.Join(got, ""), "system:serviceaccount:elsewhere:syncopate") || strings.Contains(strings.Join(got, ""), operatorNamespace) {
		t.Errorf("in namespace elsewhere: %q", got)
	}
	if got := policies("--set", "statusPolicy.enabled=false"); len(got) != 0 {
		t.Errorf("switched off: %q", got)
	}
}

// makeObject makes an object for as long as the test runs.
func makeObject(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	if err := server.client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// as is a client of a user, whom the administrator impersonates.
func as(t *testing.T, user string, groups []string) client.Client {
	t.Helper()
	config := rest.CopyConfig(server.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitStatusPolicy waits until the API server has taken the policy up, which it does
// in the background.
func awaitStatusPolicy(t *testing.T, o *unstructured.Unstructured, mergePatch string) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err := server.client.Status().Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(mergePatch)), client.DryRunAll); err != nil {
			return
		}
	}
	t.Fatalf("an administrator's patch %s of status is accepted", mergePatch)
}
