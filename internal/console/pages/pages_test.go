// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/ownership"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

var now = time.Date(2026, 11, 20, 10, 10, 0, 0, time.UTC)

// sample is a run whose texts try to be script.
func sample(t *testing.T) *facts.Run {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "run.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	run := &v1alpha1.WorkflowRun{}
	if err := yaml.UnmarshalStrict(text, run); err != nil {
		t.Fatal(err)
	}
	event := corev1.Event{Reason: "Odd", Message: "<script>alert(6)</script>", Type: corev1.EventTypeWarning}
	return &facts.Run{Stored: run, Run: run, Events: []corev1.Event{event}}
}

func written(t *testing.T, name string, page views.Page) string {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	page.Base, page.Now, page.CSRF = "/base", now, "c5f"
	var b bytes.Buffer
	if err := p.Write(&b, name, page); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); -update rewrites it:\n%s", name, diff)
	}
}

// mutation: a node for each item in place of the bar changes the drawing.
func TestTheGraphOfARun(t *testing.T) {
	t.Parallel()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	body := views.RunOf(sample(t), now)
	for name, of := range map[string]any{"graph": body.Graph, "timeline": body.Timeline} {
		var b bytes.Buffer
		if err := p.byName[Run].ExecuteTemplate(&b, name, drawing{"/base", of}); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".svg", b.String()+"\n")
	}
}

var (
	scripts  = regexp.MustCompile(`(?i)<script[^>]*>[^<]`)
	handlers = regexp.MustCompile(`(?i)<[a-z]+[^>]*\s(on[a-z]+|style)=`)
	remote   = regexp.MustCompile(`(?i)(src|href|action)="(https?:)?//`)
)

// mutation: a template without the errors of steps makes this fail.
func TestALongErrorOfAStepIsOnThePage(t *testing.T) {
	t.Parallel()
	body := views.Run{Steps: []views.StepRow{{Name: "fetch", Why: "E42: <b>long", Error: "E42: <b>long and to its end"}, {Name: "other"}}}
	text := written(t, Run, views.Page{Title: "run", Body: body})
	want := `<details id="error-fetch"><summary>Error of fetch</summary>E42: &lt;b&gt;long and to its end</details>`
	if !strings.Contains(text, want) || strings.Contains(text, "error-other") {
		t.Errorf("it does not have %s", want)
	}
}

// mutation: a function of templates that says that a message is HTML makes this fail.
func TestNothingOfARunIsTakenForMarkup(t *testing.T) {
	t.Parallel()
	hostile := facts.Row{Namespace: "team-a", Name: "x", Phase: "Failed", Reason: "<script>alert(7)</script>", Message: `"><img src=x onerror=alert(8)>`, Tenant: "<b>", Class: "javascript:alert(9)"}
	q := views.RunsQuery{Page: 1, Text: `"><script>alert(10)</script>`, Namespace: `"onfocus=alert(11) `}
	for name, text := range map[string]string{
		"run":    written(t, Run, views.Page{Title: "<script>alert(0)</script>", Body: views.RunOf(sample(t), now), Live: `live/"><script>alert(1)</script>`}),
		"runs":   written(t, Runs, views.Page{Title: "Runs", Body: views.RunsOf(facts.Rows{All: []facts.Row{hostile}}, views.RunsQuery{Page: 1}, now)}),
		"search": written(t, Runs, views.Page{Title: "Runs", Body: views.RunsOf(facts.Rows{All: []facts.Row{hostile}}, q, now)}),
	} {
		if found := scripts.FindString(text); found != "" {
			t.Errorf("%s has a script: %s", name, found)
		}
		if found := handlers.FindString(text); found != "" {
			t.Errorf("%s has a handler or a style of its own: %s", name, found)
		}
		if found := remote.FindString(text); found != "" {
			t.Errorf("%s refers to another server: %s", name, found)
		}
	}
}

func TestTheScriptIsSmall(t *testing.T) {
	t.Parallel()
	const most = 15 << 10
	content, _, ok := Asset("live.js")
	if !ok || len(content) > most {
		t.Errorf("%d bytes, want %d at most", len(content), most)
	}
	if _, _, ok := Asset("../pages.go"); ok {
		t.Error("a file that is no asset is served")
	}
}

// Each phase of the API has a sign and a tone, so that it can be told without its colour.
//
// mutation: a phase that is taken out of marks makes this fail.
func TestEachPhaseHasASign(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for phase := range strings.FieldsSeq("Dispatched Running BackingOff WaitingForApproval Delayed Succeeded Failed Skipped Cancelled Queued Suspended TimedOut") {
		if other := seen[views.Mark(phase)]; other != "" || views.Mark(phase) == "·" {
			t.Errorf("%s and %s have one sign", phase, other)
		}
		seen[views.Mark(phase)] = phase
	}
}

// mutations: PoliciesOf without More or Stale, or a page that says that there are none where some
// are not known, makes this fail.
func TestPagesDoNotSayNoneOfWhatTheyDoNotHave(t *testing.T) {
	t.Parallel()
	const none = "No run is under way that was written under a lock."
	for name, c := range map[string]struct {
		rows facts.Rows
		want string
	}{
		"more than are kept": {facts.Rows{More: true}, "some that are under way may be missing here"},
		"a watch that fails": {facts.Rows{Stale: errors.New("no answer")}, "not kept up to date now: no answer"},
		"all":                {facts.Rows{}, none},
	} {
		text := written(t, Policies, views.Page{Body: views.PoliciesOf(nil, nil, c.rows, now)})
		if !strings.Contains(text, c.want) || c.want != none && strings.Contains(text, none) {
			t.Errorf("%s: %s", name, text)
		}
	}
	replicas := views.ReplicasOf(facts.Owners{Claims: make([]ownership.Claim, 2)}, nil, now)
	replicas.More = true
	text := written(t, Replicas, views.Page{Body: replicas})
	if !strings.Contains(text, "There are more runs under way than are counted here") || strings.Contains(text, "its 0 runs stand still") {
		t.Errorf("%s", text)
	}
}

// mutation: runs.html that says nothing of the bound where it says how many there are
// makes this fail.
func TestAListThatIsNotAllSaysSo(t *testing.T) {
	t.Parallel()
	rows := facts.Rows{All: []facts.Row{{Namespace: "a", Name: "one"}}, More: true}
	for namespace, want := range map[string]string{"": "Choose a namespace", "a": "kubectl get workflowruns"} {
		text := written(t, Runs, views.Page{Body: views.RunsOf(rows, views.RunsQuery{Namespace: namespace, Page: 1}, now)})
		for _, part := range []string{want, "1 to 1 of 1 runs that the console keeps, the newest first", "more runs than the 1 that the console keeps"} {
			if !strings.Contains(text, part) {
				t.Errorf("no %q: %s", part, text)
			}
		}
	}
}

// mutation: RunOf, or the page, that says nothing of what is left out makes this fail.
func TestWhatIsLeftOutIsTold(t *testing.T) {
	t.Parallel()
	r := sample(t)
	for _, step := range []struct {
		set  func()
		want string
	}{{func() { r.EventsLeft = true }, "Older ones are left out"}, {func() { r.EventsUnread = true }, "newer ones may be missing"}, {func() { r.Missing = []error{errors.New("list events: no")} }, "is not on this page: list events: no"}} {
		step.set()
		if text := written(t, Run, views.Page{Body: views.RunOf(r, now)}); !strings.Contains(text, step.want) {
			t.Errorf("no %q", step.want)
		}
	}
}
