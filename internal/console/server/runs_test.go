// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutation: a feed that does not apply changes of its watch makes this fail.
func TestTheListIsThatOfTheAPIServerAndStaysSo(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "one", in(v1alpha1.RunRunning, "works on <b>it</b>"))
	c := local(t, apiServer.Config, ns)
	text := c.get("/runs?namespace=" + ns)
	wants(t, text, "/runs/"+ns+"/one", "Running", "acme", "works on &lt;b&gt;it&lt;/b&gt;", "1 to 1 of 1 runs")
	two := newRun(t, ns, "two", in(v1alpha1.RunQueued, ""))
	c.eventually("/runs?namespace="+ns, func(s string) bool {
		return strings.Contains(s, "/runs/"+ns+"/two") && strings.Contains(s, "…</span> Queued")
	})
	must(t, admin.Delete(t.Context(), two))
	c.eventually("/runs?namespace="+ns, func(s string) bool { return !strings.Contains(s, ns+"/two") })
	wants(t, c.get("/runs?phase=Failed&namespace="+ns), "None of the 1 runs is like that")
	wants(t, c.get("/runs?namespace=nobody-has-it"), "There are no runs in nobody-has-it yet")
}

// mutation: events of another run in RunOf, or Why without its facts, make this fail.
func TestThePageOfARunSaysWhyItWaits(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	newRun(t, ns, "report", func(r *v1alpha1.WorkflowRun) {
		in(v1alpha1.RunRunning, "")(r)
		r.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"topic":"</pre><script>"}`)}
		r.Spec.Steps = append(r.Spec.Steps, v1alpha1.Step{Name: "sign", DependsOn: []string{"work"}, Approval: &v1alpha1.Approval{Message: "Is it good?"}})
		at := metav1.NowMicro()
		r.Status.Steps = []v1alpha1.StepStatus{
			{Name: "work", Phase: v1alpha1.StepDispatched, Attempt: 1, DispatchedAt: &at},
			{Name: "sign", Phase: v1alpha1.StepPending},
		}
	})
	c := local(t, apiServer.Config, ns)
	text := c.get("/runs/" + ns + "/report")
	wants(t, text, "The run waits for workers: work", "waits for a worker of topic demo.echo", `id="step-sign"`, "topic&#34;: &#34;&lt;/pre&gt;", "<svg class=\"graph\"")
	lacks(t, text, "</pre><script>")
	wants(t, c.get("/runs/"+ns+"/report/yaml"), "kind: WorkflowRun", "topic: demo.echo")
	if status, text, _ := c.do(http.MethodGet, "/runs/"+ns+"/gone", ""); status != http.StatusNotFound {
		t.Errorf("%d: %s", status, text)
	}
}

// mutation: followRun that does not watch, or tell that does not flush, makes this fail.
func TestAPageIsToldOfChanges(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	run := newRun(t, ns, "watched", in(v1alpha1.RunRunning, ""))
	c := local(t, apiServer.Config, ns)
	for _, path := range []string{"/live/runs/" + ns + "/watched", "/live/runs?namespace=" + ns} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+path, nil)
		must(t, err)
		answer, err := c.client.Do(r)
		must(t, err)
		if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Fatalf("%s is %s", path, kind)
		}
		lines := bufio.NewScanner(answer.Body)
		if !lines.Scan() || lines.Text() != ": hello" {
			t.Fatalf("%s begins with %q", path, lines.Text())
		}
		for lines.Scan() && lines.Text() != "event: changed" { // it begins with one
		}
		next := run.DeepCopy()
		next.Labels = map[string]string{"changed": "for-" + strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path), "-")[:9]}
		must(t, admin.Patch(t.Context(), next, client.MergeFrom(run)))
		for lines.Scan() && lines.Text() != "event: changed" {
		}
		if lines.Text() != "event: changed" {
			t.Errorf("%s ended without a change: %v", path, lines.Err())
		}
		must(t, answer.Body.Close())
	}
}
