// SPDX-License-Identifier: Apache-2.0

package children

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

// createDelay is the wait before a child run is created again that could not be, if the API server
// does not say how long.
const createDelay = 5 * time.Second

// compareBound is how long a run that may be the child is looked at which nobody can
// compare: the API server refuses to say what it makes of the wanted spec. Quotas and
// policies may be mended meanwhile.
const compareBound = 10 * time.Minute

// createParallel bounds the child runs of one run that are created at the same time.
const createParallel = 16

// AtOnce is how many child runs a process creates at the same time: so many places it needs.
const AtOnce = createParallel

// places are shared by namespaces; *shares.Shares does.
type places interface {
	Wait(ctx context.Context, namespace string) (done func(), err error)
}

// Children reads and creates the relatives of runs.
type Children struct {
	// Places has one for each creation under way: a creation goes through webhooks, and the API
	// server has no more room for the operator while too many do. Nil: any number.
	Places places
	Client client.Client // reads from the cache, writes directly
	Live   client.Reader // reads from the API server
	Clock  clock.PassiveClock
	Owner  client.FieldOwner
	// Traces gives child runs their place in traces; nil, and an empty text: they have none.
	Traces func(parent *v1alpha1.WorkflowRun, step string) string
}

// State is what became of the creation of child runs, by name, until status has their uid.
type State map[string]creation

type creation struct {
	fact  lifecycle.Child
	again time.Time // ChildPostponed: when it is tried again
	// there is the run that has the name and could not be compared; empty: the name is free.
	there types.UID
	// blind: it could not be read which one has the name.
	blind bool
	// since is when it was first refused to compare the run that is there; zero: it was not.
	since time.Time
}

// NotYetCreated are the steps whose child run is in status and not known to exist, as far as it is
// time to create them.
func (st State) NotYetCreated(run *v1alpha1.WorkflowRun, now time.Time) []string {
	var steps []string
	for _, s := range lifecycle.Children(run) {
		b := st[s.ChildRun.Name]
		due := b.fact.State == lifecycle.ChildUnknown || (b.fact.State == lifecycle.ChildPostponed && !now.Before(b.again))
		if s.ChildRun.UID == "" && due {
			steps = append(steps, s.Name)
		}
	}
	return steps
}

// lease says whether the run's lock is still held; *lockmgr.Lease does.
type lease interface{ Err() error }

// renderer renders the child run of a step again, with the outputs that its inputs are made of. No
// retry helps where its error wraps a *render.LostError, and an error that wraps render.ErrEnough
// leaves it for the next pass.
type renderer func(ctx context.Context, step string) (lifecycle.ChildToCreate, error)

// Create creates the child runs which status names and which are not known to exist: those of the
// write just made, and those of earlier ones, also of another process. Two who do the same create
// one. It says whether anything became of it, which the next pass is to write.
func (c *Children) Create(ctx context.Context, st *State, parent *v1alpha1.WorkflowRun, held lease, fresh []lifecycle.ChildToCreate, again renderer) (news bool, err error) {
	rendered := make(map[string]lifecycle.ChildToCreate, len(fresh))
	for _, child := range fresh {
		rendered[child.Step] = child
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	became := func(step string, b creation, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = errors.Join(failed, err)
			return
		}
		st.note(nameOf(parent, step), b, c.Clock.Now())
		news = true
	}
	slots := make(chan struct{}, createParallel)
	for _, step := range st.NotYetCreated(parent, c.Clock.Now()) {
		child, ok := rendered[step]
		if !ok {
			var err error
			switch child, err = again(ctx, step); {
			case errors.Is(err, render.ErrEnough):
				continue
			case err != nil:
				b, err := unrendered(err)
				became(step, b, err)
				continue
			}
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b, err := c.create(ctx, parent, held, child)
			became(step, b, err)
		})
	}
	wg.Wait()
	return news, failed
}

// nameOf is the child run of a step, as status names it.
func nameOf(parent *v1alpha1.WorkflowRun, step string) string {
	for _, s := range lifecycle.Children(parent) {
		if s.Name == step {
			return s.ChildRun.Name
		}
	}
	return ""
}

// unrendered says what it means that a child run could not be rendered: that it never can be, or
// that nothing is known.
func unrendered(err error) (creation, error) {
	if lost, ok := errors.AsType[*render.LostError](err); ok {
		return creation{fact: lifecycle.Child{State: lifecycle.ChildRefused, Cause: lost.Error()}}, nil
	}
	return creation{}, err
}

// note remembers what became of a creation, for the next pass, which is to be made at once. The
// cause of a wait stays what it was at first: each other one would cost a write. A run that
// is there and cannot be compared for long ends the wait: it would be one without an end, as
// it waits, too. The time of one run is not that of another.
func (st *State) note(name string, b creation, now time.Time) {
	if was := (*st)[name]; was.fact.State == lifecycle.ChildPostponed && b.fact.State == lifecycle.ChildPostponed {
		same := b.blind || b.there == was.there
		if same && !b.since.IsZero() && !was.since.IsZero() && now.Sub(was.since) >= compareBound {
			b.fact.State = lifecycle.ChildRefused
		} else {
			b.fact = was.fact
			if same {
				b.there, b.since = was.there, cmp.Or(was.since, b.since)
			}
		}
	}
	if *st == nil {
		*st = State{}
	}
	(*st)[name] = b
}

// create creates a child run and says what became of it. An error says that nothing is known.
func (c *Children) create(ctx context.Context, parent *v1alpha1.WorkflowRun, held lease, child lifecycle.ChildToCreate) (creation, error) {
	if c.Places != nil {
		done, err := c.Places.Wait(ctx, parent.Namespace)
		if err != nil {
			return creation{}, fmt.Errorf("create child run: %w", err)
		}
		defer done()
	}
	if err := held.Err(); err != nil { // it may have been lost during the wait
		return creation{}, err
	}
	run := childRun(parent, child)
	if c.Traces != nil {
		if place := c.Traces(parent, child.Step); place != "" {
			metav1.SetMetaDataAnnotation(&run.ObjectMeta, v1alpha1.AnnotationTraceparent, place)
		}
	}
	err := c.Client.Create(ctx, run, c.Owner)
	switch {
	case err == nil:
		log.FromContext(ctx).V(1).Info("Child run created", "step", child.Step, "child", child.Name, "uid", run.UID)
		return creation{fact: facts.SeenChild(run)}, nil
	case ctx.Err() != nil:
		return creation{}, fmt.Errorf("create child run: %w", err)
	default:
		return c.refused(ctx, parent, child, err)
	}
}

// refused says what a refused creation means. The run of the name is looked for whatever the API
// server says: a quota that it fills itself, or a policy that came after it, refuses before anybody
// sees that it exists.
func (c *Children) refused(ctx context.Context, parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate, cause error) (creation, error) {
	found := &v1alpha1.WorkflowRun{}
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: parent.Namespace, Name: child.Name}, found)
	switch {
	case err == nil:
		return c.checkAdoption(ctx, parent, child, found)
	case !apierrors.IsNotFound(err):
		b, err := c.postponed(ctx, fmt.Errorf("read run %s: %w", child.Name, err))
		b.blind = true
		return b, err
	case apierrors.IsInvalid(cause) || apierrors.IsBadRequest(cause):
		return creation{fact: lifecycle.Child{State: lifecycle.ChildRefused, Cause: cause.Error()}}, nil
	default: // also one that exists, as it was said, and has just been deleted
		return c.postponed(ctx, cause)
	}
}

// postponed says that a child run has to be tried again.
func (c *Children) postponed(ctx context.Context, err error) (creation, error) {
	if ctx.Err() != nil {
		return creation{}, fmt.Errorf("create child run: %w", err)
	}
	wait := createDelay
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		wait = time.Duration(s) * time.Second
	}
	log.FromContext(ctx).Info("A child run cannot be created", "delay", wait, "cause", err.Error())
	return creation{fact: lifecycle.Child{State: lifecycle.ChildPostponed, Cause: err.Error()}, again: c.Clock.Now().Add(wait)}, nil
}

// childRun is a child run as it is created. It says who created its parent, and so its root, for
// admission policies that look at users.
func childRun(parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: parent.Namespace, Name: child.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, v1alpha1.GroupVersion.WithKind("WorkflowRun"))},
		},
		Spec: child.Spec,
	}
	if by, ok := parent.Annotations[v1alpha1.AnnotationCreatedBy]; ok {
		run.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by}
	}
	return run
}

// checkAdoption says whether the run that has the name of a child run is that child: created before
// a crash, say. It has to be as it would be created now. The API server says how that is, policies
// included. Where it refuses, as a quota does that the child itself has filled, the spec that was
// asked for is compared.
func (c *Children) checkAdoption(ctx context.Context, parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate, found *v1alpha1.WorkflowRun) (creation, error) {
	claim := found.ClaimsParent()
	if claim == nil || claim.UID != string(parent.UID) {
		return foreign("a run of this name exists, which is not owned by run " + parent.Name), nil
	}
	if found.Status != nil && found.Status.Tenant != "" && found.Status.Tenant != parent.Status.Tenant {
		return foreign("a run of this name exists, of tenant " + found.Status.Tenant), nil
	}
	want := childRun(parent, child)
	want.Name, want.GenerateName = "", "dry-run-"
	refusal := c.Client.Create(ctx, want, client.DryRunAll, c.Owner)
	switch {
	case refusal == nil && !alike(want.Spec, found.Spec):
		return foreign("a run of this name exists, with another spec"), nil
	case refusal != nil && !alike(child.Spec, found.Spec):
		return c.uncompared(ctx, found, refusal)
	default:
		return creation{fact: facts.SeenChild(found)}, nil
	}
}

// uncompared says that the run of the name is the child only if a policy made another spec of the
// wanted one, which the API server does not show now.
func (c *Children) uncompared(ctx context.Context, found *v1alpha1.WorkflowRun, refusal error) (creation, error) {
	b, err := c.postponed(ctx, fmt.Errorf("compare with run %s, whose spec is not the one asked for: %w", found.Name, refusal))
	b.there = found.UID
	if passes.Refused(refusal) {
		b.since = c.Clock.Now()
	}
	return b, err
}

func foreign(why string) creation {
	return creation{fact: lifecycle.Child{State: lifecycle.ChildTaken, Cause: why}}
}

// alike says whether specs are the same in what users cannot change.
func alike(a, b v1alpha1.WorkflowRunSpec) bool {
	one, err := asStored(a)
	other, err2 := asStored(b)
	return err == nil && err2 == nil && bytes.Equal(one, other)
}

// asStored is what users cannot change of a spec, as the API server stores it where no policy
// changes it: with the defaults, and JSON in one form.
func asStored(spec v1alpha1.WorkflowRunSpec) ([]byte, error) {
	spec.Suspend, spec.Shutdown, spec.TTLSecondsAfterFinished, spec.Priority = false, "", nil, 0
	spec.WorkloadClass = cmp.Or(spec.WorkloadClass, "default")
	spec.MaxParallelSteps = cmp.Or(spec.MaxParallelSteps, bounds.DefaultParallel)
	spec.FinallyTimeoutSeconds = cmp.Or(spec.FinallyTimeoutSeconds, bounds.DefaultFinallyTimeout)
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write a spec: %w", err)
	}
	var plain any
	if err := utiljson.Unmarshal(text, &plain); err != nil { // as the API server reads numbers
		return nil, fmt.Errorf("read a spec: %w", err)
	}
	return json.Marshal(plain)
}
