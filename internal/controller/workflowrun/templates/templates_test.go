// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// counted counts which revisions are read whole.
type counted struct {
	*revisions.Store
	loads int
}

func (c *counted) Load(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, int, error) {
	c.loads++
	return c.Store.Load(ctx, namespace, r)
}

// report is a Workflow with a parameter that has to be a region, and a default.
func report(revision string) *v1alpha1.Workflow {
	w := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "report", Generation: 1}, Spec: v1alpha1.WorkflowSpec{
		Parameters: []v1alpha1.Parameter{{Name: "region", Pattern: "^eu"}, {Name: "count", Default: rawOf(`"3"`)}},
		Template:   v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: "t"}}}},
	}}
	if revision != "" {
		w.Status = &v1alpha1.WorkflowStatus{ObservedGeneration: 1, Revision: revision}
	}
	return w
}

func rawOf(text string) *k8sruntime.RawExtension { return &k8sruntime.RawExtension{Raw: []byte(text)} }

// world is a cluster with the Workflow and its revision.
func world(t *testing.T) (t1 *Templates, store *counted, c client.Client, revision string) {
	t.Helper()
	scheme := k8sruntime.NewScheme()
	if err := appsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(report("")).Build()
	store = &counted{Store: &revisions.Store{Live: c, Client: c, Owner: "test"}}
	content, err := store.Ensure(t.Context(), report(""))
	if err != nil {
		t.Fatal(err)
	}
	return New(c, store, testclock.NewFakePassiveClock(time.Unix(0, 0)), MaxBytes), store, c, content.Revision
}

func following(revision, inputs string) *v1alpha1.WorkflowRun {
	return &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "run"}, Spec: v1alpha1.WorkflowRunSpec{
		WorkflowRef: &v1alpha1.WorkflowReference{Name: "report", Revision: revision}, Inputs: rawOf(inputs),
	}}
}

// A pass over a run under way took 14 s for its inputs, which had been checked.
//
// mutations: inputs of each run are checked; those of none are; what is checked depends on
// status.workflow alone, which a status without steps may have.
func TestOf_InputsAreCheckedUntilTheRunIsInitialized(t *testing.T) {
	templates, _, _, revision := world(t)
	pinned := &v1alpha1.WorkflowRevision{Name: "report", Revision: revision}
	for name, c := range map[string]struct {
		status *v1alpha1.WorkflowRunStatus
		checks bool
	}{
		"at first sight":     {nil, true},
		"pinned, no steps":   {&v1alpha1.WorkflowRunStatus{Workflow: pinned}, true},
		"pinned, with steps": {&v1alpha1.WorkflowRunStatus{Workflow: pinned, Steps: []v1alpha1.StepStatus{{Name: "fetch"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			run := following("", `{"region":"us"}`)
			run.Status = c.status
			is, err := templates.Of(t.Context(), run)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(is.Template.Problems) > 0; got != c.checks {
				t.Errorf("problems are %q", is.Template.Problems)
			}
			if got := is.Template.Inputs != nil; got != c.checks {
				t.Errorf("it may read %q", is.Template.Inputs)
			}
			if got := string(is.Run.Spec.Inputs.Raw); !c.checks && got != `{"count":"3","region":"us"}` {
				t.Errorf("its inputs are %s", got)
			}
		})
	}
}

// A revision that runs name was read and decoded in each pass before its run was pinned.
//
// mutations: Named that loads each time, or does not ask whether the revision exists.
func TestOf_ANamedRevisionIsReadOnceAndLookedForEachTime(t *testing.T) {
	templates, store, c, revision := world(t)
	for range 3 {
		is, err := templates.Of(t.Context(), following(revision, `{"region":"eu"}`))
		if err != nil || is.Template.Revision == nil || is.Template.Revision.Revision != revision {
			t.Fatalf("found %+v, %v", is.Template, err)
		}
	}
	if store.loads != 1 {
		t.Errorf("read %d times", store.loads)
	}
	other := report("")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	other.Spec.Parameters = nil
	if err := c.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: template.ObjectName("report", revision)}}); err != nil {
		t.Fatal(err)
	}
	is, err := templates.Of(t.Context(), following(revision, `{"region":"eu"}`))
	if err != nil || !strings.Contains(is.Template.Missing, "has no revision "+revision) {
		t.Errorf("a revision that was deleted: %+v, %v", is.Template, err)
	}
}

// gone is the world without the revision, whose Workflow has other content now.
func gone(t *testing.T) (templates *Templates, c client.Client, clock *testclock.FakePassiveClock, run *v1alpha1.WorkflowRun) {
	t.Helper()
	_, store, c, revision := world(t)
	clock = testclock.NewFakePassiveClock(time.Unix(0, 0))
	run = following("", `{"region":"eu"}`)
	run.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: revision}, Steps: []v1alpha1.StepStatus{{Name: "fetch"}}}
	w := report("")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	w.Spec.Parameters = nil
	if err := c.Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: template.ObjectName("report", revision)}}); err != nil {
		t.Fatal(err)
	}
	return New(c, store, clock, MaxBytes), c, clock, run
}

// One answer that a revision is not there ended the run that follows it, without its clean-up.
//
// mutations: miss that believes at once, or never, or counts from a look of long ago; a run that is
// found, or forgotten, and stays doubted.
func TestOf_ARevisionIsNotGoneByOneAnswer(t *testing.T) {
	templates, c, clock, run := gone(t)
	key := client.ObjectKeyFromObject(run)
	look := func(after time.Duration, lost bool) {
		t.Helper()
		clock.SetTime(clock.Now().Add(after))
		is, err := templates.Of(t.Context(), run)
		switch {
		case lost && (err != nil || !strings.Contains(is.Template.Missing, "was deleted") || is.Template.Patient || len(is.Run.Spec.Steps) != 1):
			t.Errorf("%+v, %v; want that it was deleted", is.Template, err)
		case !lost && !errors.Is(err, errDoubted):
			t.Errorf("%+v, %v; want a doubt", is.Template, err)
		}
	}
	look(0, false)
	look(doubtTime-time.Millisecond, false)
	look(time.Millisecond, true)
	look(0, true)
	look(doubtLasts+time.Second, false) // it may have been there meanwhile
	look(doubtTime, true)
	templates.Forget(key, "another")
	look(0, true)
	templates.Forget(key, run.UID)
	look(0, false)
	templates.Forget(key, run.UID)
	run.UID = "another"
	look(doubtTime, false)
	w := report("")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	w.Spec = report("").Spec
	if err := c.Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(clock.Now().Add(doubtTime))
	if is, err := templates.Of(t.Context(), run); err != nil || is.Template.Revision == nil {
		t.Errorf("%+v, %v; want that it is made again", is.Template, err)
	}
	if n := len(templates.doubts.runs); n != 0 {
		t.Errorf("%d runs are doubted", n)
	}
}

// A tombstone and a run of its name had the doubt of the other begin anew, without an end.
//
// mutations: doubts, or those that wait, by the name alone; doubts that are kept for good of runs
// that nobody forgets.
func TestOf_RunsOfOneNameHaveDoubtsOfTheirOwn(t *testing.T) {
	templates, _, clock, run := gone(t)
	run.UID = "first"
	next := following("", `{"region":"eu"}`)
	next.UID, next.Spec.WorkflowRef.Name = "next", "nowhere"
	look := func(lost bool) {
		t.Helper()
		if _, err := templates.Of(t.Context(), run); (err == nil) != lost {
			t.Errorf("%v; want that it is lost: %t", err, lost)
		}
		if is, err := templates.Of(t.Context(), next); err != nil || is.Template.Patient == lost {
			t.Errorf("the next one: %+v, %v; want that it is lost: %t", is.Template, err, lost)
		}
	}
	clock.SetTime(time.Unix(3600, 0))
	look(false)
	clock.SetTime(clock.Now().Add(doubtTime))
	look(true)
	key, nowhere := client.ObjectKeyFromObject(run), client.ObjectKey{Namespace: "team", Name: "nowhere"}
	templates.Forget(key, run.UID)
	if waiting := templates.WaitingFor(nowhere); len(waiting) != 1 {
		t.Errorf("%v wait; want the next run", waiting)
	}
	next.UID, next.Spec.WorkflowRef.Name = "third", "elsewhere"
	third, err := templates.Of(t.Context(), next)
	if waiting := templates.WaitingFor(nowhere); err != nil || len(waiting) != 0 || !third.Template.Patient {
		t.Errorf("%+v, %v; %v wait for a Workflow that nobody follows any more", third.Template, err, waiting)
	}
	clock.SetTime(clock.Now().Add(2 * doubtLasts))
	if _, err := templates.Of(t.Context(), run); err == nil || len(templates.doubts.runs) != 1 {
		t.Errorf("%v; of %d runs there are doubts, and of one they say something", err, len(templates.doubts.runs))
	}
}

// A run that cannot have its revision again has as much of its steps as its status tells, once it
// is sure that the revision is gone.
//
// mutation: lost that gives the refusal as an error for good.
func TestOf_ARevisionThatIsRefusedIsNoEndOfARun(t *testing.T) {
	templates, c, clock, run := gone(t)
	w := report("")
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	w.Spec = report("").Spec
	if err := c.Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	full := apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", errors.New("exceeded quota"))
	store, ok := templates.store.(*counted)
	if !ok {
		t.Fatalf("%T", templates.store)
	}
	templates.store = refuses{store, full}
	if is, err := templates.Of(t.Context(), run); !errors.Is(err, full) || !errors.Is(err, revisions.ErrGone) {
		t.Errorf("at first: %+v, %v", is.Template, err)
	}
	clock.SetTime(clock.Now().Add(doubtTime))
	is, err := templates.Of(t.Context(), run)
	if err != nil || !errors.Is(is.Refused, full) || !is.Template.Patient || !strings.Contains(is.Template.Missing, "cannot be had") || len(is.Run.Spec.Steps) != 1 {
		t.Errorf("%+v, refused %v, %v", is.Template, is.Refused, err)
	}
}

// A run that was created while nobody was there is looked at when its patience is over already.
//
// mutation: missed that gives what it is told.
func TestOf_AWorkflowIsNotGoneByOneAnswer(t *testing.T) {
	_, store, c, _ := world(t)
	clock := testclock.NewFakePassiveClock(time.Unix(3600, 0))
	templates := New(c, store, clock, MaxBytes)
	for name, ref := range map[string]v1alpha1.WorkflowReference{"no Workflow": {Name: "other"}, "no revision": {Name: "report", Revision: "0c1f"}} {
		run := following("", `{"region":"eu"}`)
		run.Name, run.UID, run.Spec.WorkflowRef, run.CreationTimestamp = ref.Name, types.UID(ref.Name), &ref, metav1.Unix(0, 0)
		is, err := templates.Of(t.Context(), run)
		if err != nil || is.Template.Missing == "" || !is.Template.Patient || !is.RetryAt.Equal(clock.Now().Add(doubtPause)) {
			t.Errorf("%s, at first: %+v at %s, %v", name, is.Template, is.RetryAt, err)
		}
		run.CreationTimestamp = metav1.NewTime(clock.Now())
		if is, err := templates.Of(t.Context(), run); err != nil || is.Template.Missing == "" || is.Template.Patient {
			t.Errorf("%s, of a young run: %+v, %v", name, is.Template, err)
		}
		run.CreationTimestamp = metav1.Unix(0, 0)
		clock.SetTime(clock.Now().Add(doubtTime))
		if is, err := templates.Of(t.Context(), run); err != nil || is.Template.Missing == "" || is.Template.Patient {
			t.Errorf("%s, in the end: %+v, %v", name, is.Template, err)
		}
	}
}

// A mark may stay for a while, of an operator that ended say: the revision is there all the same.
//
// mutations: a run that is not patient; one that is not looked at again.
func TestOf_ARunWaitsWhileItsRevisionMayBeDeleted(t *testing.T) {
	templates, _, c, revision := world(t)
	w := report(revision)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
		t.Fatal(err)
	}
	w.Status = &v1alpha1.WorkflowStatus{ObservedGeneration: w.Generation, Revision: revision, Retiring: []string{revision}}
	if err := c.Update(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	is, err := templates.Of(t.Context(), following(revision, `{"region":"eu"}`))
	if err != nil || !is.Template.Patient || !strings.Contains(is.Template.Missing, "is about to be deleted") || !is.RetryAt.Equal(time.Unix(0, 0).Add(retiringPause)) {
		t.Errorf("%+v at %s, %v", is.Template, is.RetryAt, err)
	}
}

// refuses is a store whose revisions the API server refuses.
type refuses struct {
	*counted
	with error
}

func (r refuses) Ensure(context.Context, *v1alpha1.Workflow) (*template.Content, error) {
	return nil, fmt.Errorf("keep revision: %w", r.with)
}

// A quota of the namespace that was full kept runs without any status: nothing told why, and they
// could not be cancelled.
//
// mutations: resolve that gives a refusal on as an error, or an outage as a refusal.
func TestOf_ARunSaysThatItsRevisionCannotBeKept(t *testing.T) {
	kind := appsv1.SchemeGroupVersion.WithKind("ControllerRevision").GroupKind()
	for name, c := range map[string]struct {
		with  error
		waits bool
	}{
		"a full quota": {apierrors.NewForbidden(appsv1.Resource("controllerrevisions"), "r", errors.New("exceeded quota")), true},
		"a policy":     {apierrors.NewInvalid(kind, "r", nil), true},
		"a webhook":    {apierrors.NewBadRequest("no"), true},
		"an outage":    {apierrors.NewInternalError(errors.New("no")), false},
	} {
		t.Run(name, func(t *testing.T) {
			templates, store, _, _ := world(t)
			templates.store = refuses{store, c.with}
			is, err := templates.Of(t.Context(), following("", `{"region":"eu"}`))
			if !c.waits {
				if err == nil {
					t.Errorf("%+v", is.Template)
				}
				return
			}
			if err != nil || !is.Template.Patient || !strings.Contains(is.Template.Missing, "cannot be kept; keep revision: "+c.with.Error()) || !is.RetryAt.Equal(time.Unix(0, 0).Add(refusedPause)) {
				t.Errorf("%+v at %s, %v", is.Template, is.RetryAt, err)
			}
		})
	}
}

// What is kept of a revision is what the cache counts, whatever its patterns are: compiled they
// took 89 MiB, where 112 KiB were counted.
//
// mutation: Content that keeps its patterns.
func TestCache_CountsWhatARevisionTakes(t *testing.T) {
	w := report("")
	w.Spec.Parameters = nil
	for i := range 30 {
		w.Spec.Parameters = append(w.Spec.Parameters, v1alpha1.Parameter{Name: fmt.Sprint("p", i), Pattern: `^\pL{110}$`})
	}
	data, revision, err := template.Encode(&w.Spec)
	if err != nil {
		t.Fatal(err)
	}
	const n = 4
	var kept [n]*template.Content
	before := heap()
	for i := range kept {
		if kept[i], err = template.Decode("report", revision, data); err != nil {
			t.Fatal(err)
		}
		if problems := kept[i].Problems(); problems != nil {
			t.Fatal(problems)
		}
		kept[i].Inputs(rawOf(`{"p0":"abc"}`))
	}
	took := heap() - before
	runtime.KeepAlive(kept)
	if counted := int64(n * len(data) * decodedFactor); took > counted {
		t.Errorf("%d bytes, of which %d are counted", took, counted)
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
