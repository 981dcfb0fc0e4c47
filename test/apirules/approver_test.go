// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/stepapproval"
	"github.com/syncopate-dev/syncopate/internal/plugin"
)

// patience is for what must happen.
const patience = time.Minute

// operatorUser is the service account of the operator.
const operatorUser = "system:serviceaccount:syncopate-system:syncopate"

// office is a namespace on a server with the shipped roles and the shipped policy: jane may view
// and approve, eve may view and edit, and the operator has its own rights.
type office struct {
	t     *testing.T
	ns    string
	users map[string]*envtest.AuthenticatedUser
}

func newOffice(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, ns: namespace(t), users: map[string]*envtest.AuthenticatedUser{}}
	for _, file := range []string{"approval/policy.yaml", "rbac/user_roles.yaml", "rbac/role.yaml", "rbac/role_binding.yaml"} {
		for _, object := range documents(t, filepath.Join(moduleRoot, "config", file)) {
			if object.GetNamespace() == "" { // the rest is about the operator's own namespace
				o.make(object)
			}
		}
	}
	for _, name := range []string{"jane", "eve", operatorUser} {
		user, err := server.env.AddUser(envtest.User{Name: name}, &rest.Config{QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		o.users[name] = user
	}
	o.bind("jane", "syncopate-view", "syncopate-approve")
	o.bind("eve", "syncopate-view", "syncopate-edit")
	o.awaitPolicy()
	return o
}

// make creates an object for as long as the test runs.
func (o *office) make(object client.Object) {
	o.t.Helper()
	if err := server.client.Create(o.t.Context(), object); err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() {
		if err := server.client.Delete(context.WithoutCancel(o.t.Context()), object); client.IgnoreNotFound(err) != nil {
			o.t.Errorf("delete what the test made: %v", err)
		}
	})
}

func (o *office) bind(user string, roles ...string) {
	o.t.Helper()
	for _, role := range roles {
		o.make(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: user + "-" + role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
		})
	}
}

// awaitPolicy tries until the policy is in force: the API server follows it with a watch.
func (o *office) awaitPolicy() {
	o.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = server.client.Create(o.t.Context(), parse(o.t, o.decision("nobody")), client.DryRunAll); apierrors.IsForbidden(err) {
			return
		}
	}
	o.t.Fatalf("the policy does not come into force: %v", err)
}

// as is a client of that user, who needs not be able to do anything yet: the rights come with
// a watch, too.
func (o *office) as(user string) client.Client {
	o.t.Helper()
	c, err := client.New(o.users[user].Config(), client.Options{Scheme: server.client.Scheme()})
	if err != nil {
		o.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = c.List(o.t.Context(), &v1alpha1.StepApprovalList{}, client.InNamespace(o.ns)); err == nil {
			return c
		}
	}
	o.t.Fatalf("%s has no rights: %v", user, err)
	return nil
}

// decision is one in the name of an approver.
func (o *office) decision(approver string) string {
	return strings.Replace(aDecision(o.t, "approver: '"+approver+"'"), "namespace: default", "namespace: "+o.ns, 1)
}

// mutation: the binding or the policy removed, audit instead of deny, or another attribute of the
// user makes this fail.
func TestNobodyApprovesInAnothersName(t *testing.T) {
	o := newOffice(t)
	for name, c := range map[string]struct {
		user, approver string
		refused        []string
	}{
		"in the own name":           {"jane", "jane", nil},
		"in another's name":         {"jane", "bob", []string{"syncopate-approver", "it is 'bob', and the user is 'jane'"}},
		"in a name of another case": {"jane", "Jane", []string{"it is 'Jane', and the user is 'jane'"}},
		"in a name with quotes":     {"jane", `b"ob`, []string{`it is 'b"ob', and the user is 'jane'`}},
	} {
		t.Run(name, func(t *testing.T) {
			err := o.as(c.user).Create(t.Context(), parse(t, o.decision(c.approver)))
			wantRefused(t, err, c.refused...)
			if len(c.refused) > 0 && !apierrors.IsForbidden(err) {
				t.Errorf("refused, but not as forbidden: %v", err)
			}
		})
	}
	// Not even who may do everything.
	_, err := create(t, o.decision("jane"))
	wantRefused(t, err, "it is 'jane', and the user is '"+whoami(t)+"'")
}

// mutation: stepapprovals in the rules of syncopate-edit, create in those of syncopate-view, or
// delete in those of syncopate-approve makes this fail; so does create for the operator.
func TestWhoMayApprove(t *testing.T) {
	o := newOffice(t)
	made := parse(t, o.decision("jane"))
	if err := o.as("jane").Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	relabel := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	for name, c := range map[string]struct {
		user    string
		try     func(c client.Client) error
		allowed bool
	}{
		"an editor creates": {"eve", func(c client.Client) error { return c.Create(t.Context(), parse(t, o.decision("eve"))) }, false},
		"an editor reads": {"eve", func(c client.Client) error {
			return c.Get(t.Context(), client.ObjectKeyFromObject(made), made.DeepCopy())
		}, true},
		"an editor deletes": {"eve", func(c client.Client) error { return c.Delete(t.Context(), made.DeepCopy()) }, false},
		"an approver reads": {"jane", func(c client.Client) error {
			return c.Get(t.Context(), client.ObjectKeyFromObject(made), made.DeepCopy())
		}, true},
		"an approver deletes":  {"jane", func(c client.Client) error { return c.Delete(t.Context(), made.DeepCopy()) }, false},
		"an approver relabels": {"jane", func(c client.Client) error { return c.Patch(t.Context(), made.DeepCopy(), relabel) }, false},
		"the operator creates": {operatorUser, func(c client.Client) error { return c.Create(t.Context(), parse(t, o.decision(operatorUser))) }, false},
		// Where OwnerReferencesPermissionEnforcement is on, it needs the right for
		// its owner references.
		"the operator deletes": {operatorUser, func(c client.Client) error { return c.Delete(t.Context(), made.DeepCopy(), client.DryRunAll) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.try(o.as(c.user)); (err == nil) != c.allowed || (err != nil && !apierrors.IsForbidden(err)) {
				t.Errorf("allowed is to be %v: %v", c.allowed, err)
			}
		})
	}
	err := o.as("jane").Create(t.Context(), parse(t, strings.Replace(o.decision("jane"), "namespace: "+o.ns, "namespace: default", 1)))
	wantRefused(t, err, `User "jane" cannot create resource "stepapprovals"`)
}

// The cluster's own roles get these rules by a controller that no API server has; so the labels
// are looked at.
// mutation: aggregate-to-edit on syncopate-approve makes this fail.
func TestWhoMayEditMayNotApprove(t *testing.T) {
	create := map[string][]string{}
	for _, object := range documents(t, filepath.Join(moduleRoot, "config", "rbac", "user_roles.yaml")) {
		rules, _, err := unstructured.NestedSlice(object.Object, "rules")
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			fields, ok := rule.(map[string]any)
			if !ok {
				t.Fatalf("%s: rule %v", object.GetName(), rule)
			}
			resources, _, _ := unstructured.NestedStringSlice(fields, "resources")
			verbs, _, _ := unstructured.NestedStringSlice(fields, "verbs")
			if strings.Contains(strings.Join(resources, " "), "stepapprovals") && strings.Contains(strings.Join(verbs, " "), "create") {
				for label := range object.GetLabels() {
					create[object.GetName()] = append(create[object.GetName()], label)
				}
			}
		}
	}
	want := map[string][]string{"syncopate-approve": {"rbac.authorization.k8s.io/aggregate-to-admin"}}
	if diff := cmp.Diff(want, create); diff != "" {
		t.Errorf("roles that may create decisions, and where they go (-want +got):\n%s", diff)
	}
}

// mutation: patch taken from the operator's rules on stepapprovals makes this fail.
func TestTheOperatorMaySetTheOwner(t *testing.T) {
	o := newOffice(t)
	run := o.run()
	decision := parse(t, o.decision("jane"))
	if err := unstructured.SetNestedField(decision.Object, string(run.UID), "spec", "runUID"); err != nil {
		t.Fatal(err)
	}
	if err := o.as("jane").Create(t.Context(), decision); err != nil {
		t.Fatal(err)
	}
	c := o.as(operatorUser)
	r := &stepapproval.Reconciler{Client: c, Live: c}
	if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(decision)}); err != nil {
		t.Fatal(err)
	}
	if err := server.client.Get(t.Context(), client.ObjectKeyFromObject(decision), decision); err != nil {
		t.Fatal(err)
	}
	if owners := decision.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != run.UID {
		t.Errorf("owners %v", owners)
	}
}

// run is one whose step publish waits for approval.
func (o *office) run() *v1alpha1.WorkflowRun {
	o.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.ns, Name: "report"}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "publish", Approval: &v1alpha1.Approval{}}}
	if err := server.client.Create(o.t.Context(), run); err != nil {
		o.t.Fatal(err)
	}
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{{Name: "publish", Phase: v1alpha1.StepWaiting}}}
	if err := server.client.Status().Update(o.t.Context(), run); err != nil {
		o.t.Fatal(err)
	}
	return run
}

// syncopate runs the plugin as a user.
func (o *office) syncopate(user string, line ...string) (string, error) {
	o.t.Helper()
	o.as(user) // has rights
	config, err := o.users[user].KubeConfig()
	if err != nil {
		o.t.Fatal(err)
	}
	path := filepath.Join(o.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		o.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := plugin.NewCommand(plugin.Env{Out: &out, Err: &out, Clock: clock.RealClock{}, Getenv: func(string) string { return "" }})
	cmd.SetArgs(append(line, "--kubeconfig", path, "-n", o.ns))
	err = cmd.ExecuteContext(o.t.Context())
	return out.String(), err
}

// The plugin on a real server: the name is the one that the server knows, and the policy
// lets it pass.
// mutation: the name of the local user, or a decision without the UID, makes this fail.
func TestThePluginDecidesInTheUsersName(t *testing.T) {
	o := newOffice(t)
	run := o.run()
	if out, err := o.syncopate("eve", "approve", "report", "publish", "--wait", "0"); err == nil ||
		!strings.HasPrefix(err.Error(), "eve may not decide in namespace "+o.ns+"; the cluster role syncopate-approve gives that right: ") {
		t.Errorf("an editor approves: %s, %v", out, err)
	}
	out, err := o.syncopate("jane", "approve", "report", "publish", "--wait", "0", "--comment", "well done", "--output", `{"edition": 2}`)
	if err != nil {
		t.Fatal(err, out)
	}
	list := &v1alpha1.StepApprovalList{}
	if err := server.client.List(t.Context(), list, client.InNamespace(o.ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d decisions", len(list.Items))
	}
	got := list.Items[0]
	output := string(got.Spec.Output.Raw)
	got.Spec.Output = nil
	want := v1alpha1.StepApprovalSpec{Run: "report", RunUID: string(run.UID), Step: "publish", Decision: v1alpha1.Approve, Approver: "jane", Comment: "well done"}
	if diff := cmp.Diff(want, got.Spec); diff != "" || output != `{"edition":2}` {
		t.Errorf("output %s, decision (-want +got):\n%s", output, diff)
	}
	if !strings.HasPrefix(got.Name, "report-publish-") || !got.Means(run) || len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != run.UID {
		t.Errorf("%s, owned by %v", got.Name, got.OwnerReferences)
	}
	if !strings.HasPrefix(out, "step publish of run "+o.ns+"/report: approved by jane at ") || strings.Count(out, "\n") != 1 {
		t.Errorf("answer %q", out)
	}
	_, err = o.syncopate("jane", "reject", "report", "publish")
	wantRefused(t, err, "step publish was decided already, and the run does not show it yet: approved by jane at ")
}

// mutation: a limit on the reach of the policy's rule (a namespace, a version) makes this fail
// where it matters to people: kubectl.
func TestKubectlIsToldWhoMustBeNamed(t *testing.T) {
	o := newOffice(t)
	file := filepath.Join(t.TempDir(), "decision.yaml")
	if err := os.WriteFile(file, []byte(o.decision("jane")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := tryKubectl(t, "create", "-f", file)
	if err == nil || !strings.Contains(out, "spec.approver must be the user who creates the decision: it is 'jane', and the user is '"+whoami(t)+"'") {
		t.Errorf("%v: %s", err, out)
	}
}
