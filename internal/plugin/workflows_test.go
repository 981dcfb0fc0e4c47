// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// reportOf is a Workflow of a version, and its revision.
func reportOf(t *testing.T, topic string, created int64) (*v1alpha1.Workflow, *appsv1.ControllerRevision, string) {
	t.Helper()
	w := &v1alpha1.Workflow{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "report"}, Spec: v1alpha1.WorkflowSpec{
		Parameters: []v1alpha1.Parameter{{Name: "region"}, {Name: "count", Type: v1alpha1.ParameterInteger}},
		Template:   v1alpha1.WorkflowTemplate{Steps: []v1alpha1.Step{{Name: "fetch", Job: &v1alpha1.Job{Topic: topic}}}},
	}}
	data, revision, err := template.Encode(&w.Spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Status = &v1alpha1.WorkflowStatus{Revision: revision}
	return w, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team-a", Name: template.ObjectName("report", revision), CreationTimestamp: metav1.Unix(created, 0),
		Labels:      map[string]string{v1alpha1.LabelWorkflow: "report"},
		Annotations: map[string]string{v1alpha1.AnnotationWorkflowUID: "u"},
	}, Data: runtime.RawExtension{Raw: data}}, revision
}

// starter is a cluster in which runs are created, and end in a phase.
type starter struct {
	*plugin
	made  []v1alpha1.WorkflowRun
	raw   []map[string]any // those that were made with fields of any version
	novel map[string]any   // fields of the spec of each run that this version does not know
	// replaced is the UID of the run that has the name by the second read; "": none.
	replaced types.UID
	phase    v1alpha1.RunPhase
	large    bool    // its outputs are in the object store
	hidden   bool    // Workflows may not be seen
	unread   error   // what reads of revisions get; nil: what is there
	unlisted error   // what lists of revisions get; nil: what is there
	down     []error // what reads of runs get first; nil: what is there
	since    string  // of which version lists are
	poor     bool    // runs may not be listed
	watch    func(o *client.ListOptions) (watch.Interface, error)
}

func newStarter(t *testing.T, objects ...client.Object) *starter {
	t.Helper()
	s := &starter{plugin: newPlugin(t)}
	c := fakeCluster(t, objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key types.NamespacedName, o client.Object, opts ...client.GetOption) error {
			is := isRun(o)
			if err := s.fault(is); err != nil {
				return err
			}
			if !is && s.hidden {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "workflows"}, key.Name, errors.New("no"))
			}
			if isRevision(o) && s.unread != nil {
				return s.unread
			}
			return s.withNovel(o, c.Get(ctx, key, o, opts...))
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			runs, is := list.(*v1alpha1.WorkflowRunList)
			if is && s.poor {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "workflowruns"}, "", errors.New("no"))
			}
			if isRevision(list) && s.unlisted != nil {
				return s.unlisted
			}
			err := s.fault(is)
			if err == nil {
				err = c.List(ctx, list, opts...)
			}
			if is && s.since != "" {
				runs.ResourceVersion = s.since
			}
			return client.IgnoreNotFound(err) // a list of none
		},
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			return s.watch((&client.ListOptions{}).ApplyOptions(opts))
		},
		Create: s.create,
	}).Build()
	s.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	return s
}

// isRun says whether an object is a run, of this version or of any.
func isRun(o client.Object) bool {
	_, is := o.(*v1alpha1.WorkflowRun)
	u, loose := o.(*unstructured.Unstructured)
	return is || loose && u.GetKind() == "WorkflowRun"
}

// isRevision says whether something is a revision, or a list of them, as a whole or its metadata.
func isRevision(o runtime.Object) bool {
	_, is := o.(*appsv1.ControllerRevision)
	return is || strings.HasPrefix(o.GetObjectKind().GroupVersionKind().Kind, "ControllerRevision")
}

// withNovel gives a run that was read as of any version the fields that this one does not know.
func (s *starter) withNovel(o client.Object, err error) error {
	u, loose := o.(*unstructured.Unstructured)
	if err != nil || !loose {
		return err
	}
	if s.replaced != "" {
		u.SetUID(s.replaced)
	}
	spec, _ := u.Object["spec"].(map[string]any)
	maps.Copy(spec, s.novel)
	return nil
}

func (s *starter) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	if !isRun(o) {
		return c.Create(ctx, o, opts...)
	}
	u, loose := o.(*unstructured.Unstructured)
	if !loose {
		run, _ := o.(*v1alpha1.WorkflowRun)
		return s.store(ctx, c, run, opts...)
	}
	s.raw = append(s.raw, u.DeepCopy().Object)
	run := &v1alpha1.WorkflowRun{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, run); err != nil {
		return err
	}
	err := s.store(ctx, c, run, opts...)
	u.SetName(run.Name)
	u.SetUID(run.UID)
	u.SetResourceVersion(run.ResourceVersion)
	return err
}

// store stores a run, which ends.
func (s *starter) store(ctx context.Context, c client.WithWatch, run *v1alpha1.WorkflowRun, opts ...client.CreateOption) error {
	if run.Name == "" {
		run.Name = run.GenerateName + "new"
	}
	run.UID = "u-new"
	s.made = append(s.made, *run.DeepCopy())
	stored := run.DeepCopy()
	switch {
	case s.large:
		stored.Status = &v1alpha1.WorkflowRunStatus{
			Phase: s.phase, CompletedAt: new(metav1.Unix(1, 0)), OutputsRef: &v1alpha1.OutputReference{Name: "o/\x1b1", Size: 300000},
		}
	case s.phase != "":
		stored.Status = &v1alpha1.WorkflowRunStatus{
			Phase: s.phase, CompletedAt: new(metav1.Unix(1, 0)), Outputs: &runtime.RawExtension{Raw: []byte(`{"url":"x"}`)},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: "Because", Message: "of that"}},
		}
	}
	err := c.Create(ctx, stored, opts...)
	run.ResourceVersion = stored.ResourceVersion
	return err
}

// fault is what a read of a run gets.
func (s *starter) fault(is bool) error {
	if !is || len(s.down) == 0 {
		return nil
	}
	err := s.down[0]
	s.down = s.down[1:]
	return err
}

func TestSubmit_MakesInputsOfWhatIsGiven(t *testing.T) {
	for name, c := range map[string]struct {
		given  []string
		hidden bool
		inputs string
		fails  string
	}{
		"none":                       {nil, false, "", ""},
		"text that looks like JSON":  {[]string{"region=3"}, false, `{"region":"3"}`, ""},
		"a number":                   {[]string{"count=3"}, false, `{"count":3}`, ""},
		"no number":                  {[]string{"count=three"}, false, "", `"three" is not JSON, and the parameter is of type integer`},
		"JSON in any case":           {[]string{"region:=[1]", "count=1"}, false, `{"count":1,"region":[1]}`, ""},
		"no JSON":                    {[]string{"region:={"}, false, "", `"{" is not JSON`},
		"an equals sign":             {[]string{"region=a=b"}, false, `{"region":"a=b"}`, ""},
		"twice":                      {[]string{"region=a", "region:=1"}, false, "", "region is given twice"},
		"no name":                    {[]string{"=a"}, false, "", "need NAME=VALUE"},
		"no value":                   {[]string{"region"}, false, "", "need NAME=VALUE"},
		"unknown: for the server":    {[]string{"x=1"}, false, `{"x":"1"}`, ""},
		"hidden, JSON":               {[]string{"count=3"}, true, `{"count":3}`, ""},
		"hidden, text":               {[]string{"region=eu"}, true, `{"region":"eu"}`, ""},
		"hidden, text that is asked": {[]string{`region:="3"`}, true, `{"region":"3"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, r, _ := reportOf(t, "t", 1)
			s := newStarter(t, w, r)
			s.hidden = c.hidden
			line := []string{"submit", "report", "--class", "batch"}
			for _, one := range c.given {
				line = append(line, "--input", one)
			}
			out, _, err := s.call(line...)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || len(s.made) > 0 {
					t.Fatalf("%v, made %d", err, len(s.made))
				}
				return
			}
			if err != nil || out != "workflowrun.syncopate.dev/report-new created\n" || len(s.made) != 1 {
				t.Fatalf("%v: %q", err, out)
			}
			got := s.made[0].Spec
			if got.WorkloadClass != "batch" || *got.WorkflowRef != (v1alpha1.WorkflowReference{Name: "report"}) {
				t.Errorf("%+v", got)
			}
			if (got.Inputs == nil) != (c.inputs == "") || got.Inputs != nil && string(got.Inputs.Raw) != c.inputs {
				t.Errorf("inputs %s", got.Inputs)
			}
		})
	}
}

func TestSubmit_WaitsForTheEnd(t *testing.T) {
	w, r, revision := reportOf(t, "t", 1)
	s := newStarter(t, w, r)
	s.phase = v1alpha1.RunSucceeded
	out := s.must("submit", "report", "--wait", "--name", "mine", "--revision", revision[:4])
	if want := "workflowrun.syncopate.dev/mine created\nrun mine succeeded\n{\"url\":\"x\"}\n"; out != want {
		t.Errorf("%q", out)
	}
	if got := s.made[0].Spec.WorkflowRef.Revision; got != revision {
		t.Errorf("revision %q", got)
	}
	s.phase = v1alpha1.RunFailed
	if _, _, err := s.call("submit", "report", "--wait", "--name", "other"); err == nil || err.Error() != "run other ended as Failed (Because): of that" {
		t.Errorf("%v", err)
	}
	s.phase = ""
	if _, _, err := s.call("submit", "report", "--wait", "--timeout", "1ms", "--name", "slow"); err == nil || !strings.Contains(err.Error(), "has not ended after 1ms (--timeout), and goes on") {
		t.Errorf("%v", err)
	}
	for _, line := range [][]string{{"submit", "report", "--timeout", "0s"}, {"submit"}} {
		if _, _, err := s.call(line...); err == nil {
			t.Errorf("%v: no error", line)
		}
	}
	if _, _, err := s.call("submit", "nothing"); !apierrors.IsNotFound(err) {
		t.Errorf("%v", err)
	}
	if _, _, err := s.call("submit", "report", "--revision", "zz"); err == nil || !strings.Contains(err.Error(), `0 revisions of workflow report begin with "zz"`) {
		t.Errorf("%v", err)
	}
}

// mutation: awaitEnd that takes outputs in the object store for none makes this fail.
func TestSubmit_SaysWhereLargeOutputsAre(t *testing.T) {
	w, r, _ := reportOf(t, "t", 1)
	s := newStarter(t, w, r)
	s.phase, s.large = v1alpha1.RunSucceeded, true
	out, note, err := s.call("submit", "report", "--wait", "--name", "mine")
	if err != nil || out != "workflowrun.syncopate.dev/mine created\nrun mine succeeded\n" {
		t.Errorf("%q, %v", out, err)
	}
	if want := "The outputs of run mine have 300000 bytes. They are in the object store of NATS, as o/ 1.\n"; note != want {
		t.Errorf("%q, want %q", note, want)
	}
}

// An API server restarts, or hangs for as long as the client waits, while somebody waits for a run.
//
// mutation: a wait that ends with the first question that fails, or that takes a client's time-out
// for its own, makes this fail.
func TestSubmit_WaitsThroughAnOutage(t *testing.T) {
	w, r, _ := reportOf(t, "t", 1)
	down := []error{errors.New("connection refused"), fmt.Errorf("Get: %w", context.DeadlineExceeded), apierrors.NewInternalError(errors.New("ill"))}
	s := newStarter(t, w, r)
	s.phase, s.down = v1alpha1.RunSucceeded, down
	if out := s.must("submit", "report", "--wait", "--name", "mine"); !strings.Contains(out, "run mine succeeded") {
		t.Error(out)
	}
	s.down = slices.Repeat(down[:1], 1000)
	if _, _, err := s.call("submit", "report", "--wait", "--timeout", "1ms", "--name", "slow"); err == nil ||
		err.Error() != "whether run slow has ended after 1ms is not known: run team-a/slow: connection refused" {
		t.Errorf("%v", err)
	}
}

// A run with ttlSecondsAfterFinished 0 is deleted between two questions.
//
// mutations: a wait that takes a run which is gone for failed, one that looks at the events of
// another run, and one that takes any end for a success, make this fail.
func TestSubmit_ARunThatIsDeletedWhenItHasEnded(t *testing.T) {
	ended := func(uid types.UID, phase v1alpha1.RunPhase) watch.Event {
		run := testRun("team-a", "mine", string(uid))
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: phase, Outputs: &runtime.RawExtension{Raw: []byte(`{"url":"x"}`)}}
		if phase != v1alpha1.RunRunning {
			run.Status.CompletedAt = new(metav1.Unix(1, 0))
		}
		return watch.Event{Type: watch.Deleted, Object: run}
	}
	tooOld := apierrors.NewResourceExpired("too old resource version").Status()
	const unknown = `run team-a/mine: workflowruns.syncopate.dev "mine" not found, and whether it had succeeded is not known: `
	for name, c := range map[string]struct {
		events []watch.Event
		refuse error
		out    string
		fails  string
	}{
		"it succeeded": {[]watch.Event{ended("u-before", v1alpha1.RunFailed), ended("u-new", v1alpha1.RunSucceeded)}, nil, "run mine succeeded\n{\"url\":\"x\"}\n", ""},
		"it failed":    {[]watch.Event{ended("u-new", v1alpha1.RunFailed)}, nil, "", "run mine ended as Failed (): "},
		"not ended":    {[]watch.Event{ended("u-new", v1alpha1.RunRunning)}, nil, "", "run mine was deleted before it had ended"},
		"no right":     {nil, apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "", errors.New("no")), "", unknown + `things is forbidden: no`},
		"too late":     {[]watch.Event{{Type: watch.Error, Object: &tooOld}}, nil, "", unknown + "too old resource version"},
		"no end":       {nil, nil, "", unknown + errNoEnd.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			w, r, _ := reportOf(t, "t", 1)
			s := newStarter(t, w, r)
			s.down = []error{apierrors.NewNotFound(schema.GroupResource{Group: "syncopate.dev", Resource: "workflowruns"}, "mine")}
			s.watch = func(o *client.ListOptions) (watch.Interface, error) {
				if o.Namespace != "team-a" || o.FieldSelector.String() != "metadata.name=mine" || o.Raw.ResourceVersion != "1" {
					t.Errorf("watched %+v", o)
				}
				events := watch.NewFakeWithChanSize(len(c.events), false)
				for _, e := range c.events {
					events.Action(e.Type, e.Object)
				}
				events.Stop()
				return events, c.refuse
			}
			out, _, err := s.call("submit", "report", "--wait", "--name", "mine")
			if want := "workflowrun.syncopate.dev/mine created\n" + c.out; out != want {
				t.Errorf("%q, want %q", out, want)
			}
			if (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
				t.Errorf("%v, want %s", err, c.fails)
			}
		})
	}
}

// The API server keeps events for a minute or so, and a step may be at work for longer than that
// before its run ends and is deleted.
//
// mutations: a watch from the run's last write on, and a wait that needs the right to list, make
// this fail.
func TestSubmit_ARunThatWasSilentForLong(t *testing.T) {
	ended := testRun("team-a", "mine", "u-new")
	ended.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunSucceeded, CompletedAt: new(metav1.Unix(1, 0))}
	for name, poor := range map[string]bool{"": false, "no right to list": true} {
		t.Run(name, func(t *testing.T) {
			w, r, _ := reportOf(t, "t", 1)
			s := newStarter(t, w, r)
			s.since, s.poor = "500", poor
			s.down = []error{nil, apierrors.NewNotFound(schema.GroupResource{Group: "syncopate.dev", Resource: "workflowruns"}, "mine")}
			s.watch = func(o *client.ListOptions) (watch.Interface, error) {
				events := watch.NewFakeWithChanSize(1, false)
				if o.Raw.ResourceVersion == "500" {
					events.Delete(ended)
				} else {
					events.Error(new(apierrors.NewResourceExpired("too old resource version").Status()))
				}
				events.Stop()
				return events, nil
			}
			out, _, err := s.call("submit", "report", "--wait", "--name", "mine")
			switch {
			case poor && (err == nil || !strings.Contains(err.Error(), "is not known: too old resource version")):
				t.Errorf("%v", err)
			case !poor && (err != nil || !strings.HasSuffix(out, "run mine succeeded\n")):
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// The current version of the Workflow says nothing of the parameters of another one. Where those
// may not be read, it is as if the Workflow may not.
//
// mutations: inputs by the parameters of the current version make all but its own fail, and a
// revision that cannot be decoded, taken for one that may not be read, the last ones.
func TestSubmit_MakesInputsOfTheRevisionThatIsNamed(t *testing.T) {
	w, r, revision := reportOf(t, "t", 2)
	before := w.DeepCopy()
	before.Spec.Parameters = []v1alpha1.Parameter{{Name: "region", Type: v1alpha1.ParameterArray}, {Name: "count"}}
	data, old, err := template.Encode(&before.Spec)
	if err != nil {
		t.Fatal(err)
	}
	first := r.DeepCopy()
	first.Name, first.CreationTimestamp, first.Data.Raw = template.ObjectName("report", old), metav1.Unix(1, 0), data
	broken := first.DeepCopy()
	broken.Data.Raw = []byte(`{}`)
	revisions := schema.GroupResource{Group: "apps", Resource: "controllerrevisions"}
	forbidden, gone := apierrors.NewForbidden(revisions, "", errors.New("no")), apierrors.NewNotFound(revisions, "")
	for name, c := range map[string]struct {
		first    *appsv1.ControllerRevision
		unread   error
		revision string
		inputs   string
		fails    string
	}{
		"another":                  {first, nil, old[:6], `{"count":"3","region":[1]}`, ""},
		"the current one":          {first, forbidden, revision, `{"count":3,"region":"[1]"}`, ""},
		"the current by a word":    {first, forbidden, "current", `{"count":3,"region":"[1]"}`, ""},
		"one that is unread":       {first, forbidden, old, `{"count":3,"region":[1]}`, ""},
		"one that is broken":       {broken, nil, old, "", "there is no such revision: the content of revision " + old},
		"one that is gone by then": {first, gone, old, "", "ControllerRevision report-" + old + ": there is no such revision"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStarter(t, w, r, c.first)
			s.unread = c.unread
			_, _, err := s.call("submit", "report", "--revision", c.revision, "--input", "count=3", "--input", "region=[1]")
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || len(s.made) > 0 {
					t.Errorf("%v, made %+v", err, s.made)
				}
				return
			}
			if err != nil || len(s.made) != 1 || string(s.made[0].Spec.Inputs.Raw) != c.inputs {
				t.Errorf("%v, made %+v", err, s.made)
			}
		})
	}
}

// mutation: a submit that finds out a revision nobody asked for makes this fail.
func TestSubmit_WithoutARevisionNeedsNone(t *testing.T) {
	w, _, _ := reportOf(t, "t", 1)
	w.Spec.Template.Steps[0].Job.Input = &runtime.RawExtension{Raw: []byte(`{"x":1e999}`)} // of which there is none
	s := newStarter(t, w)
	s.must("submit", "report", "--input", "count=3")
	if len(s.made) != 1 || string(s.made[0].Spec.Inputs.Raw) != `{"count":3}` {
		t.Errorf("made %+v", s.made)
	}
}

func TestRerun_KeepsTheRevision(t *testing.T) {
	w, r, revision := reportOf(t, "t", 1)
	was := testRun("team-a", "was", "u-was")
	was.Spec = v1alpha1.WorkflowRunSpec{
		WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"}, Inputs: &runtime.RawExtension{Raw: []byte(`{"count":1}`)},
		IdempotencyKey: "k", Suspend: true, Shutdown: v1alpha1.ShutdownCancel, Priority: 3,
	}
	was.Status = &v1alpha1.WorkflowRunStatus{Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: "before"}}
	plain := testRun("team-a", "plain", "u-plain")
	child := testRun("team-a", "child", "u-child")
	over := testRun("team-a", "over", "u-over")
	over.Spec.Steps = []v1alpha1.Step{{Name: "wait", Delay: &v1alpha1.Delay{Until: &metav1.Time{Time: time.Date(2026, 11, 20, 10, 9, 59, 0, time.UTC)}}}}
	child.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(plain, v1alpha1.GroupVersion.WithKind("WorkflowRun"))}
	for name, c := range map[string]struct {
		line  []string
		want  string // revision
		fails string
	}{
		"the same":          {[]string{"was"}, "before", ""},
		"the current one":   {[]string{"was", "--revision", "current"}, "", ""},
		"another":           {[]string{"was", "--revision", revision[:6]}, revision, ""},
		"none of that name": {[]string{"was", "--revision", "zz"}, "", "0 revisions"},
		"steps of its own":  {[]string{"plain", "--revision", "zz"}, "", "it has no revision"},
		"a child":           {[]string{"child"}, "", "is a child of run plain"},
		"a delay is over":   {[]string{"over"}, "", "waits until 2026-11-20T10:09:59Z, which has passed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStarter(t, w, r, was, plain, over, child)
			_, _, err := s.call(append([]string{"rerun"}, c.line...)...)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) || len(s.made) > 0 {
					t.Fatalf("%v, made %d", err, len(s.made))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "report", Revision: c.want}, Inputs: was.Spec.Inputs, Priority: 3}
			if diff := cmp.Diff(want, s.made[0].Spec); diff != "" || s.made[0].GenerateName != "was-" {
				t.Errorf("name %s, spec (-want +got):\n%s", s.made[0].GenerateName, diff)
			}
		})
	}
	s := newStarter(t, plain)
	s.must("rerun", "plain")
	if diff := cmp.Diff(plain.Spec, s.made[0].Spec); diff != "" {
		t.Error(diff)
	}
}

// mutations: below that looks at children only, at one of another uid, or at what has ended makes
// this fail.
func TestRerunFromFailedWaitsForTheCleanUpBelow(t *testing.T) {
	ended := func(run *v1alpha1.WorkflowRun, child string) *v1alpha1.WorkflowRun {
		at := metav1.NewTime(time.Unix(1, 0))
		run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunCancelled, CompletedAt: &at, Steps: []v1alpha1.StepStatus{
			{Name: "none", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: "never"}},
			{Name: "sub", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: child, UID: "u-" + child}},
		}}
		return run
	}
	was, middle := ended(testRun("team-a", "was", "u-was"), "middle"), ended(testRun("team-a", "middle", "u-middle"), "leaf")
	busy, over := testRun("team-a", "leaf", "u-leaf"), ended(testRun("team-a", "leaf", "u-leaf"), "was") // no tree
	for name, c := range map[string]struct {
		there []client.Object
		waits bool
	}{
		"one further down is under way": {[]client.Object{was, middle, busy}, true},
		"all ended":                     {[]client.Object{was, middle, over}, false},
		"it is gone":                    {[]client.Object{was}, false},
		"another has its name":          {[]client.Object{was, testRun("team-a", "middle", "u-other")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStarter(t, c.there...)
			_, _, err := s.call("rerun", "was", "--from-failed")
			if c.waits != (err != nil && strings.Contains(err.Error(), "its child run leaf is at its clean-up")) || c.waits == (len(s.made) > 0) {
				t.Errorf("%v, made %d", err, len(s.made))
			}
		})
	}
}

func TestDiff_ShowsWhatChanged(t *testing.T) {
	_, first, one := reportOf(t, "t.one", 1)
	w, second, two := reportOf(t, "t.two", 2)
	s := newStarter(t, w, first, second)
	out := s.must("diff", "report")
	for _, want := range []string{"--- report " + one + "\n+++ report " + two + "\n", "\n-      topic: t.one\n+      topic: t.two\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
	if again := s.must("diff", "report", one[:5]); again != out {
		t.Errorf("%s", again)
	}
	if back := s.must("diff", "report", two[:5], one[:5]); !strings.Contains(back, "-      topic: t.two\n+      topic: t.one") {
		t.Errorf("%s", back)
	}
	if _, _, err := newStarter(t, w, second).call("diff", "report"); err == nil || !strings.Contains(err.Error(), "no other revision") {
		t.Errorf("%v", err)
	}
	s.hidden = true
	if _, _, err := s.call("diff", "report"); err == nil || !strings.Contains(err.Error(), "may not see it") {
		t.Errorf("%v", err)
	}
}

func TestChanges_OfLongTextsAreNotCompared(t *testing.T) {
	long := make([]string, maxDiffLines+1)
	if got := changes(long, nil); len(got) != 1 || !strings.Contains(got[0], "too long") {
		t.Errorf("%v", got)
	}
	want := []string{" a", " b", " c", "-d", "+D", " e", " f", " g", "..."}
	if diff := cmp.Diff(want, changes(strings.Split("0 a b c d e f g h i j", " "), strings.Split("0 a b c D e f g h i j", " "))); diff != "" {
		t.Error(diff)
	}
}

// What is shown of a run has the steps of its revision, or those of its status where that cannot be
// read.
func TestTree_HasTheStepsOfTheRevision(t *testing.T) {
	w, r, revision := reportOf(t, "t", 1)
	run := testRun("team-a", "was", "u-was")
	run.Spec = v1alpha1.WorkflowRunSpec{WorkflowRef: &v1alpha1.WorkflowReference{Name: "report"}}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning, Progress: "0/1", Workflow: &v1alpha1.WorkflowRevision{Name: "report", Revision: revision},
		Steps: []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepRunning, Attempt: 1}},
	}
	for name, s := range map[string]*starter{"seen": newStarter(t, w, r, run), "gone": newStarter(t, run), "hidden": newStarter(t, w, r, run)} {
		s.hidden = name == "hidden"
		out, note, err := s.call("tree", "was")
		if err != nil || !strings.Contains(out, "fetch") || (note != "") != s.hidden {
			t.Errorf("%s: %v, note %q\n%s", name, err, note, out)
		}
	}
}
