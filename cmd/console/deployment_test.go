// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

const (
	patience = time.Minute // for what must happen
	operator = "syncopate-system"
	account  = "system:serviceaccount:" + operator + ":syncopate-console"
	proxied  = "syncopate-console." + operator + ".svc:8082" // as what a proxy asks for
)

// installation is an API server that keeps an audit log, with config/default and config/console.
type installation struct {
	t       *testing.T
	config  *rest.Config
	admin   client.Client
	args    []string // of the console's container
	pod     corev1.PodSpec
	log     string // path of the audit log
	address string // of the console
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func install(t *testing.T) *installation {
	t.Helper()
	dir := t.TempDir()
	i := &installation{t: t, log: filepath.Join(dir, "audit.log")}
	policy := filepath.Join(dir, "audit.yaml")
	must(t, os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules: [{level: Metadata}]\n"), 0o600))
	server, err := devenv.StartAPIServerWith(devenv.Assets(testenv.Root()), map[string]string{"audit-policy-file": policy, "audit-log-path": i.log}, testenv.CRDs())
	must(t, err)
	t.Cleanup(func() { must(t, server.Stop()) })
	scheme, err := testenv.Scheme()
	must(t, err)
	i.config = server.Config
	i.admin, err = client.New(i.config, client.Options{Scheme: scheme})
	must(t, err)
	for _, folder := range []string{"default", "console"} {
		for _, o := range rendered(t, folder) {
			i.eventually("create "+o.GetName(), func() error { return client.IgnoreAlreadyExists(i.admin.Create(t.Context(), o.DeepCopy())) })
		}
	}
	d := &appsv1.Deployment{}
	must(t, i.admin.Get(t.Context(), client.ObjectKey{Namespace: operator, Name: "syncopate-console"}, d))
	i.pod = d.Spec.Template.Spec
	i.args = i.pod.Containers[0].Args
	return i
}

// rendered are the objects of a folder of config, as kustomize makes them. CRDs are there already.
func rendered(t *testing.T, folder string) (all []*unstructured.Unstructured) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "tool", "-modfile=hack/tools/go.mod", "kustomize", "build", filepath.Join("config", folder))
	build.Dir = testenv.Root()
	text, err := build.Output()
	must(t, err)
	for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(&o.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != "CustomResourceDefinition" {
			all = append(all, o)
		}
	}
}

func (i *installation) eventually(what string, do func() error) {
	i.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = do(); err == nil {
			return
		}
	}
	i.t.Fatalf("%s: %v", what, err)
}

// start runs the console with the arguments of its Deployment, but for the addresses that it
// listens at, and with the token of its account.
func (i *installation) start() {
	i.t.Helper()
	pages, health := free(i.t), free(i.t)
	args := []string{"-kubeconfig", i.kubeconfig(i.token(operator, "syncopate-console", nil))}
	for _, a := range i.args {
		switch name, _, _ := strings.Cut(a, "="); name {
		case "--listen":
			a = name + "=" + pages
		case "--health-listen":
			a = name + "=" + health
		}
		args = append(args, a)
	}
	ctx, cancel := context.WithCancel(i.t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, args) }()
	i.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			i.t.Error(err)
		}
	})
	i.address = "http://" + pages
	for _, path := range []string{"/readyz", "/livez"} {
		i.eventually(path, func() error {
			answer, err := http.Get("http://" + health + path)
			if err != nil {
				return err
			}
			defer func() { _ = answer.Body.Close() }()
			if answer.StatusCode != http.StatusOK {
				return errors.New(answer.Status)
			}
			return nil
		})
	}
}

func free(t *testing.T) string {
	t.Helper()
	addr, err := ports.Address()
	must(t, err)
	return addr
}

// token is one of a service account; of a pod, if there is one.
func (i *installation) token(namespace, name string, pod *corev1.Pod) string {
	i.t.Helper()
	c, err := kubernetes.NewForConfig(i.config)
	must(i.t, err)
	request := &authenticationv1.TokenRequest{}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	request, err = c.CoreV1().ServiceAccounts(namespace).CreateToken(i.t.Context(), name, request, metav1.CreateOptions{})
	must(i.t, err)
	return request.Status.Token
}

func (i *installation) kubeconfig(token string) string {
	i.t.Helper()
	dir := i.t.TempDir()
	ca := filepath.Join(dir, "ca.crt")
	must(i.t, os.WriteFile(ca, i.config.CAData, 0o600))
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}], users: [{name: u, user: {token: %q}}]}`, i.config.Host, ca, token)
	file := filepath.Join(dir, "kubeconfig")
	must(i.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// team makes a namespace with a run that asks for an approval, and a user who may work there: a
// service account in a pod on a node, whose token says all that tokens say.
func (i *installation) team(namespace, user string) (token string, r *v1alpha1.WorkflowRun) {
	i.t.Helper()
	ctx := i.t.Context()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{ServiceAccountName: user, NodeName: "node-of-" + user, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Spec.NodeName}},
		&corev1.ServiceAccount{ObjectMeta: meta}, pod,
	} {
		must(i.t, i.admin.Create(ctx, o))
	}
	for _, role := range []string{"syncopate-edit", "syncopate-view", "syncopate-approve"} {
		must(i.t, i.admin.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: user}},
		}))
	}
	r = &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "run-of-" + user}}
	r.Spec.Steps = []v1alpha1.Step{{Name: "sign", Approval: &v1alpha1.Approval{}}}
	must(i.t, i.admin.Create(ctx, r))
	at := metav1.NowMicro()
	r.Status = &v1alpha1.WorkflowRunStatus{ObservedGeneration: 1, Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{{Name: "sign", Phase: v1alpha1.StepWaiting, StartedAt: &at}}}
	as := rest.CopyConfig(i.config)
	as.Impersonate.UserName = "system:serviceaccount:" + operator + ":syncopate" // nobody else may write it
	c, err := client.New(as, client.Options{Scheme: i.admin.Scheme()})
	must(i.t, err)
	i.eventually("status", func() error { return c.Status().Update(ctx, r) })
	return i.token(namespace, user, pod), r
}

// do asks the console as a proxy does that adds its user's token.
func (i *installation) do(token, method, path string, form url.Values, headers ...string) (int, string, http.Header) {
	i.t.Helper()
	r, err := http.NewRequestWithContext(i.t.Context(), method, i.address+path, strings.NewReader(form.Encode()))
	must(i.t, err)
	r.Host = proxied
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for k := 0; k < len(headers); k += 2 {
		r.Header.Set(headers[k], headers[k+1])
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer c.CloseIdleConnections()
	answer, err := c.Do(r)
	must(i.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	must(i.t, err)
	return answer.StatusCode, string(text), answer.Header
}

var (
	csrf  = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)
	nonce = regexp.MustCompile(`name="nonce" value="([0-9A-Z]+)"`)
)

// form is what the forms on the page of a run send.
func (i *installation) form(token string, r *v1alpha1.WorkflowRun) url.Values {
	i.t.Helper()
	status, text, h := i.do(token, http.MethodGet, page(r), nil)
	found, of := csrf.FindStringSubmatch(text), nonce.FindStringSubmatch(text)
	if status != http.StatusOK || found == nil || of == nil {
		i.t.Fatalf("%s: %d\n%s", page(r), status, text)
	}
	if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") {
		i.t.Errorf("Content-Security-Policy is %q", p)
	}
	return url.Values{"csrf": {found[1]}, "nonce": {of[1]}, "uid": {string(r.UID)}, "step": {"sign"}}
}

func page(r *v1alpha1.WorkflowRun) string { return "/runs/" + r.Namespace + "/" + r.Name }

// refuses what is another's, forged, or of nobody who is known. sent is the form of ann's run.
func (i *installation) refuses(ann, bob string, anns, bobs *v1alpha1.WorkflowRun, sent url.Values) {
	i.t.Helper()
	for path, want := range map[string]string{
		"/runs?namespace=team-b": "is forbidden", page(bobs): "is forbidden", page(bobs) + "/yaml": "is forbidden", "/live" + page(bobs): "event: gone",
	} {
		if status, text, _ := i.do(ann, http.MethodGet, path, nil); !strings.Contains(text, want) || strings.Contains(text, "sign") || strings.Contains(text, "changed") {
			i.t.Errorf("%s: %d\n%s", path, status, text)
		}
	}
	refused := []struct {
		name, token, path string
		form              url.Values
		headers           []string
	}{
		{"a run of another", ann, page(bobs) + "/cancel", sent, nil},
		{"the form of another", bob, page(bobs) + "/cancel", sent, nil},
		{"no form's token", ann, page(anns) + "/cancel", url.Values{"uid": sent["uid"]}, nil},
		{"from another site", ann, page(anns) + "/cancel", sent, []string{"Sec-Fetch-Site", "cross-site"}},
		{"a user that is named by a header", ann, page(anns) + "/cancel", sent, []string{"X-Remote-User", "admin"}},
		{"no token of the cluster", "x.y.z", page(anns) + "/cancel", sent, nil},
	}
	for _, r := range refused {
		if status, text, _ := i.do(r.token, http.MethodPost, r.path, r.form, r.headers...); status != http.StatusForbidden && status != http.StatusUnauthorized {
			i.t.Errorf("%s: %d\n%s", r.name, status, text)
		}
	}
}

// The Deployment as it is shipped, for many users: its arguments, its account and its rights, each
// of which is needed. What it does for its users the audit log has in their names.
//
// mutations: a rule of config/console/role.yaml taken out, a verb or a resource added to it, a call
// with the console's own rights, or an argument of the Deployment that there is not
// makes this fail.
func TestTheDeploymentServesItsUsersInTheirNames(t *testing.T) {
	i := install(t)
	i.admit()
	i.start()
	ann, anns := i.team("team-a", "ann")
	bob, bobs := i.team("team-b", "bob")
	i.eventually("ann's rights", func() error {
		if status, text, _ := i.do(ann, http.MethodGet, page(anns), nil); status != http.StatusOK {
			return fmt.Errorf("%d: %s", status, text)
		}
		return nil
	})
	sent := i.form(ann, anns)
	i.refuses(ann, bob, anns, bobs, sent)
	for _, verb := range []string{"suspend", "resume", "approve", "rerun", "cancel"} {
		if status, text, _ := i.do(ann, http.MethodPost, page(anns)+"/"+verb, sent); status != http.StatusSeeOther {
			t.Errorf("%s: %d\n%s", verb, status, text)
		}
	}
	want := map[string][]string{ // nothing in team-b: what a user may not read is refused before a write
		"": {"create tokenreviews"},
		"system:serviceaccount:team-a:ann": {
			"create selfsubjectreviews", "create stepapprovals in team-a", "create workflowruns in team-a", "patch workflowruns in team-a",
		},
	}
	if diff := cmp.Diff(want, i.writes()); diff != "" {
		t.Errorf("writes in the audit log, by who is impersonated (-want +got):\n%s", diff)
	}
	pod := &corev1.Pod{}
	must(t, i.admin.Get(t.Context(), client.ObjectKey{Namespace: "team-a", Name: "ann"}, pod))
	i.needsEachRule(func() string { return i.token("team-a", "ann", pod) }, page(anns))
}

// needsEachRule takes each resource out of the console's role, and expects that the console cannot
// serve a user then: a token that it has not seen yet, of a pod. People who are no service account
// need `users`; internal/console/server has a test of these.
func (i *installation) needsEachRule(token func() string, path string) {
	i.t.Helper()
	role := &rbacv1.ClusterRole{}
	must(i.t, i.admin.Get(i.t.Context(), client.ObjectKey{Name: "syncopate-console"}, role))
	is := func(want bool) func() error {
		return func() error {
			if status, text, _ := i.do(token(), http.MethodGet, path, nil); (status == http.StatusOK) != want {
				return fmt.Errorf("%d: %s", status, text)
			}
			return nil
		}
	}
	for n := range role.Rules {
		for k, resource := range role.Rules[n].Resources {
			if resource == "users" {
				continue
			}
			less := role.DeepCopy()
			less.Rules[n].Resources = slices.Delete(less.Rules[n].Resources, k, k+1)
			if len(less.Rules[n].Resources) == 0 {
				less.Rules = slices.Delete(less.Rules, n, n+1)
			}
			i.setRules(less.Rules)
			i.eventually("refused without "+resource, is(false))
			i.setRules(role.Rules)
			i.eventually("served with "+resource+" again", is(true))
		}
	}
}

func (i *installation) setRules(rules []rbacv1.PolicyRule) {
	i.t.Helper()
	role := &rbacv1.ClusterRole{}
	must(i.t, i.admin.Get(i.t.Context(), client.ObjectKey{Name: "syncopate-console"}, role))
	role.Rules = rules
	must(i.t, i.admin.Update(i.t.Context(), role))
}

// admit expects that the pods of the Deployment are let into their namespace, and that the
// console's account may do what is listed, and nothing else of what is asked.
func (i *installation) admit() {
	i.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: operator, GenerateName: "console-"}, Spec: *i.pod.DeepCopy()}
	if err := i.admin.Create(i.t.Context(), pod, client.DryRunAll); err != nil {
		i.t.Errorf("a pod of the Deployment: %v", err)
	}
	const all = "get list watch create update patch delete deletecollection impersonate bind escalate"
	for _, row := range []struct{ group, resource, want string }{
		{"authentication.k8s.io", "tokenreviews", "create"},
		{"", "users", "impersonate"},
		{"", "groups", "impersonate"},
		{"", "serviceaccounts", "impersonate"},
		{"authentication.k8s.io", "userextras/authentication.kubernetes.io/pod-name", "impersonate"},
		{"authentication.k8s.io", "userextras/scopes", ""},
		{"authentication.k8s.io", "uids", ""},
		{"authorization.k8s.io", "subjectaccessreviews", ""},
		{"syncopate.dev", "workflowruns", ""},
		{"syncopate.dev", "workflowruns/status", ""},
		{"syncopate.dev", "stepapprovals", ""},
		{"syncopate.dev", "lockpolicies", ""},
		{"", "secrets", ""},
		{"", "configmaps", ""},
		{"", "events", ""},
		{"", "pods", ""},
		{"coordination.k8s.io", "leases", ""},
		{"rbac.authorization.k8s.io", "clusterroles", ""},
	} {
		if got := i.may(all, row.group, row.resource); got != row.want {
			i.t.Errorf("%s of %q: allowed %q, want %q", row.resource, row.group, got, row.want)
		}
	}
}

// may are those of the verbs that the console's account has.
func (i *installation) may(verbs, group, resource string) string {
	i.t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	var allowed []string
	for verb := range strings.FieldsSeq(verbs) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + operator, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub},
		}}
		must(i.t, i.admin.Create(i.t.Context(), review))
		if review.Status.Allowed {
			allowed = append(allowed, verb)
		}
	}
	return strings.Join(allowed, " ")
}

// writes are those of the console by whom it impersonated, as the audit log has them; of what it
// did in its own name reads, too.
func (i *installation) writes() map[string][]string {
	i.t.Helper()
	text, err := os.ReadFile(i.log)
	must(i.t, err)
	found := map[string][]string{}
	for line := range bytes.Lines(text) {
		var e struct {
			Verb             string
			User             struct{ Username string }
			ImpersonatedUser struct{ Username string }
			ObjectRef        struct{ Resource, Namespace string }
			ResponseStatus   struct{ Code int }
		}
		must(i.t, json.Unmarshal(line, &e))
		as := e.ImpersonatedUser.Username
		if e.User.Username != account || (as != "" && slices.Contains([]string{"get", "list", "watch"}, e.Verb)) {
			continue
		}
		what := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Namespace != "" {
			what += " in " + e.ObjectRef.Namespace
		}
		if e.ResponseStatus.Code >= http.StatusBadRequest {
			what += fmt.Sprint(": ", e.ResponseStatus.Code)
		}
		found[as] = append(found[as], what)
	}
	for as, all := range found {
		slices.Sort(all)
		found[as] = slices.Compact(all)
	}
	return found
}
