// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/internal/devenv"
	"github.com/syncopate-dev/syncopate/internal/testenv/ports"
)

// aMetric is a name as this operator or its libraries give it to metrics, with the labels that
// are asked for.
var aMetric = regexp.MustCompile(`\b(?:syncopate|workqueue|leader_election|rest_client|controller_runtime|process|go)_[a-z0-9_]+\b(?:\{[^}]*\})?`)

// notOfThisProcess are labels that Prometheus adds to what it scrapes.
var notOfThisProcess = sets.New("namespace", "pod", "job", "le")

// registered are the labels of each metric; found once, as the registry and the names of
// controllers are the process's.
var registered struct {
	sync.Once
	labels map[string]sets.Set[string]
}

// known are the labels of each metric that the operator registers, with the webhook switched on. A
// vector shows no series before it is used, so this asks what is registered, not what is served.
func known(t *testing.T) map[string]sets.Set[string] {
	t.Helper()
	registered.Do(func() {
		startInThisProcess(t)
		registry, ok := metrics.Registry.(prometheus.Collector)
		if !ok {
			t.Fatalf("a registry that cannot describe itself: %T", metrics.Registry)
		}
		registered.labels = described(t, registry)
	})
	return registered.labels
}

func described(t *testing.T, c prometheus.Collector) map[string]sets.Set[string] {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	form := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	found := map[string]sets.Set[string]{}
	for d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("a description looks different now: %s", d)
			continue
		}
		found[m[1]] = sets.New(strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })...)
	}
	return found
}

// startInThisProcess has run do its wiring, which registers everything, and ends it with the test.
func startInThisProcess(t *testing.T) {
	t.Helper()
	env, err := devenv.Start(t.Context(), devenv.Options{Root: root, Dir: t.TempDir()})
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", env.Kubeconfig)
	o, err := parse(t, nil, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address="+freeAddress(t),
		"--nats-url="+env.NATS.URL(), "--redis-addrs="+env.Redis.Addr, "--webhook-bind-address="+freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		defer cancel() // with it the wait for readiness, if it ends too soon
		ended <- run(ctx, o)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	m := &devenv.Manager{Process: &devenv.Process{Log: "of this test"}, Probes: o.probeAddr}
	ready, enough := context.WithTimeout(ctx, rotationPatience)
	defer enough()
	if err := m.Ready(ready); err != nil {
		t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	addr, err := ports.Address()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Whatever names a metric, for machines or for people, names one that there is, with labels
// that it has.
// mutation: another name or label of a metric in the code, or in one of these files,
// makes this fail.
func TestEveryMetricThatIsNamedExists(t *testing.T) {
	metrics := known(t)
	if len(metrics) < 50 || metrics["syncopate_dead_letters_total"] == nil || metrics["syncopate_webhook_answers_total"] == nil {
		t.Fatalf("the registry has only %d metrics: %q", len(metrics), slices.Sorted(maps.Keys(metrics)))
	}
	seen := sets.New[string]()
	for _, file := range namingFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// JSON and YAML have quotes in strings escaped.
		for _, use := range aMetric.FindAllString(strings.ReplaceAll(string(text), `\"`, `"`), -1) {
			name, labels, _ := strings.Cut(strings.TrimSuffix(use, "}"), "{")
			if name == ofTheCheck {
				continue
			}
			has, ok := lookUp(metrics, name)
			if !ok {
				t.Errorf("%s names %s, which the operator does not have", file, name)
				continue
			}
			seen.Insert(name)
			for _, label := range labelNames(labels) {
				if !has.Has(label) && !notOfThisProcess.Has(label) {
					t.Errorf("%s: %s has no label %q", file, name, label)
				}
			}
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d metrics were found: is the expression still right?", len(seen))
	}
}

// ofTheCheck is what kubectl syncopate check gives to the textfile collector of a node.
const ofTheCheck = "syncopate_check_verdict"

// lookUp finds a metric, or the histogram whose series it is.
func lookUp(metrics map[string]sets.Set[string], name string) (sets.Set[string], bool) {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && metrics[base] != nil {
			return metrics[base], true
		}
	}
	return nil, false
}

// labelNames are those of a selector, {a="x",b=~"y"}, or of a list, {a, b}.
func labelNames(selector string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`([a-z_]+)\s*(?:[=!]~?"[^"]*")?(?:,|$)`).FindAllStringSubmatch(selector, -1) {
		names = append(names, m[1])
	}
	return names
}

// namingFiles are those that name metrics by their full names.
func namingFiles(t *testing.T) []string {
	t.Helper()
	files := []string{filepath.Join(root, "config/monitoring/prometheus_rule.yaml"), filepath.Join(root, "config/monitoring/dashboard.json")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) == ".md" && filepath.Base(filepath.Dir(path)) != "adr" {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// alerts are what is asked of the rules here.
type alerts struct {
	Spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
}

// What an expression groups by are labels of the metrics in it: a label that no series has gives
// one group without a name.
// mutation: a label of a metric that the code names otherwise than the rules or the dashboard
// makes this fail.
func TestExpressionsGroupByLabelsThatThereAre(t *testing.T) {
	metrics := known(t)
	grouping := regexp.MustCompile(`\bby \(([^)]*)\)`)
	for _, expr := range expressions(t) {
		has := sets.New[string]()
		for _, use := range aMetric.FindAllString(expr, -1) {
			name, _, _ := strings.Cut(use, "{")
			labels, _ := lookUp(metrics, name)
			has = has.Union(labels)
		}
		for _, by := range grouping.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(by[1], ",") {
				if label = strings.TrimSpace(label); !has.Has(label) && !notOfThisProcess.Has(label) {
					t.Errorf("%q is no label in %s", label, expr)
				}
			}
		}
	}
}

// gauges says how the values of all replicas are put together, for each gauge that an alert, the
// dashboard or a page asks for: each counts what is its own, or one of them knows, or each has its
// view of the same.
func gauges() map[string][]string {
	own, one, view := []string{"sum", "count"}, []string{"max"}, []string{"min", "max"}
	return map[string][]string{
		"runs": own, "runs_need_newer": own, "schedules_held": own, "partitions_owned": own, "run_locks_unlocked": own, "places_used": own, "places_waiting": own,
		"inbox_bytes": own, "inbox_limit_bytes": own, "results_parked": own, "build_info": {"sum", "absent", "label_values"}, "result_keys": own,
		"admission_slots": one, "admission_queue_length": one, "locks_held": one, "locks_waiting": one, "locks_oldest_contended_hold_seconds": one,
		"audit_findings": one, "topics_waiting": one, "rollout_phase": one, "rollout_percent": one, "inbox_oldest_seconds": one,
		"nats_stream_bytes": view, "nats_stream_limit_bytes": view, "partitions_unowned": view, "ownership_members": view, "result_keys_usable": view, "webhook_certificate_expiry_timestamp_seconds": view,
		"start_timestamp_seconds": {"max", "changes", "present_over_time"}, // of the youngest, or of one after the other
	}
}

// Two replicas with 3 and 4 runs have 7; of what one replica knows, or did before another, the sum
// is too much.
//
// mutation: max of a gauge that each replica sets for what is its own, sum of one that all set for
// the same, or a gauge of which nothing is said here makes this fail.
func TestGaugesOfReplicasArePutTogetherAsTheyAreMeant(t *testing.T) {
	known, use := gauges(), regexp.MustCompile(`\b(\w+)(?: by \([^)]*\))? ?\((?:(?:last|min|max)_over_time\()?syncopate_(\w+)`)
	seen := sets.New[string]()
	for _, file := range namingFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllStringSubmatch(string(text), -1) {
			if ways, is := known[m[2]]; is && !slices.Contains(ways, m[1]) {
				t.Errorf("%s: %s of syncopate_%s; want one of %q", file, m[1], m[2], ways)
			}
			seen.Insert(m[2])
		}
	}
	counter := regexp.MustCompile(`_(total|bucket|sum|count)$`)
	for _, expr := range expressions(t) {
		for _, name := range regexp.MustCompile(`\bsyncopate_(\w+)`).FindAllStringSubmatch(expr, -1) {
			if _, is := known[name[1]]; !counter.MatchString(name[1]) && (!is || !seen.Has(name[1])) {
				t.Errorf("how are the values of all replicas put together? %s in %s", name[1], expr)
			}
		}
	}
}

// expressions are those of the alerts and of the dashboard.
func expressions(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, g := range readRules(t).Spec.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	if len(all) < 50 {
		t.Fatalf("only %d expressions were found", len(all))
	}
	return all
}

func readRules(t *testing.T) (rules alerts) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "config/monitoring/prometheus_rule.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

// dashboard is what is asked of Grafana's here.
type dashboard struct {
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ UID string }
		Targets                  []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "config/monitoring/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A Prometheus has the alerts of many products, so each name says whose it is.
// mutation: an alert of another prefix, without a page, with another's page, or that the list of
// runbooks has with another severity or time makes this fail, and so does a page that is not
// in the list.
func TestEachAlertHasItsRunbook(t *testing.T) {
	want := map[string]string{}
	for _, g := range readRules(t).Spec.Groups {
		for _, r := range g.Rules {
			if !strings.HasPrefix(r.Alert, "Syncopate") {
				t.Errorf("alert %s does not begin with the product's name", r.Alert)
			}
			page := "docs/runbooks/" + r.Alert + ".md"
			if url := r.Annotations["runbook_url"]; url != "https://github.com/syncopate-dev/syncopate/blob/main/"+page {
				t.Errorf("%s: runbook_url %q", r.Alert, url)
			}
			if text, err := os.ReadFile(filepath.Join(root, page)); err != nil || !strings.HasPrefix(string(text), "# "+r.Alert+"\n") {
				t.Errorf("%s has no page, or one of another title: %v", r.Alert, err)
			}
			if r.For == "" {
				r.For = "0s"
			}
			want[r.Alert] = r.Labels["severity"] + " " + r.For
		}
	}
	list, err := os.ReadFile(filepath.Join(root, "docs/runbooks/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \| (\w+) \|`).FindAllStringSubmatch(string(list), -1) {
		got[m[1]] = m[2] + " " + m[3]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("alerts and the list of runbooks (-alerts +list):\n%s", diff)
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(list), "("+name+")") {
			t.Errorf("the list of runbooks lacks %s", name)
		}
	}
}

// The dashboard is JSON that Grafana takes: each panel has a place of its own, a title, a
// description and a query, and all ask the data source that is chosen.
// mutation: two panels at one place, a panel without a query, or with a data source of somebody's
// own makes this fail.
func TestTheDashboardIsComplete(t *testing.T) {
	taken, titles := map[string]string{}, sets.New[string]()
	for _, p := range readDashboard(t).Panels {
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			place := fmt.Sprintf("%d/%d", x, p.GridPos.Y)
			if before, is := taken[place]; is || x >= 24 {
				t.Errorf("%q is where %q is, or beyond the edge", p.Title, before)
			}
			taken[place] = p.Title
		}
		if p.Type == "row" {
			continue
		}
		titles.Insert(p.Title)
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %d, %q, lacks a title, a description, a query or the data source that is chosen", p.ID, p.Title)
		}
	}
	for _, title := range []string{
		"Busy retries by policy", "Delays of busy retries", "Wait for a run lock, p95 and p99", "Result latency", "Runs in line", "Dead letters",
		"Renewal failures by policy", "Fences: stale writes refused, per hour",
	} {
		if !titles.Has(title) {
			t.Errorf("there is no panel %q", title)
		}
	}
}
