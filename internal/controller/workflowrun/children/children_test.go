// SPDX-License-Identifier: Apache-2.0

package children

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

var (
	start   = time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	errLost = errors.New("the lease is lost")
)

// site is a namespace with a parent run, as the cache and the API server have it.
type site struct {
	*Children
	t      *testing.T
	clock  *clocktesting.FakePassiveClock
	parent *v1alpha1.WorkflowRun
	state  State
	lost   error // of the lease
	refuse error // what the API server says of a creation
	// answer is what the API server does with a creation; nil: as refuse says.
	answer func(ctx context.Context, o client.Object) error
	owned  context.Context //nolint:containedctx // nil: that of the test
}

// newSite is one whose parent names the child "p-c" of its step "c". The objects exist.
func newSite(t *testing.T, objects ...client.Object) *site {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, clock: clocktesting.NewFakePassiveClock(start)}
	s.parent = &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u-p", Annotations: map[string]string{v1alpha1.AnnotationCreatedBy: "ann"}},
		Status: &v1alpha1.WorkflowRunStatus{
			Tenant: "acme",
			Steps:  []v1alpha1.StepStatus{{Name: "c", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "p-c"}}},
		},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if s.answer != nil {
				if err := s.answer(ctx, o); err != nil {
					return err
				}
			}
			if s.refuse != nil {
				return s.refuse
			}
			o.SetUID(types.UID("u-" + o.GetName())) // as the API server does
			return c.Create(ctx, o, opts...)
		},
	}).Build()
	s.Children = &Children{Client: c, Live: c, Clock: s.clock, Owner: "test"}
	return s
}

// while is as long as the run is this process's.
func (s *site) while() context.Context {
	if s.owned == nil {
		return s.t.Context()
	}
	return s.owned
}

// Err is that of the lease.
func (s *site) Err() error { return s.lost }

func (s *site) child() lifecycle.ChildToCreate {
	return lifecycle.ChildToCreate{Step: "c", Name: "p-c", Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "batch"}}
}

// creates is a pass that creates what is due. It says what is known of the child then.
func (s *site) creates(fresh ...lifecycle.ChildToCreate) (lifecycle.Child, error) {
	s.t.Helper()
	s.observes()
	render := func(context.Context, string) (lifecycle.ChildToCreate, error) { return s.child(), nil }
	_, err := s.Create(s.t.Context(), s.while(), &s.state, s.parent, s, fresh, render)
	return s.observes().Children["p-c"], err
}

func (s *site) observes() Relatives {
	s.t.Helper()
	rel, err := s.Observe(s.t.Context(), &s.state, s.parent)
	if err != nil {
		s.t.Fatalf("observe: %v", err)
	}
	return rel
}

// run is a run that exists, owned by the parent.
func run(change func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
	owner := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u-p"}}
	r := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: "p-c", UID: "u-there",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("WorkflowRun"))},
		},
		Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "batch"},
	}
	change(r)
	return r
}

func TestChildren_CreateWhatStatusNames(t *testing.T) {
	for name, fresh := range map[string][]lifecycle.ChildToCreate{
		"of the write just made":         {{Step: "c", Name: "p-c", Spec: v1alpha1.WorkflowRunSpec{WorkloadClass: "batch"}}},
		"of an earlier one: rendered":    nil,
		"beside one that is not in need": {{Step: "other", Name: "p-other"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			seen, err := s.creates(fresh...)
			if diff := cmp.Diff(lifecycle.Child{State: lifecycle.ChildThere, UID: "u-p-c"}, seen); diff != "" || err != nil {
				t.Fatalf("%v, %s", err, diff)
			}
			made := &v1alpha1.WorkflowRun{}
			if err := s.Live.Get(t.Context(), types.NamespacedName{Namespace: "n", Name: "p-c"}, made); err != nil {
				t.Fatal(err)
			}
			if claim := made.ClaimsParent(); claim == nil || claim.UID != "u-p" || made.Spec.WorkloadClass != "batch" {
				t.Errorf("it claims %v, class %q", claim, made.Spec.WorkloadClass)
			}
			if by := made.Annotations[v1alpha1.AnnotationCreatedBy]; by != "ann" {
				t.Errorf("created by %q", by)
			}
			if due := s.state.NotYetCreated(s.parent, start.Add(time.Hour)); len(due) != 0 {
				t.Errorf("created again: %v", due)
			}
		})
	}
}

// mutation: checkAdoption without the owner, or with one that is only noted, without the tenant or
// the spec each make a row fail.
func TestChildren_AdoptOnlyWhatIsTheChild(t *testing.T) {
	const taken = "a run of this name exists, "
	for name, c := range map[string]struct {
		there func(*v1alpha1.WorkflowRun)
		want  lifecycle.Child
	}{
		"created before a crash": {func(*v1alpha1.WorkflowRun) {}, lifecycle.Child{State: lifecycle.ChildThere, UID: "u-there"}},
		"suspended since":        {func(r *v1alpha1.WorkflowRun) { r.Spec.Suspend = true }, lifecycle.Child{State: lifecycle.ChildThere, UID: "u-there"}},
		"of nobody": {
			func(r *v1alpha1.WorkflowRun) { r.OwnerReferences = nil },
			lifecycle.Child{State: lifecycle.ChildTaken, Cause: taken + "which is not owned by run p"},
		},
		"of nobody, that only says so": { // it would outlive the parent
			func(r *v1alpha1.WorkflowRun) {
				r.OwnerReferences, r.Annotations = nil, map[string]string{v1alpha1.AnnotationParent: "p/u-p"}
			},
			lifecycle.Child{State: lifecycle.ChildTaken, Cause: taken + "which is not owned by run p"},
		},
		"of an earlier run of the parent's name": {
			func(r *v1alpha1.WorkflowRun) { r.OwnerReferences[0].UID = "u-before" },
			lifecycle.Child{State: lifecycle.ChildTaken, Cause: taken + "which is not owned by run p"},
		},
		"of another tenant": {
			func(r *v1alpha1.WorkflowRun) { r.Status = &v1alpha1.WorkflowRunStatus{Tenant: "other"} },
			lifecycle.Child{State: lifecycle.ChildTaken, Cause: taken + "of tenant other"},
		},
		"with another spec": {
			func(r *v1alpha1.WorkflowRun) { r.Spec.WorkloadClass = "web" },
			lifecycle.Child{State: lifecycle.ChildTaken, Cause: taken + "with another spec"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, run(c.there))
			seen, err := s.creates()
			if diff := cmp.Diff(c.want, seen); diff != "" || err != nil {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
}

func TestChildren_WhatTheAPIServerRefusesForGoodIsNotTriedAgain(t *testing.T) {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "WorkflowRun"}
	s := newSite(t)
	s.refuse = apierrors.NewInvalid(kind, "p-c", nil)
	seen, err := s.creates()
	if seen.State != lifecycle.ChildRefused || seen.Cause == "" || err != nil {
		t.Errorf("%+v, %v", seen, err)
	}
	if due := s.state.NotYetCreated(s.parent, start.Add(time.Hour)); len(due) != 0 {
		t.Errorf("tried again: %v", due)
	}
}

// A quota is full by the child itself, or a policy came after it: the answer of its creation is
// lost, and each later one is refused before anybody sees that the name is taken. Only the parent's
// word lets the child begin, so both would wait for ever.
//
// mutation: create that looks at the name after AlreadyExists only makes a row fail, and so does
// compare with a dry run alone.
func TestChildren_AChildThatIsThereIsAdoptedThoughCreationsAreRefused(t *testing.T) {
	kind := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}
	for name, refuse := range map[string]error{
		"by a quota":   apierrors.NewForbidden(kind, "p-c", errors.New("exceeded quota")),
		"by a policy":  apierrors.NewInvalid(schema.GroupKind{Group: kind.Group, Kind: "WorkflowRun"}, "p-c", nil),
		"by a webhook": apierrors.NewInternalError(errors.New("failed calling webhook")),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			if seen, err := s.creates(); seen.State != lifecycle.ChildThere || err != nil {
				t.Fatalf("%+v, %v", seen, err)
			}
			s.state, s.refuse = State{}, refuse // the operator dies before its write
			seen, err := s.creates()
			if diff := cmp.Diff(lifecycle.Child{State: lifecycle.ChildThere, UID: "u-p-c"}, seen); diff != "" || err != nil {
				t.Errorf("%v, %s", err, diff)
			}
		})
	}
}

// One wrong answer that the child is not there failed its step, while it went on.
//
// mutation: refused that does not ask seen.
func TestChildren_AChildThatTheCacheHasIsNotRefused(t *testing.T) {
	s := newSite(t)
	if seen, err := s.creates(); seen.State != lifecycle.ChildThere || err != nil {
		t.Fatalf("%+v, %v", seen, err)
	}
	s.state, s.refuse = State{}, apierrors.NewInvalid(schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "WorkflowRun"}, "p-c", nil)
	live, ok := s.Client.(client.WithWatch)
	if !ok {
		t.Fatalf("%T", s.Client)
	}
	s.Live = interceptor.NewClient(live, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, key.Name)
		},
	})
	if seen, _ := s.creates(); seen.State == lifecycle.ChildRefused {
		t.Errorf("it is refused: %+v", seen)
	}
	s.Live = live
	s.clock.SetTime(s.clock.Now().Add(time.Hour))
	if seen, err := s.creates(); seen.State != lifecycle.ChildThere || err != nil {
		t.Errorf("in the end: %+v, %v", seen, err)
	}
}

// A policy looks at how the names of runs begin: the dry run has to begin as the child does.
//
// mutation: checkAdoption that asks with another name makes this fail.
func TestChildren_WhatAPolicyMakesOfANameIsCompared(t *testing.T) {
	s := newSite(t, run(func(r *v1alpha1.WorkflowRun) { r.Spec.WorkloadClass = "web" }))
	s.answer = func(_ context.Context, o client.Object) error {
		if r, ok := o.(*v1alpha1.WorkflowRun); ok && strings.HasPrefix(r.Name+r.GenerateName, "p-c") {
			r.Spec.WorkloadClass = "web"
		}
		return nil
	}
	seen, err := s.creates()
	if diff := cmp.Diff(lifecycle.Child{State: lifecycle.ChildThere, UID: "u-there"}, seen); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}

// A policy that came later denies changes, too, or one filled in a field at the creation. The API
// server knows defaults, and so does the operator: an equal spec needs no dry run.
//
// mutations: compare without alike, fixed without defaults, note without an end, or with one after
// each refusal, make a row fail.
func TestChildren_WhatNobodyCanCompareComesToAnEnd(t *testing.T) {
	kind := schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "WorkflowRun"}
	invalid := apierrors.NewInvalid(kind, "p-c", nil)
	full := apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "workflowruns"}, "p-c", errors.New("exceeded quota"))
	away := apierrors.NewInternalError(errors.New("failed calling webhook"))
	gone := errors.New("connection refused")
	denied := func(code int32) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Message: fmt.Sprintf("denied with %d", code)}}
	}
	filledIn := func(r *v1alpha1.WorkflowRun) { r.Spec.WorkloadClass = "web" }
	stored := func(r *v1alpha1.WorkflowRun) {
		r.Spec.MaxParallelSteps, r.Spec.FinallyTimeoutSeconds, r.Spec.Priority = 20, 300, 5
		r.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"a":1,"b":2}`)}
	}
	compare := func(err error) string {
		return "compare with run p-c, whose spec is not the one asked for: " + err.Error()
	}
	waits := func(err error) lifecycle.Child {
		return lifecycle.Child{State: lifecycle.ChildPostponed, Cause: compare(err)}
	}
	ends := func(err error) lifecycle.Child {
		return lifecycle.Child{State: lifecycle.ChildRefused, Cause: compare(err)}
	}
	there := lifecycle.Child{State: lifecycle.ChildThere, UID: "u-there"}
	for name, c := range map[string]struct {
		there       func(*v1alpha1.WorkflowRun)
		answer      error
		first, last lifecycle.Child
	}{
		"the same, and a policy denies it":              {func(*v1alpha1.WorkflowRun) {}, invalid, there, there},
		"with defaults, in a full quota":                {stored, full, there, there},
		"a field was filled in, and a policy denies it": {filledIn, invalid, waits(invalid), ends(invalid)},
		"a field was filled in, and the quota is full":  {filledIn, full, waits(full), ends(full)},
		"a field was filled in, and a webhook is away":  {filledIn, away, waits(away), waits(away)},
		"a field was filled in, and a policy has 401":   {filledIn, denied(401), waits(denied(401)), ends(denied(401))},
		"a field was filled in, and a policy has 413":   {filledIn, denied(413), waits(denied(413)), ends(denied(413))},
		"a field was filled in, and a webhook has 418":  {filledIn, denied(418), waits(denied(418)), ends(denied(418))},
		"a field was filled in, and the server is slow": {filledIn, denied(408), waits(denied(408)), waits(denied(408))},
		"a field was filled in, and the server is busy": {filledIn, denied(429), waits(denied(429)), waits(denied(429))},
		"a field was filled in, and nobody answers":     {filledIn, gone, waits(gone), waits(gone)},
	} {
		t.Run(name, func(t *testing.T) {
			found := run(c.there)
			s := newSite(t, found)
			s.refuse = c.answer
			child := s.child()
			if found.Spec.Inputs != nil {
				child.Spec.Inputs = &runtime.RawExtension{Raw: []byte(`{"b": 2, "a": 1.0}`)}
			}
			seen, err := s.creates(child)
			if diff := cmp.Diff(c.first, seen); diff != "" || err != nil {
				t.Fatalf("%v, %s", err, diff)
			}
			s.clock.SetTime(start.Add(compareBound))
			seen, err = s.creates(child)
			if diff := cmp.Diff(c.last, seen); diff != "" || err != nil {
				t.Errorf("later: %v, %s", err, diff)
			}
		})
	}
}

// The bound is for one run: another one that comes to have the name was not looked at before.
//
// mutations: note that keeps the time of a run that is gone, or of another one, or that begins anew
// after a read that failed, make a row fail.
func TestChildren_TheTimeOfWhatNobodyCanCompareIsThatOfOneRun(t *testing.T) {
	full := apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "workflowruns"}, "p-c", errors.New("exceeded quota"))
	named := func(uid types.UID) client.Reader {
		return newSite(t, run(func(r *v1alpha1.WorkflowRun) { r.UID, r.Spec.WorkloadClass = uid, "web" })).Live
	}
	none := newSite(t).Live
	away := fake.NewClientBuilder().Build() // one that knows no runs
	for name, c := range map[string]struct {
		meanwhile, last client.Reader
		want            lifecycle.ChildState
	}{
		"the same":                         {named("u"), named("u"), lifecycle.ChildRefused},
		"the same, and a read failed":      {away, named("u"), lifecycle.ChildRefused},
		"another after it was gone":        {none, named("u-other"), lifecycle.ChildPostponed},
		"another, and nobody saw it go":    {named("u-other"), named("u-other"), lifecycle.ChildPostponed},
		"another for a moment, at the end": {named("u"), named("u-other"), lifecycle.ChildPostponed},
		"the name is free":                 {named("u"), none, lifecycle.ChildPostponed},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.refuse, s.Live = full, named("u")
			if seen, err := s.creates(); seen.State != lifecycle.ChildPostponed || err != nil {
				t.Fatalf("%+v, %v", seen, err)
			}
			s.Live = c.meanwhile
			s.clock.SetTime(start.Add(compareBound / 2))
			if seen, err := s.creates(); seen.State != lifecycle.ChildPostponed || err != nil {
				t.Fatalf("after a while: %+v, %v", seen, err)
			}
			s.Live = c.last
			s.clock.SetTime(start.Add(compareBound + time.Minute))
			if seen, err := s.creates(); seen.State != c.want || err != nil {
				t.Errorf("%+v, %v; want %v", seen, err, c.want)
			}
		})
	}
}

// mutation: Create that takes any error of the rendering for one that may pass, or for one that may
// not, makes this fail.
func TestChildren_WhatCannotBeRenderedAnyMoreIsRefused(t *testing.T) {
	s := newSite(t)
	fails := func(err error) (lifecycle.Child, error) {
		_, err = s.Create(t.Context(), s.while(), &s.state, s.parent, s, nil, func(context.Context, string) (lifecycle.ChildToCreate, error) {
			return lifecycle.ChildToCreate{}, fmt.Errorf("child run of step c: %w", err)
		})
		return s.observes().Children["p-c"], err
	}
	away := errors.New("the object store is away")
	if seen, err := fails(away); seen.State != lifecycle.ChildUnknown || !errors.Is(err, away) {
		t.Errorf("while the store is away: %+v, %v", seen, err)
	}
	seen, err := fails(&render.LostError{Cause: errors.New("output a: gone")})
	if diff := cmp.Diff(lifecycle.Child{State: lifecycle.ChildRefused, Cause: "output a: gone"}, seen); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
	if due := s.state.NotYetCreated(s.parent, start.Add(time.Hour)); len(due) != 0 {
		t.Errorf("tried again: %v", due)
	}
}

// mutation: note that keeps the last cause makes this fail: each would cost a write.
func TestChildren_WhatIsPutOffIsTriedAgainAndKeepsItsCause(t *testing.T) {
	s := newSite(t)
	s.refuse = errors.New("no quota")
	seen, err := s.creates()
	if diff := cmp.Diff(lifecycle.Child{State: lifecycle.ChildPostponed, Cause: "no quota"}, seen); diff != "" || err != nil {
		t.Fatalf("%v, %s", err, diff)
	}
	if at := s.observes().RetryAt; !at.Equal(start.Add(createDelay)) {
		t.Errorf("tried again at %s", at)
	}
	if due := s.state.NotYetCreated(s.parent, start); len(due) != 0 {
		t.Errorf("tried again at once: %v", due)
	}

	s.clock.SetTime(start.Add(createDelay))
	s.refuse = apierrors.NewTooManyRequests("slow down", 60)
	if seen, _ := s.creates(); seen.Cause != "no quota" {
		t.Errorf("the cause is now %q", seen.Cause)
	}
	if at := s.observes().RetryAt; !at.Equal(s.clock.Now().Add(time.Minute)) {
		t.Errorf("tried again at %s, the API server asked for a minute", at)
	}

	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	s.refuse = nil
	if seen, _ := s.creates(); seen.State != lifecycle.ChildThere {
		t.Errorf("%+v", seen)
	}
}

func TestChildren_NothingIsCreatedWithoutTheLease(t *testing.T) {
	s := newSite(t)
	s.lost = errLost
	if seen, err := s.creates(); !errors.Is(err, errLost) || seen.State != lifecycle.ChildUnknown {
		t.Errorf("%+v, %v", seen, err)
	}
	s.lost = nil
	if seen, _ := s.creates(); seen.UID != "u-p-c" {
		t.Errorf("it did not exist before: %+v", seen)
	}
}

// asked notes who asks for places.
type asked struct {
	*shares.Shares
	by    []string
	taken func()
}

func (a *asked) Take(namespace string, granted func()) *shares.Ticket {
	a.by = append(a.by, namespace)
	a.taken()
	return a.Shares.Take(namespace, granted)
}

// A run may create hundreds of child runs, and each goes through webhooks.
//
// mutation: create that asks for no place, or not as its namespace, that keeps it, or that looks at
// the lease before it waits only.
func TestChildren_ACreationHasAPlaceOfItsNamespace(t *testing.T) {
	for name, lost := range map[string]error{"at once": nil, "when the lease is lost": errLost} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			places := &asked{Shares: shares.New(1, true, shares.KindMetrics{}), taken: func() { s.lost = lost }}
			s.Places = places
			seen, err := s.creates()
			if !errors.Is(err, lost) || (seen.UID == "u-p-c") != (lost == nil) {
				t.Errorf("%+v, %v", seen, err)
			}
			if diff := cmp.Diff([]string{"n"}, places.by); diff != "" || !places.Has(places.Shares.Take("other", nil)) {
				t.Errorf("asked for %v, or a place is kept", places.by)
			}
		})
	}
}

// mutation: relative that believes the cache makes two rows fail.
func TestChildren_OnlyALiveReadSaysThatARunIsGone(t *testing.T) {
	for name, c := range map[string]struct {
		cached, live string // UIDs; "" for none
		want         lifecycle.ChildState
	}{
		"in both":                     {"u", "u", lifecycle.ChildThere},
		"not in the cache yet":        {"", "u", lifecycle.ChildThere},
		"an earlier one in the cache": {"u-before", "u", lifecycle.ChildThere},
		"gone":                        {"", "", lifecycle.ChildGone},
		"another of the name":         {"", "u-other", lifecycle.ChildGone},
		"gone, still in the cache":    {"u", "", lifecycle.ChildThere},
	} {
		t.Run(name, func(t *testing.T) {
			has := func(uid string) client.Client {
				if uid == "" {
					return newSite(t).Client
				}
				return newSite(t, run(func(r *v1alpha1.WorkflowRun) { r.UID = types.UID(uid) })).Client
			}
			s := newSite(t)
			s.Client, s.Live = has(c.cached), has(c.live)
			s.parent.Status.Steps[0].ChildRun.UID = "u"
			if seen := s.observes().Children["p-c"]; seen.State != c.want {
				t.Errorf("%+v", seen)
			}
		})
	}
}

// known are the children of a run.
type known []string

func (k known) ChildrenOf(types.UID) []string { return k }

// mutation: AnyUnderWay that looks at children only, or never says that one is under way, or looks
// at a run again and again makes a row fail.
func TestChildren_AnyUnderWay(t *testing.T) {
	ended := func(r *v1alpha1.WorkflowRun) {
		r.Status = &v1alpha1.WorkflowRunStatus{CompletedAt: &metav1.Time{Time: start}}
	}
	naming := func(name, uid string) func(*v1alpha1.WorkflowRun) {
		return func(r *v1alpha1.WorkflowRun) {
			ended(r)
			r.Status.Steps = []v1alpha1.StepStatus{
				{Name: "a", Phase: v1alpha1.StepSucceeded},
				{Name: "b", Phase: v1alpha1.StepCancelled, ChildRun: &v1alpha1.ChildRunStatus{Name: name, UID: uid}},
			}
		}
	}
	below := run(func(r *v1alpha1.WorkflowRun) { r.Name, r.UID = "p-c-d", "u-below" })
	for name, c := range map[string]struct {
		uid  string
		runs []client.Object
		want bool
	}{
		"a child":                          {"u-there", []client.Object{run(func(*v1alpha1.WorkflowRun) {})}, true},
		"a child that was never let in":    {"", []client.Object{run(func(*v1alpha1.WorkflowRun) {})}, false},
		"a child that ended":               {"u-there", []client.Object{run(ended)}, false},
		"a child that is gone":             {"u-there", nil, false},
		"another run of the name":          {"u-before", []client.Object{run(func(*v1alpha1.WorkflowRun) {})}, false},
		"a child of a child that ended":    {"u-there", []client.Object{run(naming("p-c-d", "u-below")), below}, true},
		"a child that names itself":        {"u-there", []client.Object{run(naming("p-c", "u-there"))}, false},
		"a child of a child that is a lie": {"u-there", []client.Object{run(naming("p-c-d", "u-other")), below}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.runs...)
			s.parent.Status.Steps[0].Phase, s.parent.Status.Steps[0].ChildRun.UID = v1alpha1.StepCancelled, c.uid
			if got, err := s.AnyUnderWay(t.Context(), s.parent); got != c.want || err != nil {
				t.Errorf("%t, %v; want %t", got, err, c.want)
			}
		})
	}
}

// mutation: concernsParent that is always true, others without the phase, changedChildren without a
// look at the step before, or that compares where children are in memory, each make a row fail.
func TestWake_WhomAnEventConcerns(t *testing.T) {
	parent := func(change func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
		r := newSite(t).parent
		r.Status.Steps[0].ChildRun.Below = new(int32(3)) // as every operator writes it, each time at another place
		change(r)
		return r
	}
	same := func(*v1alpha1.WorkflowRun) {}
	ended := func(r *v1alpha1.WorkflowRun) {
		r.Status = &v1alpha1.WorkflowRunStatus{CompletedAt: &metav1.Time{Time: start}, Parent: &v1alpha1.ParentStatus{Name: "p", UID: "u-p"}}
	}
	for name, c := range map[string]struct {
		was, now *v1alpha1.WorkflowRun
		want     []string
	}{
		"a child is new":                   {nil, run(same), []string{"p"}},
		"a child changed":                  {run(same), run(func(r *v1alpha1.WorkflowRun) { r.Labels = map[string]string{"a": "b"} }), nil},
		"a child ended":                    {run(same), run(ended), []string{"p"}},
		"a child is gone":                  {run(same), nil, []string{"p", "k1", "k2"}},
		"a parent is new":                  {nil, parent(same), nil},
		"a parent changed":                 {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Labels = map[string]string{"a": "b"} }), nil},
		"a parent is suspended":            {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Spec.Suspend = true }), []string{"k1", "k2"}},
		"a parent is shut down":            {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Spec.Shutdown = v1alpha1.ShutdownCancel }), []string{"k1", "k2"}},
		"a parent changes its phase":       {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Status.Phase = v1alpha1.RunRunning }), []string{"k1", "k2"}},
		"a step of a parent has its child": {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Status.Steps[0].ChildRun.UID = "u" }), []string{"p-c"}},
		"a step of a parent ended":         {parent(same), parent(func(r *v1alpha1.WorkflowRun) { r.Status.Steps[0].Phase = v1alpha1.StepFailed }), []string{"p-c"}},
		"a parent ends with a step": {parent(same), parent(func(r *v1alpha1.WorkflowRun) {
			r.Status.Phase, r.Status.Steps[0].Phase = v1alpha1.RunSucceeded, v1alpha1.StepSucceeded
		}), []string{"k1", "k2", "p-c"}}, // p-c has ended, and may have to be deleted
		"the first status of a parent names": {parent(func(r *v1alpha1.WorkflowRun) { r.Status = nil }), parent(same), []string{"p-c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var woken []string
			Wake(func(n types.NamespacedName) { woken = append(woken, n.Name) }, known{"k1", "k2"}, c.was, c.now)
			if !slices.Equal(woken, c.want) {
				t.Errorf("woken: %v, want %v", woken, c.want)
			}
		})
	}
}
