// SPDX-License-Identifier: Apache-2.0

package apirules

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "selectors-"}}
	if err := server.client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

func createIn(t *testing.T, ns, name, spec, status string) {
	t.Helper()
	manifest := strings.Replace(aRun(spec), "{generateName: run-, namespace: default}", "{name: "+name+", namespace: "+ns+"}", 1)
	o := mustCreate(t, manifest)
	if err := patchStatus(t, o, status); err != nil {
		t.Fatal(err)
	}
}

// Mutation: a selectablefield marker dropped makes the API server answer "field
// label not supported".
func TestFieldSelectors(t *testing.T) {
	ns := namespace(t)
	createIn(t, ns, "one", "  workloadClass: batch", "status: {phase: Running, tenant: acme}")
	createIn(t, ns, "two", "", "status: {phase: Succeeded, tenant: acme}")
	createIn(t, ns, "three", "", "status: {phase: Running, tenant: other}")
	for selector, want := range map[string][]string{
		"status.phase=Running":                    {"one", "three"},
		"status.phase!=Running":                   {"two"},
		"status.tenant=acme":                      {"one", "two"},
		"spec.workloadClass=default":              {"three", "two"},
		"status.tenant=acme,status.phase=Running": {"one"},
	} {
		t.Run(selector, func(t *testing.T) {
			list := &v1alpha1.WorkflowRunList{}
			opts := &client.ListOptions{Namespace: ns, Raw: &metav1.ListOptions{FieldSelector: selector}}
			if err := server.client.List(t.Context(), list, opts); err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}

// The plugin asks the API server for runs under way.
//
// Mutation: a phase that is left out of NotEnded makes this fail.
func TestRunsThatHaveEndedAreNotSelected(t *testing.T) {
	ns := namespace(t)
	for _, phase := range []string{"Pending", "Queued", "Running", "Succeeded", "Failed", "Cancelled", "TimedOut"} {
		createIn(t, ns, strings.ToLower(phase), "", "status: {phase: "+phase+"}")
	}
	mustCreate(t, strings.Replace(aRun(), "{generateName: run-, namespace: default}", "{name: new, namespace: "+ns+"}", 1))
	var got []string
	more, err := reads.Each(t.Context(), server.client, func(run *v1alpha1.WorkflowRun) bool {
		got = append(got, run.Name)
		return true
	}, client.InNamespace(ns), reads.NotEnded())
	if want := []string{"new", "pending", "queued", "running"}; err != nil || more || !slices.Equal(got, want) {
		t.Errorf("%v, more %t, %v, want %v", got, more, err, want)
	}
}

// tryKubectl runs the kubectl of the control plane against the test's API server and returns
// what it says.
func tryKubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, server.env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(server.env.BinaryAssetsDirectory, "kubectl"), append([]string{"--kubeconfig", config}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// kubectl runs kubectl and returns its words, split at two spaces.
func kubectl(t *testing.T, args ...string) [][]string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	var rows [][]string
	for line := range strings.Lines(out) {
		var cells []string
		for cell := range strings.SplitSeq(line, "  ") {
			if cell = strings.TrimSpace(cell); cell != "" {
				cells = append(cells, cell)
			}
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestKubectlShowsTheStory(t *testing.T) {
	ns := namespace(t)
	createIn(t, ns, "one", "  workloadClass: batch", `
status:
  observedGeneration: 1
  phase: Failed
  tenant: acme
  progress: 3/5
  fence: 17
  lock: {leaseID: x, holder: manager-0}
  policy: {name: payments, generation: 4}
  checkpoint: {mode: Coalesced, lagMillis: 80}
  conditions: [{type: Succeeded, status: "False", reason: StepFailed, message: step b failed, lastTransitionTime: "2026-11-20T10:00:00Z"}]
`)
	want := map[string][][]string{
		"wfr": {
			{"NAME", "PHASE", "STEPS", "TENANT", "CLASS", "REASON", "AGE"},
			{"one", "Failed", "3/5", "acme", "batch", "StepFailed", "age"},
		},
		"wide": {
			{"NAME", "PHASE", "STEPS", "TENANT", "CLASS", "REASON", "AGE", "FENCE", "POLICY", "HOLDER", "LAG", "MESSAGE"},
			{"one", "Failed", "3/5", "acme", "batch", "StepFailed", "age", "17", "payments", "manager-0", "80", "step b failed"},
		},
	}
	got := map[string][][]string{
		"wfr":  kubectl(t, "get", "wfr", "-n", ns),
		"wide": kubectl(t, "get", "wfr", "-n", ns, "-o", "wide"),
	}
	for _, rows := range got {
		if len(rows) == 2 && len(rows[1]) > 6 {
			rows[1][6] = "age"
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubectl get (-want +got):\n%s", diff)
	}
	if rows := kubectl(t, "get", "syncopate", "-n", ns, "--no-headers", "-o", "name"); len(rows) == 0 {
		t.Error("the category syncopate lists nothing")
	}
	kubectl(t, "wait", "--for=jsonpath={.status.phase}=Failed", "-n", ns, "wfr/one", "--timeout=5s")
	kubectl(t, "wait", "--for=condition=Succeeded=false", "-n", ns, "wfr/one", "--timeout=5s")
}

// What spec says need not be in force: it may be tried, or was taken back.
//
// mutation: a column that is of spec.runLock makes this fail.
func TestKubectlShowsPolicies(t *testing.T) {
	o := mustCreate(t, aPolicy("  runLock: {scope: Run, renewal: {onFailure: Continue}}"))
	age := func(rows [][]string) [][]string {
		for i, cell := range rows[0] {
			if cell == "AGE" && len(rows) == 2 && len(rows[1]) > i {
				rows[1][i] = "age"
			}
		}
		return rows
	}
	columns := []string{"NAME", "CLASSES", "SCOPE", "TTL", "ONFAILURE", "WAIT", "RETRY", "RUNS", "READY", "REASON", "ROLLEDOUT", "AGE"}
	// Before the operator has looked at it the table has holes, and kubectl prints nothing there.
	got := age(kubectl(t, "get", "lockpol", o.GetName()))
	want := [][]string{columns, {o.GetName(), "age"}}
	if len(got) == 2 && len(got[1]) == 2 {
		got[1][1] = "age"
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kubectl get lockpol of a new policy (-want +got):\n%s", diff)
	}

	err := patchStatus(t, o, `
status:
  conditions:
  - {type: Ready, status: "False", reason: ClassConflict, message: m, lastTransitionTime: "2026-11-20T10:00:00Z"}
  - {type: RolledOut, status: "False", reason: BusyRunsWorse, message: m, lastTransitionTime: "2026-11-20T10:00:00Z"}
  effective:
    classes: "batch, nightly"
    scope: Activation
    ttlSeconds: 60
    onFailure: Fence
    waitMode: Poll
    renewIntervalMillis: 10000
    marginMillis: 3300
    validityMillis: 26700
    busyRetryDelay: 350-650ms
  runs: {admitted: 40, queued: 0}
  contention:
    busyRetriesPerMinute: 1200
    p95LockWaitMillis: 480
    p99LockWaitMillis: 910
    paths: [{path: reconcile, busyRetriesPerMinute: 1200, p95LockWaitMillis: 480}, {path: admission, busyRetriesPerMinute: 27897}]
`)
	if err != nil {
		t.Fatal(err)
	}
	row := []string{o.GetName(), "batch, nightly", "Activation", "60", "Fence", "Poll", "350-650ms", "40", "False", "ClassConflict", "False", "age"}
	if diff := cmp.Diff([][]string{columns, row}, age(kubectl(t, "get", "lockpol", o.GetName()))); diff != "" {
		t.Errorf("kubectl get lockpol (-want +got):\n%s", diff)
	}
	wide := [][]string{append(columns, "VALIDITY", "QUEUED", "BUSY/MIN", "P95WAIT", "P99WAIT", "ADMBUSY/MIN"), append(row, "26700", "0", "1200", "480", "910", "27897")}
	if diff := cmp.Diff(wide, age(kubectl(t, "get", "lockpol", o.GetName(), "-o", "wide"))); diff != "" {
		t.Errorf("kubectl get lockpol -o wide (-want +got):\n%s", diff)
	}
}
