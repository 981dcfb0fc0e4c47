package workflowrun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// birthDelay is the wait before a child run is created again that could not be, if the API server does not say how long.
const birthDelay = 5 * time.Second

// birth is what became of the creation of a child run, until status has its uid.
type birth struct {
	fact  lifecycle.Child
	again time.Time // ChildPostponed: when it is tried again
}

// unborn are the steps whose child run is in status and not known to exist, as far as it is time to create them.
func (m *memory) unborn(run *v1alpha1.WorkflowRun, now time.Time) []string {
	var steps []string
	for _, s := range lifecycle.Children(run) {
		b := m.births[s.ChildRun.Name]
		due := b.fact.State == lifecycle.ChildUnknown || (b.fact.State == lifecycle.ChildPostponed && !now.Before(b.again))
		if s.ChildRun.UID == "" && due {
			steps = append(steps, s.Name)
		}
	}
	return steps
}

// observeFamily reads the parent that the run claims, and its child runs under way.
func (p *pass) observeFamily(ctx context.Context) error {
	if claim := p.run.ClaimsParent(); claim != nil {
		parent, err := p.relative(ctx, claim.Name, claim.UID)
		if err != nil {
			return fmt.Errorf("read parent run: %w", err)
		}
		p.parent = lifecycle.SeenParent(p.run, parent)
	}
	list := lifecycle.Children(p.run)
	p.children = make(map[string]lifecycle.Child, len(list))
	births := make(map[string]birth, len(list))
	for _, s := range list {
		name := s.ChildRun.Name
		if s.ChildRun.UID == "" {
			b := p.mem.births[name]
			births[name], p.children[name] = b, b.fact
			if b.fact.State == lifecycle.ChildPostponed {
				p.later = pacing.Earliest(p.later, b.again)
			}
			continue
		}
		child, err := p.relative(ctx, name, s.ChildRun.UID)
		if err != nil {
			return fmt.Errorf("read child run: %w", err)
		}
		p.children[name] = lifecycle.Child{State: lifecycle.ChildGone}
		if child != nil {
			p.children[name] = lifecycle.SeenChild(child)
		}
	}
	p.mem.births = births
	return nil
}

// relative reads another run of the namespace; nil: it does not exist. That is decided on a live read only: what the cache has not
// seen may be new.
func (p *pass) relative(ctx context.Context, name, uid string) (*v1alpha1.WorkflowRun, error) {
	key := types.NamespacedName{Namespace: p.key.Namespace, Name: name}
	run := &v1alpha1.WorkflowRun{}
	err := p.client.Get(ctx, key, run)
	if err == nil && string(run.UID) == uid {
		return run, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	run = &v1alpha1.WorkflowRun{}
	err = p.live.Get(ctx, key, run)
	switch {
	case err == nil && string(run.UID) == uid:
		return run, nil
	case client.IgnoreNotFound(err) != nil:
		return nil, err
	default:
		return nil, nil //nolint:nilnil // that it is gone is an answer
	}
}

// createChildren creates the child runs which status names and which are not known to exist: those of the write just made, and those
// of earlier ones, also of another process. Two who do the same create one.
func (p *pass) createChildren(ctx context.Context, fresh []lifecycle.ChildToCreate) error {
	if p.lease == nil {
		return nil
	}
	rendered := make(map[string]lifecycle.ChildToCreate, len(fresh))
	for _, c := range fresh {
		rendered[c.Step] = c
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
	)
	slots := make(chan struct{}, publishParallel)
	for _, step := range p.mem.unborn(p.run, p.clock.Now()) {
		c, ok := rendered[step]
		if !ok {
			var err error
			if c, err = p.renderedChild(ctx, step); err != nil {
				failed = errors.Join(failed, err)
				continue
			}
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			b, err := p.createChild(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			p.born(c.Name, b)
		})
	}
	wg.Wait()
	return failed
}

// born remembers what became of a creation, for the next pass, which is to be made at once. The cause of a wait stays what it was
// at first: each other one would cost a write.
func (p *pass) born(name string, b birth) {
	if was := p.mem.births[name]; was.fact.State == lifecycle.ChildPostponed && b.fact.State == lifecycle.ChildPostponed {
		b.fact = was.fact
	}
	if p.mem.births == nil {
		p.mem.births = map[string]birth{}
	}
	p.mem.births[name] = b
	p.later = pacing.Earliest(p.later, p.clock.Now())
}

// renderedChild renders the child run of a step again, with the outputs that its inputs are made of.
func (p *pass) renderedChild(ctx context.Context, step string) (lifecycle.ChildToCreate, error) {
	var lack lifecycle.Needs
	for _, ref := range lifecycle.ChildInputs(p.run, step) {
		if p.found.payloads[ref.Name].Data == nil {
			lack.Load = append(lack.Load, ref)
		}
	}
	if err := p.supply(ctx, lack); err != nil {
		return lifecycle.ChildToCreate{}, err
	}
	return lifecycle.ChildOf(p.run, step, p.found.payloads)
}

// createChild creates a child run and says what became of it. An error says that nothing is known.
func (p *pass) createChild(ctx context.Context, c lifecycle.ChildToCreate) (birth, error) {
	if err := p.lease.Err(); err != nil {
		return birth{}, err
	}
	run := p.childRun(c)
	err := p.client.Create(ctx, run, fieldOwner)
	switch {
	case err == nil:
		log.FromContext(ctx).V(1).Info("Child run created", "step", c.Step, "child", c.Name, "uid", run.UID)
		return birth{fact: lifecycle.SeenChild(run)}, nil
	case apierrors.IsAlreadyExists(err):
		return p.whose(ctx, c)
	default:
		return p.notBorn(ctx, err)
	}
}

// notBorn says what it means that a child run could not be created: that it is not as it has to be, or that it has to be tried again.
func (p *pass) notBorn(ctx context.Context, err error) (birth, error) {
	switch {
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err):
		return birth{fact: lifecycle.Child{State: lifecycle.ChildRefused, Cause: err.Error()}}, nil
	case ctx.Err() != nil:
		return birth{}, fmt.Errorf("create child run: %w", err)
	}
	wait := birthDelay
	if s, ok := apierrors.SuggestsClientDelay(err); ok && s > 0 {
		wait = time.Duration(s) * time.Second
	}
	log.FromContext(ctx).Info("A child run cannot be created", "delay", wait, "cause", err.Error())
	return birth{fact: lifecycle.Child{State: lifecycle.ChildPostponed, Cause: err.Error()}, again: p.clock.Now().Add(wait)}, nil
}

// childRun is a child run as it is created. It says who created its parent, and so its root, for admission policies that look at users.
func (p *pass) childRun(c lifecycle.ChildToCreate) *v1alpha1.WorkflowRun {
	run := &v1alpha1.WorkflowRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.key.Namespace, Name: c.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p.run, v1alpha1.GroupVersion.WithKind("WorkflowRun"))},
		},
		Spec: c.Spec,
	}
	if by, ok := p.run.Annotations[v1alpha1.AnnotationCreatedBy]; ok {
		run.Annotations = map[string]string{v1alpha1.AnnotationCreatedBy: by}
	}
	return run
}

// whose says whether the run that has the name of a child run is that child: created before a crash, say. It has to be as it would be
// created now, by the API server's own defaults.
func (p *pass) whose(ctx context.Context, c lifecycle.ChildToCreate) (birth, error) {
	found := &v1alpha1.WorkflowRun{}
	if err := p.live.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: c.Name}, found); err != nil {
		return p.notBorn(ctx, fmt.Errorf("read run %s: %w", c.Name, err)) // it may just have been deleted
	}
	claim := found.ClaimsParent()
	if claim == nil || claim.UID != string(p.run.UID) {
		return foreign("a run of this name exists, which is not owned by run " + p.run.Name), nil
	}
	if found.Status != nil && found.Status.Tenant != "" && found.Status.Tenant != p.run.Status.Tenant {
		return foreign("a run of this name exists, of tenant " + found.Status.Tenant), nil
	}
	want := p.childRun(c)
	want.Name, want.GenerateName = "", "dry-run-"
	if err := p.client.Create(ctx, want, client.DryRunAll, fieldOwner); err != nil {
		return p.notBorn(ctx, fmt.Errorf("compare with run %s: %w", c.Name, err))
	}
	if !equality.Semantic.DeepEqual(fixed(want.Spec), fixed(found.Spec)) {
		return foreign("a run of this name exists, with another spec"), nil
	}
	return birth{fact: lifecycle.SeenChild(found)}, nil
}

func foreign(why string) birth {
	return birth{fact: lifecycle.Child{State: lifecycle.ChildTaken, Cause: why}}
}

// fixed is a spec without what users may change.
func fixed(spec v1alpha1.WorkflowRunSpec) v1alpha1.WorkflowRunSpec {
	spec.Suspend, spec.Shutdown, spec.TTLSecondsAfterFinished, spec.Priority = false, "", nil, 0
	return spec
}
