// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const operatorUser = "system:serviceaccount:" + operatorNamespace + ":syncopate"

// right is what is asked: verbs on a resource, "group/resource/subresource" with an empty group for
// the core, of one name or of any, in a namespace or in all.
type right struct {
	verbs, resource, name, namespace string
}

// may asks the API server, verb by verb, and returns the verbs that are allowed.
func may(t *testing.T, user string, groups []string, r right) string {
	t.Helper()
	group, resource, _ := strings.Cut(r.resource, "/")
	resource, sub, _ := strings.Cut(resource, "/")
	var allowed []string
	for verb := range strings.FieldsSeq(r.verbs) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user, Groups: groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Subresource: sub, Name: r.name, Namespace: r.namespace,
			},
		}}
		if err := server.client.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		if review.Status.Allowed {
			allowed = append(allowed, verb)
		}
	}
	return strings.Join(allowed, " ")
}

const (
	all = "get list watch create update patch delete deletecollection"
	own = operatorNamespace
	// team is a namespace of others.
	team = "team-a"
)

// operatorRights are what the operator's account may do: each row asks for all verbs, and has those
// that are allowed.
var operatorRights = []struct {
	right
	want string
}{
	{right{all, "syncopate.dev/workflowruns", "", team}, "get list watch create patch delete"},
	{right{all, "syncopate.dev/workflowruns", "", ""}, "get list watch create patch delete"},
	{right{all, "syncopate.dev/workflowruns/status", "", team}, "update"},
	{right{all, "syncopate.dev/workflowruns/finalizers", "", team}, "update"},
	{right{all, "syncopate.dev/lockpolicies", "", ""}, "get list watch"},
	{right{all, "syncopate.dev/lockpolicies/status", "", ""}, "update"},
	{right{all, "syncopate.dev/semaphores", "", ""}, "get list watch"},
	{right{all, "syncopate.dev/schedules", "", ""}, "get list watch"},
	{right{all, "syncopate.dev/schedules/status", "", ""}, "update"},
	{right{all, "syncopate.dev/schedules/finalizers", "", ""}, "update"},
	{right{all, "syncopate.dev/semaphores/status", "", ""}, "update"},
	{right{all, "syncopate.dev/workflows", "", team}, "get list watch"},
	{right{all, "syncopate.dev/workflows/status", "", team}, "update"},
	{right{all, "apps/controllerrevisions", "", team}, "get list create update delete"},
	{right{all, "syncopate.dev/stepapprovals", "", team}, "get list watch patch delete"},
	{right{all, "/namespaces", "", ""}, "get list watch"},
	{right{all, "events.k8s.io/events", "", team}, "create"},
	{right{all, "/events", "", team}, ""},
	{right{all, "/events", "", own}, "create patch"},
	{right{all, "coordination.k8s.io/leases", "", own}, "get list create update delete"},
	{right{all, "coordination.k8s.io/leases", "", team}, ""},
	{right{all, "coordination.k8s.io/leases", "", "kube-system"}, ""},
	{right{all, "/secrets", "", own}, "create"},
	{right{all, "/secrets", "syncopate-result-keys", own}, "get list watch create"},
	{right{all, "/secrets", "syncopate-webhook-certs", own}, "get create update"},
	{right{all, "/secrets", "syncopate-nats", own}, "create"},
	{right{all, "/secrets", "syncopate-redis", own}, "create"},
	{right{all, "/secrets", "", team}, ""},
	{right{all, "/secrets", "syncopate-result-keys", team}, ""},
	{right{all, "admissionregistration.k8s.io/validatingwebhookconfigurations", "syncopate", ""}, "get update"},
	{right{all, "admissionregistration.k8s.io/validatingwebhookconfigurations", "of-another", ""}, ""},
	{right{all, "admissionregistration.k8s.io/mutatingwebhookconfigurations", "syncopate", ""}, ""},
	{right{all, "apiextensions.k8s.io/customresourcedefinitions", "", ""}, ""},
	{right{all, "rbac.authorization.k8s.io/clusterroles", "", ""}, ""},
	{right{all + " bind escalate", "rbac.authorization.k8s.io/roles", "", own}, ""},
	{right{all, "/pods", "", own}, ""},
	{right{"create", "/pods/exec", "", own}, ""},
	{right{all, "/configmaps", "", own}, "create"},
	{right{all, "/configmaps", "syncopate-ownership", own}, "get list watch create update"},
	{right{all, "/configmaps", "syncopate-ownership", team}, ""},
	{right{all, "/configmaps", "syncopate-audit", own}, "get create update"},
	{right{all, "/nodes", "", ""}, ""},
	{right{all, "apps/deployments", "", own}, ""},
	{right{"impersonate", "/users", "", ""}, ""},
	{right{"create", "/serviceaccounts/token", "syncopate", own}, ""},
}

// The operator's account may do what it needs, and nothing else.
// mutation: a verb, a resource or a name more or less in config/rbac/role.yaml or
// config/webhook/self-managed makes its row fail.
func TestWhatTheOperatorMayDo(t *testing.T) {
	groups := []string{"system:serviceaccounts", "system:serviceaccounts:" + own, "system:authenticated"}
	for _, row := range operatorRights {
		got := may(t, operatorUser, groups, row.right)
		t.Logf("%-66s %-26s %-17s %s", row.resource, row.name, row.namespace, got)
		if got != row.want {
			t.Errorf("%s %q in %q: allowed %q, want %q", row.resource, row.name, row.namespace, got, row.want)
		}
	}
}

// People have the roles that they are bound to; view, edit and admin of the cluster get
// theirs by labels.
// mutation: a verb or a resource more or less in config/rbac/user_roles.yaml or redrive_role.yaml
// makes its row fail.
func TestWhatPeopleMayDo(t *testing.T) {
	const team = "team-b"
	if err := server.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"view", "edit", "approve", "submit"} {
		bind(t, team, "ClusterRole", "syncopate-"+role, role)
	}
	bind(t, "", "ClusterRole", "syncopate-policies", "policies")
	bind(t, "", "ClusterRole", "syncopate-view", "watcher")
	bind(t, operatorNamespace, "Role", "syncopate-redrive", "redrive")
	bind(t, "", "ClusterRole", "syncopate-redrive", "redrive")
	const runs, approvals, policies = "syncopate.dev/workflowruns", "syncopate.dev/stepapprovals", "syncopate.dev/lockpolicies"
	const workflows = "syncopate.dev/workflows"
	read, noBulk := "get list watch", "get list watch create update patch delete"
	for _, row := range []struct {
		user string
		right
		want string
	}{
		{"view", right{all, runs, "", team}, read},
		{"view", right{all, approvals, "", team}, read},
		{"view", right{all, policies, "", ""}, ""}, // in one namespace only
		{"watcher", right{all, policies, "", ""}, read},
		{"edit", right{all, runs, "", team}, all},
		{"edit", right{all, runs + "/status", "", team}, ""},
		{"edit", right{all, approvals, "", team}, ""},
		{"edit", right{all, runs, "", "default"}, ""},
		{"edit", right{all, workflows, "", team}, all},
		{"edit", right{all, workflows + "/status", "", team}, ""},
		{"view", right{all, workflows, "", team}, read},
		{"view", right{all, "apps/controllerrevisions", "", team}, read}, // the steps of runs that follow a Workflow
		{"submit", right{all, runs, "", team}, "create"},
		{"submit", right{all, workflows, "", team}, ""}, // who may run a template need not see it
		{"approve", right{all, approvals, "", team}, "get list watch create"},
		{"approve", right{all, runs, "", team}, ""},
		{"policies", right{all, policies, "", ""}, noBulk},
		{"policies", right{all, policies + "/status", "", ""}, ""},
		{"policies", right{all, runs, "", team}, ""},
		{"redrive", right{all, "/secrets", "syncopate-nats-redrive", operatorNamespace}, "get"},
		{"redrive", right{all, "/secrets", "syncopate-nats", operatorNamespace}, ""},
		{"redrive", right{all, "/secrets", "syncopate-result-keys", operatorNamespace}, ""},
		{"redrive", right{all, runs, "", team}, "get list"},
		{"redrive", right{all, "/namespaces", "kube-system", "kube-system"}, "get"}, // whose NATS it is
		{"redrive", right{all, "/namespaces", team, team}, ""},
	} {
		if got := may(t, row.user, nil, row.right); got != row.want {
			t.Errorf("%s: %s %q in %q: allowed %q, want %q", row.user, row.resource, row.name, row.namespace, got, row.want)
		}
	}
}

// The cluster's own roles get these by a controller that no API server has; so the labels
// are looked at.
// mutation: a label more or less on any of the roles makes this fail.
func TestWhereTheRolesOfPeopleGo(t *testing.T) {
	roles := &rbacv1.ClusterRoleList{}
	if err := server.client.List(t.Context(), roles, client.MatchingLabels{"app.kubernetes.io/name": "syncopate"}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range roles.Items {
		for label := range roles.Items[i].Labels {
			if to, is := strings.CutPrefix(label, "rbac.authorization.k8s.io/aggregate-to-"); is {
				got = append(got, roles.Items[i].Name+" to "+to)
			}
		}
	}
	slices.Sort(got)
	want := []string{"syncopate-approve to admin", "syncopate-edit to admin", "syncopate-edit to edit", "syncopate-view to view"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// bind gives a role to a user of that name, in a namespace or in all.
func bind(t *testing.T, namespace, kind, role, user string) {
	t.Helper()
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%s", strings.ToLower(kind), user)}
	var binding client.Object = &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	if namespace == "" {
		binding = &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: subjects}
	}
	if err := server.client.Create(t.Context(), binding); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
