// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const patience = 20 * time.Second // for what must happen

var (
	apiServer *envtest.Environment
	admin     client.Client
)

func TestMain(m *testing.M) {
	if api := os.Getenv(hourEnv); api != "" {
		if err := beConsole(api); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testenv.Main(m, func(e *envtest.Environment) error {
		scheme, err := testenv.Scheme()
		if err != nil {
			return err
		}
		apiServer = e
		admin, err = client.New(e.Config, client.Options{Scheme: scheme})
		return err
	})
}

// namespace makes one for a test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "console-"}}
	must(t, admin.Create(t.Context(), ns))
	return ns.Name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRun makes a run of one step, with the status that fill makes.
func newRun(t *testing.T, ns, name string, fill func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
	t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: "demo.echo"}}}
	run.Status = &v1alpha1.WorkflowRunStatus{}
	if fill != nil {
		fill(run)
	}
	status := run.Status
	must(t, admin.Create(t.Context(), run))
	run.Status = status
	must(t, admin.Status().Update(t.Context(), run))
	return run
}

func in(phase v1alpha1.RunPhase, message string) func(*v1alpha1.WorkflowRun) {
	return func(r *v1alpha1.WorkflowRun) {
		r.Status.ObservedGeneration, r.Status.Phase, r.Status.Tenant, r.Status.Progress = 1, phase, "acme", "0/1"
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: string(phase), Message: message, LastTransitionTime: metav1.Now()}}
	}
}

// user is the config of a user with some rights in a namespace.
func user(t *testing.T, name, ns string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	u, err := apiServer.AddUser(envtest.User{Name: name, Groups: []string{"team"}}, nil)
	must(t, err)
	allow(t, name, ns, rules...)
	return u.Config()
}

func allow(t *testing.T, name, ns string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	if len(rules) == 0 {
		return
	}
	meta := metav1.ObjectMeta{Namespace: ns, GenerateName: "r-"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	must(t, admin.Create(t.Context(), role))
	must(t, admin.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}))
	last := rules[len(rules)-1]
	waitFor(t, name, authorizationv1.ResourceAttributes{Namespace: ns, Verb: last.Verbs[0], Group: last.APIGroups[0], Resource: last.Resources[0]})
}

// waitFor waits until the API server knows of a right.
func waitFor(t *testing.T, name string, right authorizationv1.ResourceAttributes) {
	t.Helper()
	waitForAnswer(t, name, right, true)
}

// waitForAnswer waits until the API server says whether a user has a right.
func waitForAnswer(t *testing.T, name string, right authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &right}}
		must(t, admin.Create(t.Context(), r))
		if r.Status.Allowed == allowed {
			return
		}
	}
	t.Fatalf("%s may %+v: %t", name, right, !allowed)
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// takeBack ends the rights of all users in a namespace; name is one who could list its runs.
func takeBack(t *testing.T, name, ns string) {
	t.Helper()
	must(t, admin.DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace(ns)))
	waitForAnswer(t, name, authorizationv1.ResourceAttributes{Namespace: ns, Verb: "list", Group: "syncopate.dev", Resource: "workflowruns"}, false)
}

func sees() rbacv1.PolicyRule { return rule("syncopate.dev", "workflowruns", "get", "list", "watch") }

// console is one that a test asks.
type console struct {
	t      *testing.T
	url    string // without a slash at the end
	client *http.Client
	header http.Header
}

// local is a console of a user, as kubectl syncopate console has it.
func local(t *testing.T, config *rest.Config, ns string) *console {
	t.Helper()
	view, err := cluster.NewView(config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	return serve(t, who, server.Options{Base: who.Base(), Namespace: ns})
}

func serve(t *testing.T, who server.Access, o server.Options) *console {
	t.Helper()
	o.Log, o.Operator = t.Logf, cmp.Or(o.Operator, "syncopate-system")
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	h := httptest.NewUnstartedServer(nil)
	o.Hosts = append(o.Hosts, h.Listener.Addr().String())
	s, err := server.New(ctx, who, o)
	must(t, err)
	h.Config.Handler = s.Handler()
	h.Start()
	t.Cleanup(func() { cancel(); h.CloseClientConnections(); h.Close(); s.Close() })
	c := h.Client()
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &console{t: t, url: h.URL + o.Base, client: c, header: http.Header{}}
}

// do asks, and gives the status and the text of the answer.
func (c *console) do(method, path, body string, change ...func(*http.Request)) (int, string, http.Header) {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	must(c.t, err)
	maps.Copy(r.Header, c.header)
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, f := range change {
		f(r)
	}
	answer, err := c.client.Do(r)
	must(c.t, err)
	defer func() { must(c.t, answer.Body.Close()) }()
	text, err := io.ReadAll(answer.Body)
	must(c.t, err)
	return answer.StatusCode, string(text), answer.Header
}

// get wants a page.
func (c *console) get(path string) string {
	c.t.Helper()
	status, text, _ := c.do(http.MethodGet, path, "")
	if status != http.StatusOK {
		c.t.Fatalf("%s: %d\n%s", path, status, text)
	}
	return text
}

// eventually waits until a page is as it should be.
func (c *console) eventually(path string, is func(text string) bool) {
	c.t.Helper()
	text := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if text = c.get(path); is(text) {
			return
		}
	}
	c.t.Fatalf("%s stays:\n%s", path, text)
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("it does not have %q:\n%s", p, text)
		}
	}
}

func lacks(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("it has %q:\n%s", p, text)
		}
	}
}

// eventually looks until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, over := time.NewTicker(10*time.Millisecond), time.NewTimer(patience)
	defer tick.Stop()
	defer over.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-over.C:
			t.Fatalf("not in time: %s", what)
		}
	}
}
