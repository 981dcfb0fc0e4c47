// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// account makes a service account, and a token of it.
func account(t *testing.T, ns, name string, audiences ...string) string {
	t.Helper()
	must(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})))
	c, err := kubernetes.NewForConfig(apiServer.Config)
	must(t, err)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	request, err = c.CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), name, request, metav1.CreateOptions{})
	must(t, err)
	return request.Status.Token
}

// shipped is a config with the rights that config/console gives the console, and no others.
func shipped(t *testing.T) *rest.Config {
	t.Helper()
	text, err := os.ReadFile(testenv.Root("config", "console", "role.yaml"))
	must(t, err)
	must(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "syncopate-system"}})))
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(doc), &o.Object))
		must(t, client.IgnoreAlreadyExists(admin.Create(t.Context(), o)))
	}
	waitFor(t, "system:serviceaccount:syncopate-system:syncopate-console", authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"})
	waitFor(t, "system:serviceaccount:syncopate-system:syncopate-console", authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "groups"})
	return &rest.Config{QPS: 500, Burst: 1000, Host: apiServer.Config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: apiServer.Config.CAData}, BearerToken: account(t, "syncopate-system", "syncopate-console")}
}

// inCluster is a console as the Deployment has it.
func inCluster(t *testing.T, o access.Options) *console {
	t.Helper()
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	who, err := access.NewInCluster(shipped(t), o)
	must(t, err)
	return serve(t, who, server.Options{})
}

func (c *console) as(token string, headers ...string) *console {
	d := *c
	d.header = http.Header{"Authorization": {"Bearer " + token}}
	for i := 0; i < len(headers); i += 2 {
		d.header.Add(headers[i], headers[i+1])
	}
	return &d
}

// mutation: view without Impersonate shows what the console may see (nothing: it fails), and with
// the rights of an administrator shows all.
func TestInAClusterEachUserHasTheirOwnRights(t *testing.T) {
	t.Parallel()
	mine, theirs := namespace(t), namespace(t)
	run := newRun(t, theirs, "their-run", asking)
	newRun(t, mine, "my-run", asking)
	c := inCluster(t, access.Options{})
	jane, joe := c.as(account(t, mine, "jane")), c.as(account(t, theirs, "joe"))
	allow(t, "system:serviceaccount:"+mine+":jane", mine, sees(), rule("syncopate.dev", "workflowruns", "patch"), rule("syncopate.dev", "stepapprovals", "create", "list"))
	allow(t, "system:serviceaccount:"+theirs+":joe", theirs, sees())
	wants(t, joe.get("/runs?namespace="+theirs), "their-run")
	text := jane.get("/runs?namespace=" + theirs)
	wants(t, text, "is forbidden", "system:serviceaccount:"+mine+":jane")
	lacks(t, text, "their-run")
	for _, path := range []string{"/runs/" + theirs + "/their-run", "/runs/" + theirs + "/their-run/yaml", "/live/runs?namespace=" + theirs} {
		if status, text, _ := jane.do(http.MethodGet, path, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d\n%s", path, status, text)
		}
	}
	// Her own form, sent about a run of his.
	sent := jane.form("/runs/"+mine+"/my-run", run, "step", "sign")
	for _, verb := range []string{"suspend", "cancel", "approve", "rerun"} {
		if status, text, _ := jane.do(http.MethodPost, "/runs/"+theirs+"/their-run/"+verb, sent); status != http.StatusForbidden {
			t.Errorf("%s: %d\n%s", verb, status, text)
		}
	}
	if now := stored(t, run); now.Spec.Suspend || now.Spec.Shutdown != "" {
		t.Errorf("%+v", now.Spec)
	}
	// What she may, she does in her own name.
	own := stored(t, &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "my-run"}})
	if status, text, _ := jane.do(http.MethodPost, "/runs/"+mine+"/my-run/approve", jane.form("/runs/"+mine+"/my-run", own, "step", "sign")); status != http.StatusSeeOther {
		t.Fatalf("%d: %s", status, text)
	}
	list := &v1alpha1.StepApprovalList{}
	must(t, admin.List(t.Context(), list, client.InNamespace(mine)))
	if len(list.Items) != 1 || list.Items[0].Spec.Approver != "system:serviceaccount:"+mine+":jane" {
		t.Errorf("%+v", list.Items)
	}
	// The form of one user is not that of another.
	if status, _, _ := joe.do(http.MethodPost, "/runs/"+theirs+"/their-run/suspend", sent); status != http.StatusForbidden {
		t.Errorf("a form of another user: %d", status)
	}
}

// Who has rights in one namespace sees what is in it, on each page that has something of
// namespaces, and is told nothing that is untrue of the others.
//
// mutations: pages that read no namespace from their address, and policies that takes a refusal for
// no runs, make this fail.
func TestInAClusterOneNamespaceIsEnough(t *testing.T) {
	t.Parallel()
	mine, theirs := namespace(t), namespace(t)
	under := func(r *v1alpha1.WorkflowRun) {
		in(v1alpha1.RunRunning, "")(r)
		r.Status.Lock = &v1alpha1.RunLockStatus{Holder: "replica-of-" + r.Namespace, LeaseID: "lease"}
		r.Status.Admission = &v1alpha1.AdmissionStatus{AdmittedAt: new(metav1.Now())}
	}
	newRun(t, mine, "my-run", under)
	newRun(t, theirs, "their-run", under)
	for _, ns := range []string{mine, theirs} {
		must(t, admin.Create(t.Context(), schedule(ns, "of-"+ns)))
	}
	who := "system:serviceaccount:" + mine + ":jane"
	jane := inCluster(t, access.Options{}).as(account(t, mine, "jane"))
	allow(t, who, mine, sees(), rule("syncopate.dev", "schedules", "list"))
	allow(t, who, "syncopate-system", rule("", "configmaps", "get", "list"), rule("coordination.k8s.io", "leases", "list"))
	for path, parts := range map[string][]string{
		"/schedules": {"of-" + mine}, "/tenants": {"acme", "Only runs of " + mine + " are counted"}, "/policies": {"my-run", "replica-of-" + mine},
	} {
		text := jane.get(path + "?namespace=" + mine)
		wants(t, text, append(parts, `name="namespace" value="`+mine+`"`)...)
		lacks(t, text, "their-run", "of-"+theirs, "is forbidden")
		for _, all := range []string{path, path + "?namespace=" + theirs} {
			text := jane.get(all)
			wants(t, text, "is forbidden", "Choose a namespace", `name="namespace"`)
			lacks(t, text, "No run is under way", "There are none", "their-run", "of-"+theirs)
		}
	}
	if text := jane.get("/replicas?namespace=" + mine); !strings.Contains(text, "There are no partitions in namespace") {
		wants(t, text, "Only runs of "+mine+" are counted") // another test has left some
		wants(t, jane.get("/replicas"), "is forbidden", "Choose a namespace")
	}
	for _, path := range []string{"/live/runs", "/live/runs?namespace=" + theirs} {
		if status, text, _ := jane.do(http.MethodGet, path, ""); status != http.StatusForbidden {
			t.Errorf("%s: %d\n%s", path, status, text)
		}
	}
	lacks(t, jane.get("/runs?namespace="+theirs), "data-live=") // it would be refused again and again
}

// schedule is one that the operator has not looked at.
func schedule(ns, name string) *v1alpha1.Schedule {
	s := &v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
	s.Spec.Cron = []string{"0 3 * * *"}
	s.Spec.RunTemplate.Spec.Raw = []byte(`{"steps":[{"name":"work","job":{"topic":"demo.echo"}}]}`)
	return s
}

// mutation: named that believes headers beside any token, takes no notice of them, or lets a proxy
// name whom it likes makes this fail.
func TestForgedHeadersAreRefused(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "a-run", asking)
	allow(t, "jane-of-proxy", ns, sees())
	account(t, ns, "robot")
	proxy, robot := "system:serviceaccount:"+ns+":proxy", "system:serviceaccount:"+ns+":robot"
	allow(t, robot, ns, sees())
	c := inCluster(t, access.Options{Proxies: []string{proxy}})
	trusted, other := account(t, ns, "proxy"), account(t, ns, "other")
	text := c.as(trusted, "X-Remote-User", "jane-of-proxy", "X-Remote-Group", "team").get("/runs?namespace=" + ns)
	wants(t, text, "a-run", "jane-of-proxy")
	for name, try := range map[string]struct {
		from *console
		want int
	}{
		"headers beside the token of another":  {c.as(other, "X-Remote-User", "jane-of-proxy"), http.StatusForbidden},
		"groups beside the token of another":   {c.as(other, "X-Remote-Group", "system:masters"), http.StatusForbidden},
		"others beside the token of another":   {c.as(other, "X-Remote-Extra-Scopes", "all"), http.StatusForbidden},
		"headers without a token":              {c.as("", "X-Remote-User", "jane-of-proxy"), http.StatusUnauthorized},
		"headers beside a token that is none":  {c.as("x.y.z", "X-Remote-User", "jane-of-proxy"), http.StatusUnauthorized},
		"a proxy that names nobody":            {c.as(trusted), http.StatusForbidden},
		"a proxy that names two":               {c.as(trusted, "X-Remote-User", "jane-of-proxy", "X-Remote-User", "joe"), http.StatusForbidden},
		"a proxy that names a master":          {c.as(trusted, "X-Remote-User", "jane-of-proxy", "X-Remote-Group", "system:masters"), http.StatusForbidden},
		"a proxy that names the system":        {c.as(trusted, "X-Remote-User", "system:kube-controller-manager"), http.StatusForbidden},
		"a proxy that names a service account": {c.as(trusted, "X-Remote-User", robot), http.StatusForbidden},
		"impersonation headers of the browser": {c.as(other, "Impersonate-User", "jane-of-proxy"), http.StatusOK}, // as the other one, who sees nothing
	} {
		t.Run(name, func(t *testing.T) {
			status, text, _ := try.from.do(http.MethodGet, "/runs?namespace="+ns, "")
			if status != try.want || status == http.StatusOK && !strings.Contains(text, "is forbidden") {
				t.Errorf("%d, want %d\n%s", status, try.want, text)
			}
			lacks(t, text, "a-run")
		})
	}
}

// mutation: review without Audiences takes a token that was made for the console only as one for
// the API server; the limit after the review, or of all addresses together, makes this fail.
func TestTokensAreReviewedAndTheirReviewsBounded(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	c := inCluster(t, access.Options{Audiences: []string{"console"}, Clock: clocktesting.NewFakePassiveClock(time.Now())})
	for name, token := range map[string]string{"for the API server": account(t, ns, "jane"), "none": "none", "empty": ""} {
		if status, text, _ := c.as(token).do(http.MethodGet, "/runs", ""); status != http.StatusUnauthorized {
			t.Errorf("%s: %d\n%s", name, status, text)
		}
	}
	good := account(t, ns, "jane", "console")
	if status, text, _ := c.as(good).do(http.MethodGet, "/runs?namespace="+ns, ""); status != http.StatusOK {
		t.Errorf("for the console: %d\n%s", status, text)
	}
	busy := 0
	for i := range 100 {
		if status, _, _ := c.as("guess-"+strings.Repeat("x", i)).do(http.MethodGet, "/runs", ""); status == http.StatusTooManyRequests {
			busy++
		}
	}
	if busy < 60 {
		t.Errorf("%d of a hundred guesses at a moment were refused before they were reviewed, want 60 or more", busy)
	}
	if status, _, _ := c.as(good).do(http.MethodGet, "/runs?namespace="+ns, ""); status != http.StatusOK {
		t.Errorf("who is known already is kept out: %d", status)
	}
}
