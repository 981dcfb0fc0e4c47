// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
)

var (
	tokens = regexp.MustCompile(`name="csrf" value="([0-9a-f]+)"`)
	nonces = regexp.MustCompile(`name="nonce" value="([0-9A-Z]+)"`)
)

// form is what the forms of a page send, for a run.
func (c *console) form(page string, run *v1alpha1.WorkflowRun, more ...string) string {
	c.t.Helper()
	text := c.get(page)
	found := tokens.FindStringSubmatch(text)
	if found == nil {
		c.t.Fatalf("%s has no form", page)
	}
	v := url.Values{"csrf": {found[1]}, "uid": {string(run.UID)}}
	if nonce := nonces.FindStringSubmatch(text); nonce != nil {
		v.Set("nonce", nonce[1])
	}
	for i := 0; i < len(more); i += 2 {
		v.Set(more[i], more[i+1])
	}
	return v.Encode()
}

func stored(t *testing.T, run *v1alpha1.WorkflowRun) *v1alpha1.WorkflowRun {
	t.Helper()
	now := &v1alpha1.WorkflowRun{}
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(run), now))
	return now
}

// asking is a run with an approval that waits.
func asking(r *v1alpha1.WorkflowRun) {
	in(v1alpha1.RunRunning, "")(r)
	r.Spec.Steps = append(r.Spec.Steps, v1alpha1.Step{Name: "sign", Approval: &v1alpha1.Approval{Message: "Is it <i>good</i>?"}})
	at := metav1.NowMicro()
	r.Status.Steps = []v1alpha1.StepStatus{{Name: "work", Phase: v1alpha1.StepPending}, {Name: "sign", Phase: v1alpha1.StepWaiting, StartedAt: &at}}
}

// mutation: act that takes suspend for resume makes this fail.
func TestActionsAreWritesOfTheUser(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	c := local(t, user(t, "jane-acts", ns, sees(), rule("syncopate.dev", "workflowruns", "patch", "create"), rule("syncopate.dev", "stepapprovals", "create", "list")), ns)
	page := "/runs/" + ns + "/report"
	wants(t, c.get(page), "Step sign asks", "Is it &lt;i&gt;good&lt;/i&gt;?", "Suspend", "Cancel the run")
	post := func(verb string, more ...string) string {
		t.Helper()
		status, text, h := c.do(http.MethodPost, page+"/"+verb, c.form(page, run, more...))
		if status != http.StatusSeeOther {
			t.Fatalf("%s: %d\n%s", verb, status, text)
		}
		return h.Get("Location")
	}
	post("suspend")
	if !stored(t, run).Spec.Suspend {
		t.Error("it is not suspended")
	}
	if to := post("resume"); stored(t, run).Spec.Suspend || !strings.HasSuffix(to, page+"?done=resume") {
		t.Errorf("it is suspended, or leads to %s", to)
	}
	wants(t, c.get(page+"?done=resume"), "Resumed.")
	post("approve", "step", "sign", "comment", " well done ")
	list := &v1alpha1.StepApprovalList{}
	must(t, admin.List(t.Context(), list, client.InNamespace(ns)))
	if len(list.Items) != 1 || list.Items[0].Spec.Approver != "jane-acts" || list.Items[0].Spec.Comment != "well done" || list.Items[0].Spec.RunUID != string(run.UID) {
		t.Errorf("%+v", list.Items)
	}
	if status, text, _ := c.do(http.MethodPost, page+"/reject", c.form(page, run, "step", "sign")); status != http.StatusUnprocessableEntity || !strings.Contains(text, "was decided already") {
		t.Errorf("%d: %s", status, text)
	}
	to := post("rerun")
	again := &v1alpha1.WorkflowRun{}
	name, _, _ := strings.Cut(to[strings.LastIndex(to, "/")+1:], "?")
	must(t, admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, again))
	if !strings.HasPrefix(name, "report-") || len(again.Spec.Steps) != 2 {
		t.Errorf("%s: %+v", name, again.Spec)
	}
	post("cancel")
	post("terminate")
	if s := stored(t, run).Spec.Shutdown; s != v1alpha1.ShutdownTerminate {
		t.Errorf("shutdown is %q", s)
	}
}

// newer is an API server of a newer version than the console: each run that is read has a field of
// its spec that this version does not know. sent is the spec of the last run that was created.
type newer struct {
	http.RoundTripper
	sent map[string]any
}

func (n *newer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/workflowruns") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var run map[string]any
		if err := json.Unmarshal(body, &run); err != nil {
			return nil, err
		}
		n.sent, _ = run["spec"].(map[string]any)
		return n.RoundTripper.RoundTrip(r)
	}
	answer, err := n.RoundTripper.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || answer.StatusCode != http.StatusOK || !strings.HasSuffix(r.URL.Path, "/workflowruns/report") {
		return answer, err
	}
	defer func() { _ = answer.Body.Close() }()
	var run map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&run); err != nil {
		return nil, err
	}
	spec, _ := run["spec"].(map[string]any)
	spec["novel"] = map[string]any{"kind": "Barrier"}
	body, err := json.Marshal(run)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Del("Content-Length")
	return answer, err
}

// mutation: a console that creates runs from what its version knows makes this fail.
func TestRunAgainKeepsFieldsThatTheConsoleDoesNotKnow(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", in(v1alpha1.RunRunning, ""))
	var server *newer
	config := rest.CopyConfig(apiServer.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		server = &newer{RoundTripper: next}
		return server
	})
	c := local(t, config, ns)
	page := "/runs/" + ns + "/report"
	if status, text, _ := c.do(http.MethodPost, page+"/rerun", c.form(page, run)); status != http.StatusSeeOther {
		t.Fatalf("%d\n%s", status, text)
	}
	if diff := cmp.Diff(map[string]any{"kind": "Barrier"}, server.sent["novel"]); diff != "" || server.sent["steps"] == nil {
		t.Errorf("sent %v (-want +got):\n%s", server.sent, diff)
	}
}

// mutation: act that goes on after an error makes this fail.
func TestARefusalIsShown(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	c := local(t, user(t, "jane-looks", ns, sees()), ns)
	page := "/runs/" + ns + "/report"
	for _, verb := range []string{"suspend", "cancel", "approve", "rerun"} {
		status, text, _ := c.do(http.MethodPost, page+"/"+verb, c.form(page, run, "step", "sign"))
		if status != http.StatusForbidden {
			t.Errorf("%s: %d", verb, status)
		}
		wants(t, text, "You may not do that", "jane-looks", "Go back")
	}
	if now := stored(t, run); now.Spec.Suspend || now.Spec.Shutdown != "" {
		t.Errorf("%+v", now.Spec)
	}
}

// A page may be old: the run has ended since, and nothing that is asked of it has an effect.
//
// mutation: End or Suspend without over makes this fail.
func TestAnActionThatComesTooLateIsRefused(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	c := local(t, apiServer.Config, ns)
	page := "/runs/" + ns + "/report"
	sent := c.form(page, run, "step", "sign")
	at := metav1.Now()
	run.Status.Phase, run.Status.CompletedAt = v1alpha1.RunSucceeded, &at
	must(t, admin.Status().Update(t.Context(), run))
	for _, verb := range []string{"suspend", "resume", "cancel", "terminate", "approve"} {
		status, text, _ := c.do(http.MethodPost, page+"/"+verb, sent)
		if status != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", verb, status)
		}
		wants(t, text, "It could have no effect", "is over: it ended as Succeeded")
	}
	if now := stored(t, run); now.Spec.Suspend || now.Spec.Shutdown != "" {
		t.Errorf("%+v", now.Spec)
	}
}

// A child run may clean up after its parent has ended, and does not after that is terminated.
//
// mutations: End that refuses to terminate each run that has ended, and RunOf that offers it for
// none of them, make this fail.
func TestARunThatHasEndedIsTerminatedForItsChildRuns(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	at := metav1.Now()
	run := newRun(t, ns, "report", func(r *v1alpha1.WorkflowRun) {
		in(v1alpha1.RunRunning, "")(r)
		r.Spec.Shutdown = v1alpha1.ShutdownCancel
		r.Status.Steps = []v1alpha1.StepStatus{{Name: "work", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: "report-work", UID: "u1"}}}
	})
	c := local(t, apiServer.Config, ns)
	page := "/runs/" + ns + "/report"
	run.Status.Phase, run.Status.CompletedAt = v1alpha1.RunCancelled, &at
	must(t, admin.Status().Update(t.Context(), run))
	text := c.get(page)
	wants(t, text, page+`/terminate"`, "End its child runs")
	lacks(t, text, page+`/cancel"`, page+`/suspend"`, page+`/resume"`)
	sent := c.form(page, run)
	for verb, want := range map[string]int{"suspend": http.StatusUnprocessableEntity, "cancel": http.StatusUnprocessableEntity, "terminate": http.StatusSeeOther} {
		if status, text, _ := c.do(http.MethodPost, page+"/"+verb, sent); status != want {
			t.Errorf("%s: %d\n%s", verb, status, text)
		}
	}
	if now := stored(t, run); now.Spec.Shutdown != v1alpha1.ShutdownTerminate {
		t.Errorf("%+v", now.Spec)
	}
	lacks(t, c.get(page), page+`/terminate"`) // that was asked
	newRun(t, ns, "alone", func(r *v1alpha1.WorkflowRun) {
		in(v1alpha1.RunCancelled, "")(r)
		r.Status.CompletedAt = &at
	})
	lacks(t, c.get("/runs/"+ns+"/alone"), `/alone/terminate"`)
}

// mutation: change without metadata.uid, or meant without its comparison, makes this fail.
func TestAnActionIsAboutTheRunThatWasSeen(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	c := local(t, apiServer.Config, ns)
	page := "/runs/" + ns + "/report"
	sent := c.form(page, run, "step", "sign")
	must(t, admin.Delete(t.Context(), run))
	later := newRun(t, ns, "report", asking)
	for _, verb := range []string{"suspend", "cancel", "approve", "reject", "rerun"} {
		if status, text, _ := c.do(http.MethodPost, page+"/"+verb, sent); status != http.StatusConflict {
			t.Errorf("%s: %d\n%s", verb, status, text)
		}
	}
	if err := actions.Suspend(t.Context(), admin, run, true); !apierrors.IsConflict(err) { // it was read before
		t.Errorf("suspend: %v", err)
	}
	if now := stored(t, later); now.Spec.Suspend || now.Spec.Shutdown != "" {
		t.Errorf("%+v", now.Spec)
	}
}

// mutation: page without genuine, or guard without origin.Check, makes this fail.
func TestPostsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	c := local(t, apiServer.Config, ns)
	page := "/runs/" + ns + "/report"
	good := c.form(page, run)
	for name, try := range map[string]struct {
		body   string
		change func(*http.Request)
	}{
		"no token":          {"uid=" + string(run.UID), func(*http.Request) {}},
		"another token":     {"csrf=" + strings.Repeat("0", 64) + "&uid=" + string(run.UID), func(*http.Request) {}},
		"no uid":            {strings.Split(good, "&uid")[0], func(*http.Request) {}},
		"from another site": {good, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
		"from another port": {good, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }},
		"another origin":    {good, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }},
		"another host":      {good, func(r *http.Request) { r.Host = "evil.example" }},
	} {
		t.Run(name, func(t *testing.T) {
			if status, text, _ := c.do(http.MethodPost, page+"/suspend", try.body, try.change); status < http.StatusBadRequest {
				t.Errorf("%d: %s", status, text)
			}
		})
	}
	if stored(t, run).Spec.Suspend {
		t.Error("it is suspended")
	}
	if status, _, _ := c.do(http.MethodGet, page+"/suspend", ""); status < http.StatusBadRequest || stored(t, run).Spec.Suspend {
		t.Error("a link suspends")
	}
}

// A double click, and a reload of an answer that came too late, send the same form twice.
//
// mutations: rerun that has the API server make the name, or that fails where the run is there,
// makes this fail; so does a page that has the nonce of another one.
func TestAFormRunsARunAgainOnce(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, strings.Repeat("report", 12), asking)
	c := local(t, apiServer.Config, ns)
	page := "/runs/" + ns + "/" + run.Name
	names := map[string]bool{}
	again := func(sent string) {
		t.Helper()
		status, text, h := c.do(http.MethodPost, page+"/rerun", sent)
		if status != http.StatusSeeOther {
			t.Fatalf("%d\n%s", status, text)
		}
		names[h.Get("Location")] = true
	}
	sent := c.form(page, run)
	again(sent)
	again(sent)
	if len(names) != 1 {
		t.Errorf("one form has made %v", names)
	}
	again(c.form(page, run))
	list := &v1alpha1.WorkflowRunList{}
	must(t, admin.List(t.Context(), list, client.InNamespace(ns)))
	if len(names) != 2 || len(list.Items) != 3 {
		t.Errorf("%d runs, %v", len(list.Items), names)
	}
	for i := range list.Items {
		if n := list.Items[i].Name; n != run.Name && len(n) > 63 {
			t.Errorf("%s has %d characters", n, len(n))
		}
	}
	if status, text, _ := c.do(http.MethodPost, page+"/rerun", c.form(page, run, "nonce", "")); status != http.StatusForbidden {
		t.Errorf("a form without a nonce: %d\n%s", status, text)
	}
}

// stalled is an API server that makes runs, and gives no answer in time.
type stalled struct{ http.RoundTripper }

func (s stalled) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPost {
		return nil, context.DeadlineExceeded
	}
	return s.RoundTripper.RoundTrip(r)
}

// mutation: refuse with the advice of a page makes this fail.
func TestAnActionThatRanOutOfTimeIsNotToBeReloaded(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "report", asking)
	config := rest.CopyConfig(apiServer.Config)
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return stalled{rt} })
	view, err := cluster.NewView(config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	c := serve(t, who, server.Options{Base: who.Base(), Namespace: ns})
	page := "/runs/" + ns + "/report"
	status, text, _ := c.do(http.MethodPost, page+"/rerun", c.form(page, run))
	if status != http.StatusGatewayTimeout {
		t.Errorf("%d", status)
	}
	wants(t, text, "It may have been done: go back and look.", page+`">Go back`)
	lacks(t, text, "Reload")
}
