// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// audit finds what keeps people from using a page: no language, no title, landmarks and headings
// that are not there, controls and pictures without a name, equal ids, tables without heads, parts
// that scroll and cannot be reached, and text that stands out too little (WCAG 1.4.3: 4.5 to 1).
const audit = `(() => {
  const found = [], all = (s) => [...document.querySelectorAll(s)];
  const say = (what, e) => found.push(what + (e ? ": " + e.outerHTML.slice(0, 160) : ""));
  if (!document.documentElement.lang) say("no language");
  if (!document.title) say("no title");
  for (const tag of ["main", "header", "nav", "h1"]) if (all(tag).length !== 1) say(all(tag).length + " of " + tag);
  let level = 0;
  for (const h of all("h1,h2,h3,h4")) { const n = +h.tagName[1]; if (n > level + 1) say("a heading is left out before", h); level = n; }
  const name = (e) => (e.getAttribute("aria-label") || e.innerText || e.textContent || e.title || "").trim();
  for (const e of all("a[href],button,summary")) if (!name(e)) say("no name", e);
  for (const e of all("input:not([type=hidden]),textarea,select")) if (!e.labels.length && !e.getAttribute("aria-label")) say("no label", e);
  for (const e of all("svg")) if (!e.getAttribute("aria-label") || e.getAttribute("role") !== (e.querySelector("a") ? "group" : "img")) say("a picture without a name, or one that hides its links", e);
  const ids = new Set();
  for (const e of all("[id]")) { if (ids.has(e.id)) say("the id is there twice", e); ids.add(e.id); }
  for (const e of all("[aria-labelledby]")) if (!document.getElementById(e.getAttribute("aria-labelledby"))) say("its name is not there", e);
  for (const e of all("table")) if (!e.querySelector("thead th[scope=col]")) say("a table without heads", e);
  for (const e of all("body *")) {
    const s = getComputedStyle(e);
    if (/auto|scroll/.test(s.overflowX + s.overflowY) && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1) && e.tabIndex < 0) say("it scrolls, and cannot be reached", e);
  }
  if (document.documentElement.scrollWidth > innerWidth + 1) say("the page is wider than its window");
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const back = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > 0) return c; } return [255, 255, 255, 1]; };
  const seen = new Set();
  for (const e of all("body *")) {
    if (e.closest("svg") || !e.checkVisibility() || ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
    const front = getComputedStyle(e).color, on = back(e), key = front + on;
    if (seen.has(key)) continue;
    seen.add(key);
    const a = light(parse(front)), b = light(on), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say("contrast of " + ratio.toFixed(2), e);
  }
  for (const g of all("svg .node")) {
    const rect = getComputedStyle(g.querySelector("rect")), a = light(parse(rect.fill)), b = light(parse(getComputedStyle(g.querySelector(".small")).fill));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) say("contrast of " + ratio.toFixed(2), g);
  }
  return found;
})()`

// mutation: taking a check out of audit makes this fail.
func TestTheAuditFindsWhatIsWrong(t *testing.T) {
	p := open(t)
	p.do(chromedp.Navigate("about:blank"))
	p.eval(`document.documentElement.innerHTML = '<body><h3>low</h3><p style="color:#aaa;background:#fff">pale</p><a href="#"></a><input><svg></svg><i id="x"></i><i id="x"></i><table><tr><td>1</td></tr></table>'`, nil)
	var found []string
	p.eval(audit, &found)
	if len(found) < 12 {
		t.Errorf("%d findings: %q", len(found), found)
	}
}

// bare is a run of one step.
func bare(ns, name string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       v1alpha1.WorkflowRunSpec{Steps: []v1alpha1.Step{{Name: "work", Job: &v1alpha1.Job{Topic: "demo.echo"}}}},
	}
}

// status changes that of a run.
func status(t *testing.T, run *v1alpha1.WorkflowRun, change func(*v1alpha1.WorkflowRunStatus)) {
	t.Helper()
	must(t, admin.Get(t.Context(), client.ObjectKeyFromObject(run), run))
	if run.Status == nil {
		run.Status = &v1alpha1.WorkflowRunStatus{}
	}
	change(run.Status)
	must(t, admin.Status().Update(t.Context(), run))
}
