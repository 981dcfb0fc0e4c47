// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// planners is a namespace on a server with the shipped policy of schedules: sam may write schedules
// and no runs, eve may write both.
func planners(t *testing.T) *office {
	t.Helper()
	o := &office{t: t, ns: namespace(t), users: map[string]*envtest.AuthenticatedUser{}}
	for _, file := range []string{"schedules/policy.yaml", "rbac/user_roles.yaml"} {
		for _, object := range documents(t, filepath.Join(moduleRoot, "config", file)) {
			o.make(object)
		}
	}
	only := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: o.ns + "-schedules"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"schedules"}, Verbs: []string{"*"}},
		{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"stepapprovals"}, Verbs: []string{"list"}},
	}}
	o.make(only)
	for _, name := range []string{"sam", "eve"} {
		user, err := server.env.AddUser(envtest.User{Name: name}, &rest.Config{QPS: -1})
		if err != nil {
			t.Fatal(err)
		}
		o.users[name] = user
	}
	o.bind("sam", only.Name)
	o.bind("eve", "syncopate-view", "syncopate-edit")
	return o
}

func (o *office) schedule(name, cron string) client.Object {
	return parse(o.t, fmt.Sprintf(`
apiVersion: syncopate.dev/v1alpha1
kind: Schedule
metadata: {name: %s, namespace: %s}
spec:
  cron: ["%s"]
  runTemplate: {spec: {steps: [{name: a, job: {topic: t}}]}}
`, name, o.ns, cron))
}

// A schedule creates runs with the rights of the operator, so its author must have the right.
//
// mutation: audit instead of deny, a policy that looks at creations only, and one that looks at
// metadata, make this fail.
func TestWhoMayNotCreateRunsMayNotHaveThemScheduled(t *testing.T) {
	o := planners(t)
	sam, eve := o.as("sam"), o.as("eve")
	refused := func(err error) bool {
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "a schedule creates runs: 'sam' may not create workflowruns in namespace "+o.ns)
	}
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = sam.Create(t.Context(), o.schedule("in-vain", "0 0 * * *"), client.DryRunAll); refused(err) {
			break
		}
	}
	if !refused(err) {
		t.Fatalf("the policy does not come into force: %v", err)
	}
	if err := sam.Create(t.Context(), o.schedule("in-vain", "0 0 * * *")); !refused(err) {
		t.Errorf("created: %v", err)
	}
	made := o.schedule("good", "0 0 * * *")
	if err := eve.Create(t.Context(), made); err != nil {
		t.Fatalf("who may create runs: %v", err)
	}
	patch := func(text string) error {
		return sam.Patch(t.Context(), o.schedule("good", "0 0 * * *"), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	if err := patch(`{"spec":{"cron":["* * * * *"]}}`); !refused(err) {
		t.Errorf("changed: %v", err)
	}
	if err := patch(`{"metadata":{"labels":{"team":"a"}}}`); err != nil {
		t.Errorf("a label has no runs created: %v", err)
	}
	if err := sam.Delete(t.Context(), made); err != nil {
		t.Errorf("that it is deleted neither: %v", err)
	}
}
