// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/actions"
)

// asking is a run whose step publish is in the given state.
func asking(publish v1alpha1.StepStatus, change ...func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
	run := testRun("team-a", "report", "uid-1")
	run.Spec.Steps = append(run.Spec.Steps, v1alpha1.Step{Name: "publish", Approval: &v1alpha1.Approval{}})
	run.Spec.Finally = []v1alpha1.Step{{Name: "tidy", Job: &v1alpha1.Job{Topic: "t"}}}
	publish.Name = "publish"
	run.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, Steps: []v1alpha1.StepStatus{{Name: "fetch", Phase: v1alpha1.StepSucceeded}, publish}}
	for _, f := range change {
		f(run)
	}
	return run
}

var waiting = v1alpha1.StepStatus{Phase: v1alpha1.StepWaiting}

// court is a cluster in which jane decides. created is what became of the decisions, applied is
// what the operator does with one.
type court struct {
	*plugin
	created []v1alpha1.StepApproval
	applied func(*v1alpha1.WorkflowRun, *v1alpha1.StepApproval)
	refuse  error
}

// forgetful is a cluster that deletes runs as they end. Its lists are of version 500, and its
// events are as old as that.
func forgetful(k *court, ended v1alpha1.RunPhase) interceptor.Funcs {
	var last *v1alpha1.WorkflowRun
	k.applied = func(run *v1alpha1.WorkflowRun, a *v1alpha1.StepApproval) {
		apply(run, a)
		run.Status.Phase, run.Status.CompletedAt = ended, new(metav1.Unix(1, 0))
		last = run
	}
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			runs, is := list.(*v1alpha1.WorkflowRunList)
			if is {
				runs.ResourceVersion = "500"
			}
			if is && last != nil {
				return nil
			}
			err := c.List(ctx, list, opts...)
			if is {
				runs.ResourceVersion = "500"
			}
			return err
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, is := o.(*v1alpha1.WorkflowRun); is && last != nil {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "workflowruns"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		Watch: func(_ context.Context, _ client.WithWatch, _ client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
			events := watch.NewFakeWithChanSize(1, false)
			if o := (&client.ListOptions{}).ApplyOptions(opts); o.Raw.ResourceVersion == "500" {
				events.Delete(last)
			}
			events.Stop()
			return events, nil
		},
	}
}

// The approval is the last step of a run with ttlSecondsAfterFinished 0, which has waited for long.
//
// mutations: a decision that takes the run that is gone for an error, or looks at events since the
// run was written last, makes this fail.
func TestADecisionThatEndsARunThatIsDeletedAtOnce(t *testing.T) {
	for verb, c := range map[string]struct {
		ended v1alpha1.RunPhase
		want  string
	}{"approve": {v1alpha1.RunSucceeded, "step publish is Succeeded\n"}, "reject": {v1alpha1.RunFailed, "step publish is Failed\n"}} {
		k := newCourt(t, asking(waiting))
		cluster, _, err := k.cluster()
		if err != nil {
			t.Fatal(err)
		}
		under, ok := cluster.(client.WithWatch)
		if !ok {
			t.Fatalf("%T cannot watch", cluster)
		}
		over := interceptor.NewClient(under, forgetful(k, c.ended))
		k.cluster = func() (client.Client, string, error) { return over, "team-a", nil }
		if out := k.must(verb, "report", "publish"); !strings.HasSuffix(out, c.want) {
			t.Errorf("%s: %q", verb, out)
		}
	}
}

func newCourt(t *testing.T, objects ...client.Object) *court {
	t.Helper()
	k := &court{plugin: newPlugin(t)}
	c := fakeCluster(t, objects...).WithStatusSubresource(&v1alpha1.WorkflowRun{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			switch o := o.(type) {
			case *authenticationv1.SelfSubjectReview:
				o.Status.UserInfo.Username = "jane"
				return nil
			case *v1alpha1.StepApproval:
				return k.store(ctx, c, o, opts...)
			}
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	k.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	return k
}

// store is what API server and operator do with a decision.
func (k *court) store(ctx context.Context, c client.WithWatch, a *v1alpha1.StepApproval, opts ...client.CreateOption) error {
	if k.refuse != nil {
		return k.refuse
	}
	a.CreationTimestamp = metav1.Time{Time: time.Date(2026, 11, 20, 10, 9, 0, 0, time.UTC)}
	if err := c.Create(ctx, a, opts...); err != nil {
		return err
	}
	k.created = append(k.created, *a.DeepCopy())
	if k.applied == nil {
		return nil
	}
	run := &v1alpha1.WorkflowRun{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.Run}, run); err != nil {
		return err
	}
	k.applied(run, a)
	return c.Status().Update(ctx, run)
}

// apply is an operator that does as it was told.
func apply(run *v1alpha1.WorkflowRun, a *v1alpha1.StepApproval) {
	s := &run.Status.Steps[1]
	s.Phase, s.Approval = v1alpha1.StepSucceeded, actions.Status(a)
	if a.Spec.Decision == v1alpha1.Reject {
		s.Phase = v1alpha1.StepFailed
	}
}

// mutation: a decision without UID, owner or approver, or one that is not waited for,
// makes this fail.
func TestDecisionsAreStoredAndFollowed(t *testing.T) {
	want := func(spec v1alpha1.StepApprovalSpec) v1alpha1.StepApproval {
		a := v1alpha1.StepApproval{Spec: spec}
		a.Namespace, a.GenerateName = "team-a", "report-publish-"
		a.OwnerReferences = []metav1.OwnerReference{{APIVersion: "syncopate.dev/v1alpha1", Kind: "WorkflowRun", Name: "report", UID: "uid-1"}}
		a.Spec.Run, a.Spec.RunUID, a.Spec.Step, a.Spec.Approver = "report", "uid-1", "publish", "jane"
		return a
	}
	for name, c := range map[string]struct {
		line []string
		want v1alpha1.StepApproval
		out  string
	}{
		"approved, with an output": {
			line: []string{"approve", "report", "publish", "--comment", "well done", "--output", `{ "edition": 2 }`},
			want: want(v1alpha1.StepApprovalSpec{Decision: v1alpha1.Approve, Comment: "well done", Output: &runtime.RawExtension{Raw: []byte(`{"edition":2}`)}}),
			out: "step publish of run team-a/report: approved by jane at 2026-11-20T10:09:00Z (60s ago): well done (StepApproval NAME)\n" +
				"step publish is Succeeded\n",
		},
		"rejected": {
			line: []string{"reject", "report", "publish"},
			want: want(v1alpha1.StepApprovalSpec{Decision: v1alpha1.Reject}),
			out: "step publish of run team-a/report: rejected by jane at 2026-11-20T10:09:00Z (60s ago) (StepApproval NAME)\n" +
				"step publish is Failed\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCourt(t, asking(waiting))
			k.applied = apply
			out := k.must(c.line...)
			if len(k.created) != 1 {
				t.Fatalf("%d decisions", len(k.created))
			}
			got := k.created[0]
			if !strings.HasPrefix(got.Name, "report-publish-") {
				t.Errorf("name %q", got.Name)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(metav1.ObjectMeta{}, "Name", "CreationTimestamp", "ResourceVersion"), cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.out, strings.ReplaceAll(out, got.Name, "NAME")); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

// mutation: any check of decidable or undecided left out makes its case store a decision; so does
// one by name that takes what was said about an earlier run.
func TestDecisionsWithoutEffectAreRefused(t *testing.T) {
	earlier := metav1.MicroTime{Time: time.Date(2026, 11, 20, 10, 5, 0, 0, time.UTC)}
	said := func(name, uid, step, approver string, second int) client.Object {
		a := &v1alpha1.StepApproval{Spec: v1alpha1.StepApprovalSpec{Run: "report", RunUID: uid, Step: step, Decision: v1alpha1.Reject, Approver: approver}}
		a.Namespace, a.Name = "team-a", name
		a.CreationTimestamp = metav1.Time{Time: time.Date(2026, 11, 20, 10, 4, second, 0, time.UTC)}
		return a
	}
	decided := v1alpha1.StepStatus{Phase: v1alpha1.StepSucceeded, Approval: &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approve, Approver: "bob", DecidedAt: earlier}}
	timedOut := v1alpha1.StepStatus{Phase: v1alpha1.StepFailed, Approval: &v1alpha1.ApprovalStatus{Decision: v1alpha1.Reject, DecidedAt: earlier}}
	follows := func(r *v1alpha1.WorkflowRun) {
		r.Spec.Steps, r.Spec.Finally, r.Spec.WorkflowRef = nil, nil, &v1alpha1.WorkflowReference{Name: "report"}
	}
	hidden := func(r *v1alpha1.WorkflowRun) {
		follows(r)
		r.Status.Workflow = &v1alpha1.WorkflowRevision{Name: "report", Revision: strings.Repeat("0", 64)} // it is gone, as to somebody who may not get it
	}
	ended := func(r *v1alpha1.WorkflowRun) {
		r.Status.Phase, r.Status.CompletedAt = v1alpha1.RunCancelled, &metav1.Time{Time: earlier.Time}
	}
	for name, c := range map[string]struct {
		run    *v1alpha1.WorkflowRun
		others []client.Object
		step   string
		want   string // "": accepted
	}{
		"a run that is not there":            {step: "publish", want: `run team-a/report: workflowruns.syncopate.dev "report" not found`},
		"a step that is not there":           {run: asking(waiting), step: "print", want: `run team-a/report has no step "print"; its approvals are: publish`},
		"a job":                              {run: asking(waiting), step: "fetch", want: "step fetch of run team-a/report is no approval; its approvals are: publish"},
		"a finally step":                     {run: asking(waiting), step: "tidy", want: "step tidy of run team-a/report is no approval; its approvals are: publish"},
		"a run without approvals":            {run: testRun("team-a", "report", "uid-1"), step: "publish", want: `run team-a/report has no step "publish", and no approvals at all`},
		"a step that was decided":            {run: asking(decided), step: "publish", want: "step publish was decided already: approved by bob at 2026-11-20T10:05:00Z (5m ago)"},
		"one that nobody decided in time":    {run: asking(timedOut), step: "publish", want: "step publish was decided already: rejected, as nobody decided in time, at 2026-11-20T10:05:00Z (5m ago)"},
		"a run that is over":                 {run: asking(v1alpha1.StepStatus{Phase: v1alpha1.StepCancelled}, ended), step: "publish", want: "run team-a/report is over: it ended as Cancelled at 2026-11-20T10:05:00Z"},
		"a step that was skipped":            {run: asking(v1alpha1.StepStatus{Phase: v1alpha1.StepSkipped}), step: "publish", want: "step publish is over (Skipped): there is nothing to decide"},
		"a decision that is not applied yet": {run: asking(waiting), others: []client.Object{said("b", "uid-1", "publish", "eve", 7), said("a", "", "publish", "bob", 7)}, step: "publish", want: "step publish was decided already, and the run does not show it yet: rejected by bob at 2026-11-20T10:04:07Z (5m53s ago)"},
		"steps that are not known yet":       {run: asking(waiting, follows), step: "publish", want: "step publish of run team-a/report: the run has no steps yet, since its Workflow was not read: try again in a moment"},
		"steps that may not be read":         {run: asking(v1alpha1.StepStatus{Phase: v1alpha1.StepPending}, hidden), step: "publish", want: "step publish of run team-a/report: whether it is an approval is not known before it waits for one: the steps of the run are in a ControllerRevision (apps) of its namespace, which you may not get or which is gone"},
		"one that waits, all the same":       {run: asking(waiting, hidden), step: "publish"},
		"one about an earlier run":           {run: asking(waiting), others: []client.Object{said("b", "uid-0", "publish", "eve", 7)}, step: "publish"},
		"one about another step":             {run: asking(waiting), others: []client.Object{said("b", "uid-1", "fetch", "eve", 7)}, step: "publish"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := c.others
			if c.run != nil {
				objects = append(objects, c.run)
			}
			k := newCourt(t, objects...)
			_, _, err := k.call("approve", "report", c.step, "--wait", "0")
			stored := 0
			if c.want == "" {
				stored = 1
			}
			if got := errorOf(err); got != c.want || len(k.created) != stored {
				t.Errorf("%d decisions, error %q, want %d and %q", len(k.created), got, stored, c.want)
			}
		})
	}
}

func errorOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// mutation: a decision of others, or an end of the step, that passes for the caller's own
// makes this fail.
func TestWhatBecomesOfADecision(t *testing.T) {
	byBob := func(run *v1alpha1.WorkflowRun, a *v1alpha1.StepApproval) {
		apply(run, a)
		run.Status.Steps[1].Approval.Name, run.Status.Steps[1].Approval.Approver = "report-publish-bob", "bob"
	}
	for name, c := range map[string]struct {
		run     *v1alpha1.WorkflowRun
		applied func(*v1alpha1.WorkflowRun, *v1alpha1.StepApproval)
		note    string
		err     string
	}{
		"another one came first": {asking(waiting), byBob, "", "the decision came too late: step publish was approved by bob at 2026-11-20T10:09:00Z (60s ago)"},
		"the run was cancelled meanwhile": {asking(waiting), func(r *v1alpha1.WorkflowRun, _ *v1alpha1.StepApproval) {
			r.Status.Steps[1].Phase = v1alpha1.StepCancelled
		}, "", "the decision came too late: step publish is Cancelled"},
		"nobody applies it":             {asking(waiting), nil, "the run does not show it after 300ms; to see why: kubectl syncopate why report -n team-a\n", ""},
		"the step does not wait yet":    {asking(v1alpha1.StepStatus{Phase: v1alpha1.StepPending}), nil, "the step is Pending: the decision counts when it begins to wait for approval\n", ""},
		"the run was not looked at yet": {asking(waiting, func(r *v1alpha1.WorkflowRun) { r.Status = nil }), nil, "the step is Pending: the decision counts when it begins to wait for approval\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCourt(t, c.run)
			k.applied = c.applied
			_, note, err := k.call("approve", "report", "publish", "--wait", "300ms")
			if got := errorOf(err); note != c.note || got != c.err || len(k.created) != 1 {
				t.Errorf("%d decisions, note %q, error %q; want note %q, error %q", len(k.created), note, got, c.note, c.err)
			}
		})
	}
}

// mutation: the hint at the role for a refusal of admission, or none for one of RBAC,
// makes this fail.
func TestRefusalsSayWhatToDo(t *testing.T) {
	forbidden := func(text string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: "syncopate.dev", Resource: "stepapprovals"}, "", errors.New(text))
	}
	for name, c := range map[string]struct {
		refuse error
		want   string
	}{
		"RBAC": {
			forbidden(`User "jane" cannot create resource "stepapprovals" in API group "syncopate.dev" in the namespace "team-a"`),
			`jane may not decide in namespace team-a; the cluster role syncopate-approve gives that right: stepapprovals.syncopate.dev is forbidden: User "jane" cannot create resource "stepapprovals" in API group "syncopate.dev" in the namespace "team-a"`,
		},
		"admission": {
			forbidden("ValidatingAdmissionPolicy 'office-hours' with binding 'office-hours' denied request: not at night"),
			"create the decision: stepapprovals.syncopate.dev is forbidden: ValidatingAdmissionPolicy 'office-hours' with binding 'office-hours' denied request: not at night",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCourt(t, asking(waiting))
			k.refuse = c.refuse
			_, _, err := k.call("approve", "report", "publish")
			if got := errorOf(err); got != c.want {
				t.Errorf("error (-want +got):\n%s", cmp.Diff(c.want, got))
			}
		})
	}
}

// mutation: an error of the list that ends the command makes this fail.
func TestWhoMayNotListDecisionsMayDecide(t *testing.T) {
	k := newCourt(t, asking(waiting))
	inner, _, err := k.cluster()
	if err != nil {
		t.Fatal(err)
	}
	withWatch, ok := inner.(client.WithWatch)
	if !ok {
		t.Fatal("no client.WithWatch")
	}
	blind := interceptor.NewClient(withWatch, forbid(func(client.ObjectList, *client.ListOptions) bool { return true }))
	k.cluster = func() (client.Client, string, error) { return blind, "team-a", nil }
	k.must("approve", "report", "publish", "--wait", "0")
	if len(k.created) != 1 {
		t.Errorf("%d decisions", len(k.created))
	}
}

// mutation: an output of any check that is left out reaches the API server.
func TestDecisionsThatMakeNoSense(t *testing.T) {
	for name, line := range map[string][]string{
		"no step":                  {"approve", "report"},
		"an output that is a list": {"approve", "report", "publish", "--output", "[1]"},
		"an output that is null":   {"approve", "report", "publish", "--output", "null"},
		"an output that is cut":    {"approve", "report", "publish", "--output", `{"a":`},
		"an output of 4097 bytes":  {"approve", "report", "publish", "--output", `{"a":"` + strings.Repeat("x", 4089) + `"}`},
		"an output of a rejection": {"reject", "report", "publish", "--output", "{}"},
		"a wait into the past":     {"reject", "report", "publish", "--wait", "-1s"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newCourt(t, asking(waiting))
			_, _, err := k.call(line...)
			var usage *UsageError
			if !errors.As(err, &usage) || len(k.created) != 0 {
				t.Errorf("%d decisions, error %v", len(k.created), err)
			}
		})
	}
	k := newCourt(t, asking(waiting))
	k.must("approve", "report", "publish", "--wait", "0", "--output", `{"a":"`+strings.Repeat("x", 4088)+`"}`)
}

func TestCompletionOffersRunsThenApprovals(t *testing.T) {
	k := newCourt(t, asking(waiting))
	for given, want := range map[string]string{"": "report", "report": "publish\tWaitingForApproval"} {
		line := []string{"__complete", "approve"}
		if given != "" {
			line = append(line, given)
		}
		out, _, err := k.call(append(line, "")...)
		if err != nil || !strings.HasPrefix(out, want+"\n") {
			t.Errorf("after %q: %q, %v", given, out, err)
		}
	}
}
