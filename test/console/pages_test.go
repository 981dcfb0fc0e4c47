// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/consoletest"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
)

// letterBox has dead letters.
type letterBox struct{}

func (letterBox) List(context.Context, int) (facts.Letters, error) {
	stored := time.Now().Add(-3 * time.Minute)
	return facts.Letters{All: []facts.Letter{
		{Sequence: 1, StoredAt: stored, Reason: "rejected", Cause: "token is missing or wrong", Namespace: "team-a", Run: "report", Step: "rates", Attempt: 1, Deliveries: 1, Bytes: 47, Refused: "a forged token"},
		{Sequence: 2, StoredAt: stored, Reason: "DeliveriesExhausted", Cause: "writes with it were refused too often", Namespace: "team-a", Run: "report", Step: "read", Attempt: 1, Deliveries: 12, Bytes: 2038},
	}}, nil
}

func (letterBox) Redrive(context.Context, uint64) error { return nil }

// seed fills namespace team-a, for all tests that only look.
var seed = sync.OnceValue(func() error {
	err := admin.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}})
	return errors.Join(err, consoletest.Seed(context.Background(), admin, "team-a", operator, time.Now()))
})

// watched fails the test for errors of the page, refusals of the Content-Security-Policy among
// them, and for requests to another host.
func (p *tab) watched(host string) {
	chromedp.ListenTarget(p.ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			p.t.Errorf("the script failed: %v", e.ExceptionDetails)
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				p.t.Errorf("the page complains: %v", e.Args)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, host) && !strings.HasPrefix(u, "about:") && !strings.HasPrefix(u, "data:") {
				p.t.Errorf("a request to %s", u)
			}
		}
	})
	p.do(network.Enable(), runtime.Enable())
}

// mutation: a template with a handler or a style of its own, a control without a name, and the tone
// of .muted at half make this fail.
func TestEachPageCanBeRead(t *testing.T) {
	must(t, seed())
	script := axe(t)
	url := console(t, letterBox{})
	p := open(t)
	p.watched(url)
	for _, page := range []struct{ name, path, has string }{
		{"runs", "/runs", "report"},
		{"run", "/runs/team-a/report", "budget"},
		{"failed-run", "/runs/team-a/import", "Denied"},
		{"queued-run", "/runs/team-a/next-report", "place 1 of 2"},
		{"policies", "/policies", "canary"},
		{"tenants", "/tenants", "Queue of acme"},
		{"schedules", "/schedules", "Europe/Berlin"},
		{"replicas", "/replicas", "Partitions"},
		{"dead-letters", "/dead-letters", "DeliveriesExhausted"},
		{"refused", "/runs/team-a/nobody", "It is not there"},
	} {
		p.do(chromedp.Navigate(url+page.path), chromedp.WaitReady("main"))
		for _, m := range []string{"light", "dark"} {
			p.do(mode(m))
			var text, title string
			var found []string
			p.eval(`document.querySelector("main").innerText`, &text)
			p.eval(`document.title`, &title)
			p.eval(audit, &found)
			if !strings.Contains(text, page.has) || title == "taken" {
				t.Errorf("%s has no %q, or was taken (%s):\n%s", page.name, page.has, title, text)
			}
			for _, f := range found {
				t.Errorf("%s in %s: %s", page.name, m, f)
			}
			if script == "" {
				continue
			}
			for _, v := range p.violations(script) {
				t.Errorf("%s in %s: %s", page.name, m, v)
			}
		}
		p.picture(page.name)
	}
}

// Each begins at the list of runs, and may take three clicks.
//
// mutation: a page of a run without WaitsFor, one of policies without Changes, and a place that is
// not told make this fail.
func TestThreeQuestionsTakeThreeClicks(t *testing.T) {
	must(t, seed())
	url := console(t, nil)
	for _, q := range []struct {
		name   string
		clicks []string // the texts of links, in this order
		answer []string // what is then to be read, the first of it in the picture
	}{
		{"why-does-it-wait", []string{"team-a/next-report"}, []string{"the tenant has as many slots taken as its LockPolicy lets it", "place 1 of 2"}},
		{"who-holds-its-lock", []string{"team-a/train-large"}, []string{"held by team-a/report"}},
		{"what-did-the-rollout-change", []string{"Locks and policies"}, []string{"What the candidate changes", "wait.mode: Poll -> HandOff", "busyRetry.mode: Jittered -> Fixed"}},
	} {
		if len(q.clicks) > 3 {
			t.Fatalf("%s takes %d clicks", q.name, len(q.clicks))
		}
		p := open(t)
		p.watched(url)
		p.do(chromedp.Navigate(url+"/runs?namespace=team-a"), chromedp.WaitReady("main"))
		for _, link := range q.clicks {
			p.follow(link)
		}
		var text string
		p.eval(`document.querySelector("main").innerText`, &text)
		for _, answer := range q.answer {
			if !strings.Contains(text, answer) {
				t.Errorf("%s: %q is not in\n%s", q.name, answer, text)
			}
		}
		p.eval(fmt.Sprintf(`[...document.querySelectorAll("main dt, main dd, main p")].find(e => e.innerText.includes(%q))?.scrollIntoView({block: "center"})`, q.answer[0]), nil)
		p.picture(q.name)
	}
}

// mutation: a live.js that does not fetch the page again makes this fail.
func TestAPageChangesAsTheRunDoes(t *testing.T) {
	namespace(t, "team-live")
	run := bare("team-live", "moving")
	must(t, admin.Create(t.Context(), run))
	url := console(t, nil)
	p := open(t)
	p.watched(url)
	p.do(chromedp.Navigate(url+"/runs?namespace=team-live"), chromedp.WaitReady("main"))
	p.until(`document.getElementById("live").textContent == "live" && document.querySelector("tbody").innerText.includes("Pending")`)
	status(t, run, func(s *v1alpha1.WorkflowRunStatus) { s.Phase = v1alpha1.RunRunning })
	p.until(`document.querySelector("tbody").innerText.includes("Running")`)
	p.do(chromedp.Evaluate(`document.querySelector("tbody a").click()`, nil), chromedp.WaitReady("#step-work"))
	p.until(`document.getElementById("live").textContent == "live"`)
	p.do(chromedp.Click(`#ending summary`, chromedp.ByQuery))
	status(t, run, func(s *v1alpha1.WorkflowRunStatus) {
		s.Steps = []v1alpha1.StepStatus{{Name: "work", Phase: v1alpha1.StepRunning, Attempt: 1}}
	})
	p.until(`document.querySelector("#step-work .phase").innerText.includes("Running")`)
	var open bool
	if p.eval(`document.getElementById("ending").open`, &open); !open {
		t.Error("what was open is closed")
	}
	p.do(chromedp.Click(`form[action$="/cancel"] button`, chromedp.ByQuery), chromedp.WaitReady(".notice"))
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(run), run))
	if run.Spec.Shutdown != v1alpha1.ShutdownCancel {
		t.Errorf("shutdown is %q", run.Spec.Shutdown)
	}
}

// A proxy refuses streams while the console behind it is rolled out.
//
// mutation: a live.js that leaves it to the browser to connect again makes this fail.
func TestAPageComesBackAfterARefusal(t *testing.T) {
	namespace(t, "team-back")
	must(t, admin.Create(t.Context(), bare("team-back", "kept")))
	var refused atomic.Int64
	url, _ := served(t, nil, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/live/") && refused.Add(1) == 1 {
				http.Error(w, "no console is there", http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	p := open(t)
	p.do(chromedp.Navigate(url+"/runs?namespace=team-back"), chromedp.WaitReady("main"))
	p.until(`document.getElementById("live").textContent == "not connected"`)
	p.until(`document.getElementById("live").textContent == "live"`)
	if refused.Load() < 2 {
		t.Error("it did not ask again")
	}
}

// Everything is reached by keyboard, in an order that makes sense, beginning with a way past
// the menu.
func TestAPageWorksByKeyboardAndWithoutScript(t *testing.T) {
	namespace(t, "team-keys")
	must(t, admin.Create(t.Context(), bare("team-keys", "typed")))
	url := console(t, nil)
	p := open(t)
	p.do(network.Enable(), network.SetBlockedURLs().WithURLPatterns([]*network.BlockPattern{{URLPattern: "*://*:*/*live.js*", Block: true}}), chromedp.Navigate(url+"/runs?namespace=team-keys"), chromedp.WaitReady("main"))
	var at string
	focus := `(a => a.tagName === "DIV" ? "a region" : a.innerText || a.name || a.tagName)(document.activeElement)`
	seen := []string{}
	for range 30 {
		p.do(chromedp.KeyEvent("\t"))
		p.eval(focus, &at)
		seen = append(seen, at)
		if strings.Contains(at, "typed") {
			break
		}
	}
	if seen[0] != "Skip to the content" || !strings.Contains(at, "typed") {
		t.Fatalf("the focus went %q", seen)
	}
	p.do(chromedp.KeyEvent("\r"), chromedp.WaitReady("#step-work"))
	var text string
	p.eval(`document.getElementById("live").innerText`, &text)
	if text != "reload for news" {
		t.Errorf("without script it says %q", text)
	}
}
