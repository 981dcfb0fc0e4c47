// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const mark = "syncopate.dev/test-rebuilt"

// mostAnnotations is how many bytes the annotations of an object may have.
const mostAnnotations = 256 << 10

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a namespace with one run.
type site struct {
	t      *testing.T
	client client.WithWatch
	marker Marker
	logged []string
	name   types.NamespacedName
}

func newSite(t *testing.T) *site {
	t.Helper()
	c, ns := server.Namespace(t, "mark-")
	s := &site{t: t, client: c, name: types.NamespacedName{Namespace: ns, Name: "a"}}
	s.marker = Marker{Client: c, Live: c, Name: mark, Log: funcr.New(func(_, line string) { s.logged = append(s.logged, line) }, funcr.Options{})}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: s.name.Name}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	must(t, c.Create(t.Context(), run))
	return s
}

func (s *site) get() *v1alpha1.WorkflowRun {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{}
	must(s.t, s.client.Get(s.t.Context(), s.name, run))
	return run
}

// written has an operator write the status of the run.
func (s *site) written() {
	s.t.Helper()
	run := s.get()
	run.Status = &v1alpha1.WorkflowRunStatus{Tenant: "acme", Conditions: conditions("Admitted", "Finished", "Succeeded")}
	must(s.t, s.client.Status().Update(s.t.Context(), run, fieldOwner))
}

func conditions(kinds ...string) (all []metav1.Condition) {
	for _, kind := range kinds {
		all = append(all, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Test", LastTransitionTime: metav1.Unix(1_800_000_000, 0)})
	}
	return all
}

func kinds(run *v1alpha1.WorkflowRun) (all []string) {
	for _, c := range run.Status.Conditions {
		all = append(all, c.Type)
	}
	return all
}

// annotated leaves no room for an annotation.
func (s *site) annotated() {
	s.t.Helper()
	run := s.get()
	run.Annotations = map[string]string{"x": strings.Repeat("x", mostAnnotations-1)}
	must(s.t, s.client.Update(s.t.Context(), run))
}

// filled leaves no room for anything: etcd takes 1.5 MiB an object.
func (s *site) filled() {
	s.t.Helper()
	fits := func(n int) bool {
		text := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","uid":"x","name":%q}]}}`, strings.Repeat("x", n))
		err := s.client.Patch(s.t.Context(), s.get(), client.RawPatch(types.MergePatchType, []byte(text)))
		if err != nil && !tooLarge(err) {
			s.t.Fatal(err)
		}
		return err == nil
	}
	least, most := 1532<<10, 1536<<10 // each try is a request of the whole object
	if !fits(least) {
		s.t.Fatal("it is full before")
	}
	for most-least > 16 { // less than any mark
		if n := (least + most) / 2; fits(n) {
			least = n
		} else {
			most = n
		}
	}
}

// fullness is how little room a run has, and what that makes of a mark.
type fullness struct {
	make    func(s *site)
	written bool
	turned  bool
	label   bool
	over    bool // nobody can write it
	large   bool
}

func (f fullness) ids() []string {
	if f.large { // each mark takes seconds
		return []string{"one"}
	}
	return []string{"one", "two"}
}

// What was prepared before a mark is refused after it, however little room there is: that is all
// that a mark is for.
//
// mutations: a Marker that only annotates makes all but the first case fail; one that only adds
// labels that of a full object with a status.
func TestWhatWasPreparedBeforeAMarkIsRefused(t *testing.T) {
	for name, c := range map[string]fullness{
		"there is room":                   {make: (*site).written, written: true},
		"there is room, no status":        {make: func(*site) {}},
		"annotations are full":            {make: func(s *site) { s.written(); s.annotated() }, written: true, turned: true},
		"annotations are full, no status": {make: (*site).annotated, label: true},
		"the object is full":              {make: func(s *site) { s.written(); s.filled() }, written: true, turned: true, large: true},
		"the object is full, no status":   {make: (*site).filled, over: true, large: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			c.make(s)
			for _, id := range c.ids() { // each time anew
				before := s.get()
				now, err := s.marker.Mark(t.Context(), s.name, before.UID, id)
				if err != nil || now == nil || now.ResourceVersion == before.ResourceVersion != c.over {
					t.Fatalf("mark: %v, %v", now != nil, err)
				}
				after := s.get()
				if diff := cmp.Diff(now, after); diff != "" {
					t.Errorf("what it returns (-now +got):\n%s", diff)
				}
				if (after.Labels[mark] == id) != c.label || len(s.logged) > 0 != c.over {
					t.Errorf("labels %v, logged %q", after.Labels, s.logged)
				}
				if c.written {
					s.orderOf(before, after, c.turned)
				}
				prepared := before.DeepCopy()
				prepared.Status = &v1alpha1.WorkflowRunStatus{Tenant: "acme", Conditions: conditions("Admitted", "Finished", "Succeeded", "Stalled")}
				err = s.client.Status().Update(t.Context(), prepared, fieldOwner)
				if !apierrors.IsConflict(err) && (!c.over || !tooLarge(err)) {
					t.Fatalf("what was prepared before is accepted: %v", err)
				}
			}
		})
	}
}

// orderOf fails the test unless status says the same as before, with its conditions turned or not.
func (s *site) orderOf(before, after *v1alpha1.WorkflowRun, turned bool) {
	s.t.Helper()
	want := kinds(before)
	if turned {
		want = append(want[1:], want[0])
	}
	if diff := cmp.Diff(want, kinds(after)); diff != "" {
		s.t.Errorf("conditions (-want +got):\n%s", diff)
	}
	for _, run := range []*v1alpha1.WorkflowRun{before, after} {
		slices.SortFunc(run.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	}
	if diff := cmp.Diff(before.Status, after.Status); diff != "" {
		s.t.Errorf("status (-before +after):\n%s", diff)
	}
}

// The API server refuses all writes of a run, as a policy may have it: it is passed over where what
// was prepared is refused, too. Where that is not known it is an error, and who asked counts the
// run as one that has what it may have.
//
// mutations: a Mark that is an error for a status that is Invalid makes this fail; so does one that
// is none for a label, or for what is forbidden.
func TestARunThatTakesNoWriteAtAll(t *testing.T) {
	kind := v1alpha1.GroupVersion.WithKind("WorkflowRun").GroupKind()
	invalid := apierrors.NewInvalid(kind, "a", field.ErrorList{field.Required(field.NewPath("status"), "")})
	policy := apierrors.NewInvalid(kind, "a", nil)
	policy.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "no changes this week"}}
	forbidden := apierrors.NewForbidden(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "a", nil)
	plain := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "admission webhook denied the request"}}
	for name, c := range map[string]struct {
		written bool
		refuse  error
		passes  bool
	}{
		"400, no reason":            {written: true, refuse: plain},
		"400, no reason, no status": {refuse: plain},
		"invalid":                   {written: true, refuse: invalid, passes: true},
		"invalid, no status":        {refuse: invalid},
		"invalid, by a policy":      {written: true, refuse: policy},
		"forbidden":                 {written: true, refuse: forbidden},
		"forbidden, no status":      {refuse: forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if c.written {
				s.written()
			}
			s.marker.Client = interceptor.NewClient(s.client, interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return c.refuse
				},
				SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
					return c.refuse
				},
			})
			run := s.get()
			now, err := s.marker.Mark(t.Context(), s.name, run.UID, "id")
			if c.passes && (err != nil || now == nil || now.UID != run.UID) || !c.passes && apierrors.ReasonForError(err) != apierrors.ReasonForError(c.refuse) {
				t.Errorf("%v, %v; want it passed over: %t", now != nil, err, c.passes)
			}
			if len(s.logged) > 0 != c.passes {
				t.Errorf("logged: %q", s.logged)
			}
		})
	}
}

// A webhook has all codes to choose from, and need give no reason. Where it looks at runs alone,
// and not at their status, the status is marked.
//
// mutation: Refused that goes by the reason.
func TestARefusalNeedsNoReason(t *testing.T) {
	for code, marked := range map[int32]bool{
		400: true, 401: true, 403: true, 405: true, 410: true, 413: true, 422: true, 451: true,
		404: false, 408: false, 409: false, 429: false, 500: false, 503: false,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			s := newSite(t)
			s.written()
			refuse := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: "admission webhook denied the request"}}
			s.marker.Client = interceptor.NewClient(s.client, interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return refuse
				},
			})
			if Refused(refuse) != marked {
				t.Errorf("it is a refusal: %t", !marked)
			}
			run := s.get()
			now, err := s.marker.Mark(t.Context(), s.name, run.UID, "id")
			if (err == nil) != marked || marked && now.ResourceVersion == run.ResourceVersion {
				t.Errorf("%v, %v; want it marked: %t", now != nil, err, marked)
			}
		})
	}
}

// The run is written, made anew or deleted right before its conditions are turned.
//
// mutation: a turn that takes the resourceVersion that it reads makes the middle case fail: it
// writes a run that was made anew.
func TestARunThatChangesWhileItIsTurned(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *site)
		anew   bool
		gone   bool
	}{
		"it is written":    {change: (*site).queued},
		"it is made anew":  {change: func(s *site) { s.removed(); s.again() }, anew: true, gone: true},
		"it is deleted":    {change: (*site).removed, gone: true},
		"nothing of these": {change: func(*site) {}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.written()
			s.annotated()
			run, reads := s.get(), 0
			s.marker.Live = interceptor.NewClient(s.client, interceptor.Funcs{
				Get: func(ctx context.Context, live client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if reads++; reads == 2 { // the first was before the turn
						c.change(s)
					}
					return live.Get(ctx, key, o, opts...)
				},
			})
			now, err := s.marker.Mark(t.Context(), s.name, run.UID, "id")
			if err != nil || (now == nil) != c.gone {
				t.Fatalf("%v, %v; want it gone: %t", now != nil, err, c.gone)
			}
			if !c.gone && now.ResourceVersion == run.ResourceVersion {
				t.Error("it was not marked")
			}
			if c.anew {
				if diff := cmp.Diff(kinds(run), kinds(s.get())); diff != "" {
					t.Errorf("conditions of the new run (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func (s *site) queued() {
	s.t.Helper()
	run := s.get()
	run.Status.Phase = v1alpha1.RunQueued
	must(s.t, s.client.Status().Update(s.t.Context(), run, fieldOwner))
}

func (s *site) removed() {
	s.t.Helper()
	must(s.t, s.client.Delete(s.t.Context(), s.get()))
}

// again makes the run anew, with a status.
func (s *site) again() {
	s.t.Helper()
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name}}
	run.Spec.Steps = []v1alpha1.Step{{Name: "a", Job: &v1alpha1.Job{Topic: "t"}}}
	must(s.t, s.client.Create(s.t.Context(), run))
	s.written()
	s.annotated()
}
