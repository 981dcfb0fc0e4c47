// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// maxTries bounds the tries to mark a run that others write at the same time; the API server
// tries several times each.
const maxTries = 3

// fieldOwner names the operator in managedFields.
const fieldOwner = client.FieldOwner("syncopate")

// Where the metadata of a run has a mark.
const (
	inAnnotations = "annotations"
	inLabels      = "labels"
)

// Marker moves the resourceVersions of runs. A write that was prepared before is refused from then
// on. It is used by one process at a time, but two do no harm.
type Marker struct {
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads from the API server itself.
	Live client.Reader
	// Doubts waits for the watch where a run that cannot be marked may not be gone;
	// nil: nobody does.
	Doubts *Doubts
	// Name is that of the annotation.
	Name string
	// Log is told of runs that cannot be written.
	Log logr.Logger
}

// Mark changes the resourceVersion of a run and returns what the run is then; nil if it is gone. id
// is another one each time: the same changes nothing.
//
// It sets an annotation. Some runs take none: annotations have a bound, and objects, too. In the
// status of those it puts the first condition last, which says nothing new and needs no room. A run
// without conditions, which no operator has written yet, gets a label instead.
//
// A run that takes neither is told to the log, and returned as it is: nobody can write either what
// was prepared for it. What a write of status is refused that changes nothing, any other is refused
// as well. And where a label finds no room the first status of a run, which is larger, finds none.
//
// Errors: those of the API server, and ErrDoubted, once Doubts has waited. The run may be
// marked, unless it is Refused: then nobody may change it for now, and what was prepared for it
// may be written later.
func (m Marker) Mark(ctx context.Context, name types.NamespacedName, uid types.UID, id string) (*v1alpha1.WorkflowRun, error) {
	var err error
	for range maxTries {
		var marked *v1alpha1.WorkflowRun
		if marked, err = m.patch(ctx, name, uid, inAnnotations, id); err == nil {
			return marked, nil
		}
		// If it is gone, or another run has its name, it cannot be marked. A conflict may also be
		// that others write it all the time.
		now, e := m.read(ctx, name, uid)
		if e != nil || now == nil {
			return nil, e
		}
		if Refused(err) {
			if err = m.otherwise(ctx, now, id); err == nil {
				return m.read(ctx, name, uid)
			}
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			break
		}
	}
	return nil, fmt.Errorf("mark run %s: %w", name, err)
}

// otherwise marks a run that takes no annotation. It is no error if nobody can write the run.
func (m Marker) otherwise(ctx context.Context, run *v1alpha1.WorkflowRun, id string) (err error) {
	name, written := client.ObjectKeyFromObject(run), run.Status != nil && len(run.Status.Conditions) > 1
	if written {
		err = m.turn(ctx, run)
	} else {
		_, err = m.patch(ctx, name, run.UID, inLabels, id)
	}
	if tooLarge(err) || written && schemaRefuses(err) {
		m.Log.Info("A run cannot be marked: nobody can write it, and it is passed over", "run", name.String(), "cause", err.Error())
		return nil
	}
	return err
}

// patch sets an annotation or a label.
func (m Marker) patch(ctx context.Context, name types.NamespacedName, uid types.UID, field, id string) (*v1alpha1.WorkflowRun, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, field: map[string]string{m.Name: id}}})
	if err != nil {
		return nil, err
	}
	run := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	return run, m.Client.Patch(ctx, run, client.RawPatch(types.MergePatchType, patch), fieldOwner)
}

// turn puts the first condition last, if the run is still as it was read. The object is taken as it
// is stored: a newer operator may have written what this one does not know.
func (m Marker) turn(ctx context.Context, run *v1alpha1.WorkflowRun) error {
	now := &unstructured.Unstructured{}
	now.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkflowRun"))
	if err := m.Live.Get(ctx, client.ObjectKeyFromObject(run), now); err != nil {
		return err
	}
	const status, conditions = "status", "conditions"
	all, _, err := unstructured.NestedSlice(now.Object, status, conditions)
	if err != nil {
		return err
	}
	if len(all) > 1 {
		all = append(all[1:], all[0])
	}
	if err := unstructured.SetNestedSlice(now.Object, all, status, conditions); err != nil {
		return err
	}
	now.SetResourceVersion(run.ResourceVersion)
	return m.Client.Status().Update(ctx, now, fieldOwner)
}

// read is a run as the API server has it; nil if it is gone.
func (m Marker) read(ctx context.Context, name types.NamespacedName, uid types.UID) (*v1alpha1.WorkflowRun, error) {
	run, err := m.Doubts.Read(ctx, m.Live, m.Client, name, uid)
	if err != nil || run == nil || run.UID != uid {
		return nil, err // that it is gone is an answer
	}
	return run, nil
}

// Refused says that the API server does not take a change of a run, whoever else writes it
// meanwhile: somebody's word, and no sign that it, or a webhook, is away or has too much to do. A
// policy has some codes to choose from, a webhook all, and need not give a reason. Those of a run
// that is gone, or was written by others, are taken for that.
func Refused(err error) bool {
	var is apierrors.APIStatus
	if !errors.As(err, &is) {
		return false
	}
	switch code := is.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError || tooLarge(err)
	}
}

// Unmarked says, of an error of Mark, that the run may not be marked, by somebody's word. A webhook
// may also say so with the code of a conflict, or of a run that is gone; it was tried several times
// then. So it says of any patch that names no version, of a run that is there.
func Unmarked(err error) bool {
	return Refused(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err)
}

// schemaRefuses says that an object is none of its kind. What an admission policy finds invalid may
// be allowed later; it names no field.
func schemaRefuses(err error) bool {
	var answer apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &answer) || answer.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// tooLarge says that the API server, or etcd behind it, has no room for an object. etcd's answer
// comes as an internal error.
func tooLarge(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Status().Message
	return answer.Status().Code == http.StatusRequestEntityTooLarge || strings.Contains(text, "etcdserver: request is too large") ||
		(strings.Contains(text, "code = ResourceExhausted") && strings.Contains(text, "larger than max"))
}
