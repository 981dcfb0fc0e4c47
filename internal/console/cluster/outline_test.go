// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

var outlineNow = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// outlined are runs that hold locks and wait for some, in each way that there is.
func outlined() []v1alpha1.WorkflowRun {
	at := metav1.NewTime(outlineNow.Add(-time.Hour))
	pool := func(permits int32) v1alpha1.LockRequest {
		return v1alpha1.LockRequest{Semaphore: "pool", Permits: &permits}
	}
	holds := func(permits int32) []v1alpha1.LockHold {
		return []v1alpha1.LockHold{{Name: "pool/", Permits: permits, Fence: 7}}
	}
	waits := &v1alpha1.LocksWait{Lock: "pool/", StartedAt: at}
	run := func(name string) v1alpha1.WorkflowRun {
		r := v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "uid-1", CreationTimestamp: at}}
		r.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Admission: &v1alpha1.AdmissionStatus{QueuedAt: &at}}
		r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonRunning}}
		return r
	}
	asleep, asks, waiter, steps, items := run("asleep"), run("asks"), run("waiter"), run("steps"), run("items")
	asleep.Spec.Suspend, asleep.Spec.Locks, asleep.Status.Locks = true, []v1alpha1.LockRequest{pool(2)}, holds(2)
	asks.Status.Locks = holds(1)
	asks.Status.Steps = []v1alpha1.StepStatus{{Name: "other", Phase: v1alpha1.StepRunning}, {Name: "sign", Phase: v1alpha1.StepWaiting}}
	waiter.Spec.Locks, waiter.Status.Admission.LockWait = []v1alpha1.LockRequest{{Mutex: "deploy"}, pool(3)}, waits
	waiter.Spec.Priority = 5
	steps.Spec.Finally = []v1alpha1.Step{{Name: "tidy", Locks: []v1alpha1.LockRequest{pool(2)}}}
	steps.Spec.Shutdown = v1alpha1.ShutdownCancel
	steps.Status.Steps = []v1alpha1.StepStatus{{Name: "tidy", Phase: v1alpha1.StepPending, LockWait: waits}}
	items.Spec.Steps = []v1alpha1.Step{{Name: "each", ForEach: &v1alpha1.ForEach{Locks: []v1alpha1.LockRequest{pool(4)}}}}
	items.Status.Steps = []v1alpha1.StepStatus{{Name: "each", Phase: v1alpha1.StepRunning, ForEach: &v1alpha1.ForEachStatus{
		Groups: []v1alpha1.ItemGroup{{Items: "1", Phase: v1alpha1.StepDispatched}},
		Locks:  []v1alpha1.ItemLocks{{Item: 1, Locks: holds(1)}, {Item: 2, LockWait: waits}},
	}}}
	return []v1alpha1.WorkflowRun{asleep, asks, waiter, steps, items}
}

// mutation: an outline that leaves out anything of what it keeps of locks, of conditions or of
// wishes makes this fail.
func TestOutlinesTellAsMuchOfLocksAsWholeRuns(t *testing.T) {
	t.Parallel()
	whole := outlined()
	var outlines []v1alpha1.WorkflowRun
	for i := range whole {
		raw, err := json.Marshal(&whole[i])
		if err != nil {
			t.Fatal(err)
		}
		var o outline
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		outlines = append(outlines, o.run())
	}
	told := func(runs []v1alpha1.WorkflowRun) string {
		semaphores := []v1alpha1.Semaphore{{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: v1alpha1.SemaphoreSpec{Permits: 5}}}
		raw, err := json.MarshalIndent(runview.Locks(runview.LockSight{Runs: runs, Semaphores: semaphores, Whole: true, Now: outlineNow}), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	want := told(whole)
	for _, part := range []string{"is suspended, and keeps it", "waits for an approval", `"permits": 4`, `"doing": "Dispatched"`, "mutex:team/deploy"} {
		if !strings.Contains(want, part) {
			t.Errorf("the test does not try %q:\n%s", part, want)
		}
	}
	if got := told(outlines); got != want {
		t.Errorf("outlines tell\n%s\nand whole runs\n%s", got, want)
	}
}

// locksAPI is an API server whose runs never end, and have 5,000 items with locks each.
type locksAPI struct{ run string }

func (a locksAPI) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"kind":"WorkflowRunList","items":[%s],"metadata":{"continue":"next"}}`, a.run)
}

// mutation: underWay that does not weigh what it keeps reads 100 pages.
func TestOutlinesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	item := `{"item":1,"locks":[{"name":"pool/a","permits":1,"fence":1}]}`
	h := httptest.NewServer(locksAPI{`{"status":{"phase":"Running","steps":[{"name":"a","forEach":{"locks":[` + strings.Repeat(item+",", 4999) + item + `]}}]}}`})
	defer h.Close()
	v, err := NewView(&rest.Config{Host: h.URL, QPS: -1}, h.Client(), "")
	if err != nil {
		t.Fatal(err)
	}
	err = v.UnderWay(t.Context(), "", func(runs []v1alpha1.WorkflowRun, more bool) {
		if weight := len(runs) * reads.WeightOf(&runs[0]); !more || weight < maxWeight || weight > maxWeight+reads.WeightOf(&runs[0]) {
			t.Errorf("%d runs of %d bytes, more: %t", len(runs), reads.WeightOf(&runs[0]), more)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// mutation: weightOfItems that does not weigh the ranges makes this fail.
func TestRangesOfItemsAreWeighed(t *testing.T) {
	t.Parallel()
	run := &v1alpha1.WorkflowRun{Status: &v1alpha1.WorkflowRunStatus{Steps: []v1alpha1.StepStatus{{ForEach: &v1alpha1.ForEachStatus{}}}}}
	for range 7 {
		f := run.Status.Steps[0].ForEach
		f.Groups = append(f.Groups, v1alpha1.ItemGroup{Items: strings.Repeat("1,", 4096)})
	}
	if got := reads.WeightOf(run); got < 7*8192 {
		t.Errorf("%d bytes", got)
	}
}

// mutation: eachOf that takes the end of an answer for that of its list makes this fail.
func TestAListThatIsCutIsNoList(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"items":[{"metadata":{"name":"a"}},`, `{"items":[{"metadata":{"name":"a"}}]`, `{"items":{}}`, `[]`, ``} {
		d := json.NewDecoder(strings.NewReader(text))
		if err := eachOf(d, '{', func() error { return field(d, &metav1.ListMeta{}, func(*outline) bool { return true }) }); err == nil {
			t.Errorf("%q is a list", text)
		}
	}
}
