// SPDX-License-Identifier: Apache-2.0

package children

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
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
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/render"
)

const (
	// createDelay is the wait before a child run is created again that could not be, if the API
	// server does not say how long. It doubles with each refusal.
	createDelay = 5 * time.Second
	// mostDelay is how long such a wait becomes.
	mostDelay = 5 * time.Minute
	// textPause is how long a run tells one cause of a wait before it tells another: each costs a
	// write.
	textPause = time.Minute
	// compareBound is how long a run that may be the child is looked at which nobody can
	// compare: the API server refuses to say what it makes of the wanted spec. Quotas and
	// policies may be mended meanwhile.
	compareBound = 10 * time.Minute
	// createTimeout bounds one creation. It is longer than an API server takes for a request
	// (--request-timeout, a minute), so that what webhooks do in that time is waited for, or the
	// server says what did not answer.
	createTimeout = 65 * time.Second
	// readTimeout bounds a look at the run that has the name: no webhook has a part in that.
	readTimeout = 8 * time.Second
	// patience is how long a pass waits for creations that it began, and for further places
	// meanwhile. It has the lock of its run then, and other effects.
	patience = 4 * time.Second
	// briefly is that where creations of the run that an earlier pass left are under way, and for a
	// place where this pass began none: the end of each creation wakes the run, and so
	// does its turn.
	briefly = 100 * time.Millisecond
)

// AtOnce is how many child runs a process creates at the same time: so many places it needs.
const AtOnce = 16

// places are shared by namespaces; *shares.Shares does.
type places interface {
	Take(namespace string, granted func()) *shares.Ticket
	Again(was *shares.Ticket, granted func()) *shares.Ticket
	Has(t *shares.Ticket) bool
	Give(t *shares.Ticket)
}

// Children reads and creates the relatives of runs.
type Children struct {
	// Places has one for each creation under way: a creation goes through webhooks, and the API
	// server has no more room for the operator while too many do. It is kept until the creation
	// is over, also when the pass is. Nil: any number.
	Places places
	Client client.Client // reads from the cache, writes directly
	Live   client.Reader // reads from the API server
	Clock  clock.PassiveClock
	Owner  client.FieldOwner
	// Wake has a pass made over a parent: a creation is over that its pass did not wait for, or it
	// is its turn to begin one. It must not block. Nil: nobody is told.
	Wake func(parent types.NamespacedName)
	// Traces gives child runs their place in traces; nil, and an empty text: they have none.
	Traces func(parent *v1alpha1.WorkflowRun, step string) string

	empty atomic.Pointer[empties] // nil: no run was in line yet
}

// lease says whether the run's lock is still held; *lockmgr.Lease does.
type lease interface{ Err() error }

// renderer renders the child run of a step again, with the outputs that its inputs are made of. No
// retry helps where its error wraps a *render.LostError, and an error that wraps render.ErrEnough
// leaves it for the next pass.
type renderer func(ctx context.Context, step string) (lifecycle.ChildToCreate, error)

// Create creates the child runs which status names and which are not known to exist: those of the
// write just made, and those of earlier ones, also of another process. Two who do the same create
// one. While a quota is full it begins one creation. It says whether another pass is to be made at
// once: something became of a creation, which that is to write, or there was no time for the rest.
// It waits for patience at most, and only for what it began itself: what is under way by then goes
// on by itself, until while ends, and wakes the parent. So does a place that comes free later.
func (c *Children) Create(ctx, while context.Context, st *State, parent *v1alpha1.WorkflowRun, held lease, fresh []lifecycle.ChildToCreate, again renderer) (news bool, err error) {
	waits, stop := context.WithTimeout(ctx, st.patience())
	defer stop()
	sum := c.each(ctx, waits, while, st, parent, held, byStep(fresh), again)
	atOnce := st.stay(c, sum.more)
	st.await(waits)
	landed, err := st.land(ctx, c.Clock.Now())
	sum.fails(err)
	return sum.news || atOnce || landed, sum.failed
}

// each begins the creations that are due, as long as the pass waits and there are places.
func (c *Children) each(ctx, waits, while context.Context, st *State, parent *v1alpha1.WorkflowRun, held lease, rendered map[string]lifecycle.ChildToCreate, again renderer) (sum tally) {
	sum.more = st.turn.waits() // its place may come before the pass is over
	for _, step := range st.NotYetCreated(parent, c.Clock.Now()) {
		if st.stops() || st.turn.waits() {
			break
		}
		if waits.Err() != nil {
			sum.more = true
			break
		}
		child, ok := rendered[step]
		if !ok {
			child, ok = c.rendered(ctx, st, parent, step, again, &sum)
		}
		if ok {
			has, err := c.begin(ctx, waits, while, st, parent, held, child)
			sum.fails(err)
			sum.more = sum.more || !has
		}
	}
	return sum
}

// tally is what a pass did about children.
type tally struct {
	news   bool // something became of one
	more   bool // there are others, for which it has no time, or found no place
	failed error
}

func (s *tally) fails(err error) { s.failed = errors.Join(s.failed, err) }

func byStep(children []lifecycle.ChildToCreate) map[string]lifecycle.ChildToCreate {
	by := make(map[string]lifecycle.ChildToCreate, len(children))
	for _, child := range children {
		by[child.Step] = child
	}
	return by
}

// rendered renders the child run of a step. Where it cannot, what became of it is noted, or it is
// left for the next pass.
func (c *Children) rendered(ctx context.Context, st *State, parent *v1alpha1.WorkflowRun, step string, again renderer, sum *tally) (child lifecycle.ChildToCreate, ok bool) {
	child, err := again(ctx, step)
	switch {
	case err == nil:
		return child, true
	case errors.Is(err, render.ErrEnough):
		sum.more = true
		return child, false
	}
	b, err := unrendered(err)
	if sum.fails(err); err == nil {
		st.note(ctx, nameOf(parent, step), b, c.Clock.Now())
		sum.news = true
	}
	return child, false
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

// create creates a child run with a place in traces, and says what became of it. An error says that
// nothing is known.
func (c *Children) create(ctx context.Context, parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate, trace string) (creation, error) {
	run := childRun(parent, child)
	if trace != "" {
		metav1.SetMetaDataAnnotation(&run.ObjectMeta, v1alpha1.AnnotationTraceparent, trace)
	}
	err := within(ctx, createTimeout, func(ctx context.Context) error { return c.Client.Create(ctx, run, c.Owner) })
	switch {
	case err == nil:
		log.FromContext(ctx).V(1).Info("Child run created", "step", child.Step, "child", child.Name, "uid", run.UID)
		return creation{fact: facts.SeenChild(run), created: true}, nil
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
	err := within(ctx, readTimeout, func(ctx context.Context) error {
		return c.Live.Get(ctx, types.NamespacedName{Namespace: parent.Namespace, Name: child.Name}, found)
	})
	switch {
	case err == nil:
		return c.checkAdoption(ctx, parent, child, found)
	case !apierrors.IsNotFound(err):
		b, err := postponed(ctx, "read ", fmt.Errorf("read run %s: %w", child.Name, err))
		b.blind = true
		return b, err
	case c.seen(ctx, parent, child): // one wrong answer must not fail the step while its child goes on
		b, err := postponed(ctx, "", fmt.Errorf("run %s is not there by the word of the API server, and its watch has it: %w", child.Name, err))
		b.blind = true
		return b, err
	case apierrors.IsInvalid(cause) || apierrors.IsBadRequest(cause):
		return creation{fact: lifecycle.Child{State: lifecycle.ChildRefused, Cause: cause.Error()}}, nil
	default: // also one that exists, as it was said, and has just been deleted
		b, err := postponed(ctx, "", cause)
		b.full = fullQuota(cause)
		return b, err
	}
}

// seen says whether the cache has a child run of which the API server says that it is not there.
func (c *Children) seen(ctx context.Context, parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate) bool {
	found := &v1alpha1.WorkflowRun{}
	err := c.Client.Get(ctx, types.NamespacedName{Namespace: parent.Namespace, Name: child.Name}, found)
	return err == nil && isOf(parent, found)
}

// postponed says that a child run has to be tried again, for a cause that was met at something.
func postponed(ctx context.Context, at string, err error) (creation, error) {
	if ctx.Err() != nil {
		return creation{}, fmt.Errorf("create child run: %w", err)
	}
	b := creation{fact: lifecycle.Child{State: lifecycle.ChildPostponed, Cause: err.Error()}, kind: at + kindOf(err), refused: passes.Refused(err), wait: createDelay}
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		b.wait = time.Duration(s) * time.Second
	}
	return b, nil
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
	run.Annotations = map[string]string{v1alpha1.AnnotationParent: v1alpha1.ParentNote(parent)}
	if by, ok := parent.Annotations[v1alpha1.AnnotationCreatedBy]; ok {
		run.Annotations[v1alpha1.AnnotationCreatedBy] = by
	}
	return run
}

// checkAdoption says whether the run that has the name of a child run is that child: created before
// a crash, say. It has to be as it would be created now. The API server says how that is, policies
// included. Where it refuses, as a quota does that the child itself has filled, the spec that was
// asked for is compared.
func (c *Children) checkAdoption(ctx context.Context, parent *v1alpha1.WorkflowRun, child lifecycle.ChildToCreate, found *v1alpha1.WorkflowRun) (creation, error) {
	if !isOf(parent, found) {
		return foreign("a run of this name exists, which is not owned by run " + parent.Name), nil
	}
	if found.Status != nil && found.Status.Tenant != "" && found.Status.Tenant != parent.Status.Tenant {
		return foreign("a run of this name exists, of tenant " + found.Status.Tenant), nil
	}
	want := childRun(parent, child)
	want.Name, want.GenerateName = "", child.Name+"-" // policies may look at how names begin
	refusal := within(ctx, createTimeout, func(ctx context.Context) error { return c.Client.Create(ctx, want, client.DryRunAll, c.Owner) })
	switch {
	case refusal == nil && !alike(want.Spec, found.Spec):
		return foreign("a run of this name exists, with another spec"), nil
	case refusal != nil && !alike(child.Spec, found.Spec):
		return c.uncompared(ctx, found, refusal)
	default:
		return creation{fact: facts.SeenChild(found)}, nil
	}
}

// isOf says whether a run is a child of another one. What nobody owns would outlive the parent: the
// annotation alone makes none, unless the run's status has pinned it.
func isOf(parent, found *v1alpha1.WorkflowRun) bool {
	claim, pinned := found.ClaimsParent(), found.Status != nil && found.Status.Parent != nil
	return claim != nil && claim.UID == string(parent.UID) && (pinned || metav1.IsControlledBy(found, parent))
}

// uncompared says that the run of the name is the child only if a policy made another spec of the
// wanted one, which the API server does not show now.
func (c *Children) uncompared(ctx context.Context, found *v1alpha1.WorkflowRun, refusal error) (creation, error) {
	b, err := postponed(ctx, "compare ", fmt.Errorf("compare with run %s, whose spec is not the one asked for: %w", found.Name, refusal))
	b.there = found.UID
	if b.refused {
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
