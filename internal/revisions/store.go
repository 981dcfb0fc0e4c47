// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// ErrGone is returned for a revision that does not exist, or whose object has another content. To
// try again helps only if somebody makes it again.
var ErrGone = errors.New("there is no such revision")

// errInTheWay is of an object that somebody else made under the name of a revision.
var errInTheWay = errors.New("is in the way")

// Refused says whether an error of Ensure is a refusal: it lasts until somebody does something, and
// the API server is there. A quota may be full, a policy may want other labels.
func Refused(err error) bool {
	return errors.Is(err, errInTheWay) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// Store keeps revisions.
type Store struct {
	// Live reads from the API server.
	Live client.Reader
	// Client writes.
	Client client.Client
	// Owner names who writes.
	Owner client.FieldOwner
}

// Known is the current revision of a Workflow, if its status says so and that is up to date: then
// the revision exists.
func Known(w *v1alpha1.Workflow) (revision string, ok bool) {
	if w.Status == nil || w.Status.Revision == "" || w.Status.ObservedGeneration != w.Generation {
		return "", false
	}
	return w.Status.Revision, true
}

// Ensure has the current revision of a Workflow kept.
func (s *Store) Ensure(ctx context.Context, w *v1alpha1.Workflow) (*template.Content, error) {
	data, revision, err := template.Encode(&w.Spec)
	if err != nil {
		return nil, err
	}
	content, err := template.Decode(w.Name, revision, data)
	if err != nil {
		return nil, err
	}
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: template.ObjectName(w.Name, revision),
			Labels:      map[string]string{v1alpha1.LabelWorkflow: w.Name},
			Annotations: map[string]string{v1alpha1.AnnotationWorkflowUID: string(w.UID)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: w.Generation,
	}
	err = s.Client.Create(ctx, made, s.Owner)
	if apierrors.IsAlreadyExists(err) {
		return content, s.claim(ctx, w, content)
	}
	if Refused(err) && s.claim(ctx, w, content) == nil {
		return content, nil // a full quota refuses what is there, too
	}
	if err != nil {
		return nil, fmt.Errorf("keep revision %s of Workflow %s: %w", revision, w.Name, err)
	}
	return content, nil
}

// claim says in a revision that exists that it is one of this Workflow. Whoever is about to delete
// it, for a Workflow that was deleted, is refused then.
func (s *Store) claim(ctx context.Context, w *v1alpha1.Workflow, c *template.Content) error {
	found := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: w.Namespace, Name: template.ObjectName(w.Name, c.Revision)}
	if err := s.Live.Get(ctx, key, found); err != nil {
		return fmt.Errorf("read revision %s: %w", key.Name, err)
	}
	if err := template.Verify(w.Name, c.Revision, found.Data.Raw); err != nil {
		return fmt.Errorf("ControllerRevision %s %w: %w", key.Name, errInTheWay, err)
	}
	if found.Annotations[v1alpha1.AnnotationWorkflowUID] == string(w.UID) && found.Labels[v1alpha1.LabelWorkflow] == w.Name {
		return nil
	}
	metav1.SetMetaDataAnnotation(&found.ObjectMeta, v1alpha1.AnnotationWorkflowUID, string(w.UID))
	metav1.SetMetaDataLabel(&found.ObjectMeta, v1alpha1.LabelWorkflow, w.Name)
	if err := s.Client.Update(ctx, found, s.Owner); err != nil {
		return fmt.Errorf("claim revision %s: %w", key.Name, err)
	}
	return nil
}

// Has reads whether there is a revision, and not what it has. Its error is ErrGone if
// there is none.
func (s *Store) Has(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ControllerRevision"))
	key := client.ObjectKey{Namespace: namespace, Name: template.ObjectName(r.Name, r.Revision)}
	switch err := s.Live.Get(ctx, key, found); {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("ControllerRevision %s: %w", key.Name, ErrGone)
	case err != nil:
		return fmt.Errorf("look for revision %s: %w", key.Name, err)
	}
	return nil
}

// Load reads a revision, with its size in bytes.
func (s *Store) Load(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) (c *template.Content, size int, err error) {
	data, err := s.stored(ctx, namespace, r)
	if err != nil {
		return nil, 0, err
	}
	c, err = template.Decode(r.Name, r.Revision, data)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrGone, err)
	}
	return c, len(data), nil
}

// Raw reads the JSON of a revision, with what a newer version put there. Its error is ErrGone as
// that of Load.
func (s *Store) Raw(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) ([]byte, error) {
	data, err := s.stored(ctx, namespace, r)
	if err != nil {
		return nil, err
	}
	if err := template.Verify(r.Name, r.Revision, data); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	return data, nil
}

// stored reads the object of a revision; what it has may be something else.
func (s *Store) stored(ctx context.Context, namespace string, r v1alpha1.WorkflowRevision) ([]byte, error) {
	found := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: namespace, Name: template.ObjectName(r.Name, r.Revision)}
	switch err := s.Live.Get(ctx, key, found); {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("ControllerRevision %s: %w", key.Name, ErrGone)
	case err != nil:
		return nil, fmt.Errorf("read revision %s: %w", key.Name, err)
	}
	return found.Data.Raw, nil
}
