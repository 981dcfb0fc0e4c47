// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/revisions"
	"github.com/syncopate-dev/syncopate/internal/template"
)

const (
	// retiringPause is the wait before a revision is looked at again that was about to be deleted.
	retiringPause = time.Second
	// refusedPause is the wait before a revision is kept that the API server refused: thousands of
	// runs may wait for it. An edit of the Workflow ends it.
	refusedPause = 30 * time.Second
)

// revisionStore keeps revisions; *revisions.Store does.
type revisionStore interface {
	Ensure(ctx context.Context, w *v1alpha1.Workflow) (*template.Content, error)
	Load(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (c *template.Content, size int, err error)
	Has(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) error
}

// Templates gives runs their steps. Safe for concurrent use.
type Templates struct {
	live    client.Reader
	store   revisionStore
	clock   clock.PassiveClock
	cache   *cache
	waiting waiting
	doubts  doubts
}

// New makes one that reads Workflows live, and keeps so many bytes of revisions.
func New(live client.Reader, store revisionStore, c clock.PassiveClock, maxBytes int64) *Templates {
	return &Templates{live: live, store: store, clock: c, cache: newCache(maxBytes)}
}

// Found is what a run follows.
type Found struct {
	// Run is the run with the steps of its Workflow; as it is stored if it has steps of its own.
	Run *v1alpha1.WorkflowRun
	// Template is what the core is told.
	Template lifecycle.Template
	// RetryAt is when to look again; zero: when something changes.
	RetryAt time.Time
	// Refused is why a run cannot have the revision that it follows for now: that is gone, and the
	// API server refuses to keep it again. Run has as much of its steps then as its status tells.
	// nil: the run has its steps, or nothing can give them back.
	Refused error
}

// Of finds what a run follows. Its error is one of the API server, or what is not believed yet:
// nothing is known then. It is a revisions.ErrGone where a pinned revision is not there. That
// something is missing is believed once it was missing for some seconds: a run would end for good
// by one wrong answer.
func (t *Templates) Of(ctx context.Context, run *v1alpha1.WorkflowRun) (Found, error) {
	ref := run.Spec.WorkflowRef
	switch {
	case ref == nil:
		return Found{Run: run}, nil
	case lifecycle.Finished(run):
		t.Forget(client.ObjectKeyFromObject(run), run.UID)
		return Found{Run: run}, nil
	case run.Status != nil && run.Status.Workflow != nil:
		return t.pinned(ctx, run, *run.Status.Workflow)
	}
	t.waiting.note(client.ObjectKeyFromObject(run), run.UID, types.NamespacedName{Namespace: run.Namespace, Name: ref.Name}) // before it is read
	w, err := t.workflow(ctx, run.Namespace, ref.Name)
	switch {
	case err != nil:
		return Found{}, err
	case w == nil:
		return t.missed(run, missing(run, "spec.workflowRef.name: Workflow %s does not exist", ref.Name)), nil
	}
	return t.resolve(ctx, run, w)
}

// missed is what a run that has not begun misses. It may have been created long ago, while nobody
// was there to see it: it does not end before it was looked for twice.
func (t *Templates) missed(run *v1alpha1.WorkflowRun, is Found) Found {
	now := t.clock.Now()
	if t.doubts.miss(run, now) || now.Before(run.CreationTimestamp.Add(facts.TemplatePatience-doubtPause)) {
		return is
	}
	return t.wait(is, doubtPause)
}

// Forget forgets a run that is gone, or that another process drives, and no other of its name.
func (t *Templates) Forget(run types.NamespacedName, uid types.UID) {
	t.waiting.forget(run, uid)
	t.doubts.forget(uid)
}

// WaitingFor are the runs that wait for a Workflow.
func (t *Templates) WaitingFor(workflow types.NamespacedName) []types.NamespacedName {
	return t.waiting.of(workflow)
}

func missing(run *v1alpha1.WorkflowRun, format string, args ...any) Found {
	return Found{Run: run, Template: lifecycle.Template{Missing: fmt.Sprintf(format, args...)}}
}

func found(run *v1alpha1.WorkflowRun, c *template.Content) Found {
	is := Found{Template: lifecycle.Template{Revision: &v1alpha1.WorkflowRevision{Name: c.Workflow, Revision: c.Revision}}}
	var inputs []byte
	if initialized(run) {
		inputs = c.WithDefaults(run.Spec.Inputs)
	} else {
		inputs, is.Template.Problems = c.Inputs(run.Spec.Inputs)
		is.Template.Inputs = c.InputNames()
	}
	is.Run = c.Effective(run, inputs)
	return is
}

// initialized says whether the inputs of a run were checked: status has steps from then on, and
// inputs are immutable. To check them can take tens of milliseconds.
func initialized(run *v1alpha1.WorkflowRun) bool {
	return run.Status != nil && run.Status.Workflow != nil && len(run.Status.Steps) > 0
}

// workflow reads a Workflow live; nil: there is none.
func (t *Templates) workflow(ctx context.Context, namespace, name string) (*v1alpha1.Workflow, error) {
	w := &v1alpha1.Workflow{}
	err := t.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, w)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("read Workflow %s: %w", name, err)
	}
	return w, nil
}

// pinned is a run whose revision is in status.
func (t *Templates) pinned(ctx context.Context, run *v1alpha1.WorkflowRun, r v1alpha1.WorkflowRevision) (Found, error) {
	t.waiting.forget(client.ObjectKeyFromObject(run), run.UID)
	c, err := t.load(ctx, run.Namespace, r)
	var refused error
	if errors.Is(err, revisions.ErrGone) {
		if c, err = t.again(ctx, run.Namespace, r); revisions.Refused(err) {
			refused, err = fmt.Errorf("%w: %w", revisions.ErrGone, err), nil
		}
	}
	switch {
	case err != nil:
		return Found{}, err
	case refused != nil || c == nil:
		return t.lost(run, r, refused)
	}
	t.doubts.forget(run.UID)
	return found(run, c), nil
}

// lost is a run whose revision is gone, and is not to be made again: its Workflow has another
// content, or that is refused.
func (t *Templates) lost(run *v1alpha1.WorkflowRun, r v1alpha1.WorkflowRevision, refused error) (Found, error) {
	if !t.doubts.miss(run, t.clock.Now()) {
		return Found{}, cmp.Or(refused, errDoubted)
	}
	if refused == nil {
		return missing(lifecycle.WithoutTemplate(run), "status.workflow: revision %s of Workflow %s was deleted", r.Revision, r.Name), nil
	}
	is := missing(lifecycle.WithoutTemplate(run), "status.workflow: revision %s of Workflow %s cannot be had; %v", r.Revision, r.Name, refused)
	is.Template.Patient, is.Refused = true, refused
	return is, nil
}

// load reads a revision, if it is not in the cache.
func (t *Templates) load(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	k := key{namespace, r}
	if c := t.cache.get(k); c != nil {
		return c, nil
	}
	c, size, err := t.store.Load(ctx, namespace, r)
	if err != nil {
		return nil, err
	}
	t.cache.put(k, c, size)
	return c, nil
}

// Named is a revision that somebody named by hand. That it exists is read each time, since the
// cache may have what is deleted; what it has is read once. Its error may be revisions.ErrGone.
func (t *Templates) Named(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	if err := t.store.Has(ctx, namespace, r); err != nil {
		return nil, err
	}
	return t.load(ctx, namespace, r)
}

// again makes a revision again that is gone, if its Workflow has that content; nil: it has not.
func (t *Templates) again(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (*template.Content, error) {
	w, err := t.workflow(ctx, namespace, r.Name)
	if err != nil || w == nil {
		return nil, err
	}
	_, revision, err := template.Encode(&w.Spec)
	if err != nil {
		return nil, err
	}
	if revision != r.Revision {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return t.store.Ensure(ctx, w)
}

// resolve is a run that is seen for the first time, and follows a Workflow that exists.
func (t *Templates) resolve(ctx context.Context, run *v1alpha1.WorkflowRun, w *v1alpha1.Workflow) (Found, error) {
	c, err := t.choose(ctx, run, w)
	if errors.Is(err, revisions.ErrGone) {
		return t.missed(run, missing(run, "spec.workflowRef.revision: Workflow %s has no revision %s", w.Name, run.Spec.WorkflowRef.Revision)), nil
	}
	t.doubts.forget(run.UID)
	if revisions.Refused(err) {
		return t.wait(missing(run, "spec.workflowRef: the revision of Workflow %s cannot be kept; %v", w.Name, err), refusedPause), nil
	}
	if err != nil {
		return Found{}, err
	}
	if w.Status != nil && slices.Contains(w.Status.Retiring, c.Revision) {
		return t.wait(missing(run, "spec.workflowRef: revision %s of Workflow %s is about to be deleted", c.Revision, w.Name), retiringPause), nil
	}
	return found(run, c), nil
}

// wait has a run wait without an end for what exists, and looks again after a pause.
func (t *Templates) wait(is Found, pause time.Duration) Found {
	is.Template.Patient, is.RetryAt = true, t.clock.Now().Add(pause)
	return is
}

// choose is the revision that the run names, else the current one.
func (t *Templates) choose(ctx context.Context, run *v1alpha1.WorkflowRun, w *v1alpha1.Workflow) (*template.Content, error) {
	wanted := run.Spec.WorkflowRef.Revision
	current, known := revisions.Known(w)
	switch {
	case known && (wanted == "" || wanted == current):
		c, err := t.load(ctx, run.Namespace, v1alpha1.WorkflowRevision{Name: w.Name, Revision: current})
		if errors.Is(err, revisions.ErrGone) {
			return t.store.Ensure(ctx, w)
		}
		return c, err
	case wanted == "":
		return t.store.Ensure(ctx, w)
	}
	c, err := t.Named(ctx, run.Namespace, v1alpha1.WorkflowRevision{Name: w.Name, Revision: wanted})
	if !errors.Is(err, revisions.ErrGone) {
		return c, err
	}
	if _, is, encoding := template.Encode(&w.Spec); encoding != nil || is != wanted {
		return nil, err
	}
	return t.store.Ensure(ctx, w)
}
