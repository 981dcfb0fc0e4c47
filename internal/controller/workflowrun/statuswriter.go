// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// FieldOwner names the operator in managedFields.
const FieldOwner = client.FieldOwner("syncopate")

// onlyMetadata asks the API server to answer with an object's metadata, preferably in the form that
// is cheapest to read.
const onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1," +
	"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

var errNoVersion = errors.New("the API server's answer to a status write has no resourceVersion")

// statuses stores the status of runs.
type statuses interface {
	// Put replaces the status of a run, if its resourceVersion is that of the stored one, and
	// gives the run its new resourceVersion. The body is what encoded says, and the size that of
	// the whole run. Errors are those of the API server.
	Put(ctx context.Context, run *v1alpha1.WorkflowRun, body []byte, size int) error
}

// statusOf is what is sent of a run: its status, and which run that is. All else the API server
// takes from the stored run, also where a request has it; but it would read and check it first.
type statusOf struct {
	metav1.TypeMeta `json:",inline"`

	Metadata identity                    `json:"metadata"`
	Status   *v1alpha1.WorkflowRunStatus `json:"status,omitempty"`
}

type identity struct {
	Name            string    `json:"name"`
	Namespace       string    `json:"namespace"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
}

// encoded is a run's status as it is sent to the API server.
func encoded(run *v1alpha1.WorkflowRun) ([]byte, error) {
	kind := metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkflowRun"}
	body, err := json.Marshal(statusOf{kind, identity{run.Name, run.Namespace, run.UID, run.ResourceVersion}, run.Status})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	return body, nil
}

// beside is how large the rest of an object is, beside its status: its spec, as it was at a
// generation, and its metadata, which may change without another one.
type beside struct {
	generation int64
	spec       int
}

// of is that of a run, in bytes, about.
func (b *beside) of(run *v1alpha1.WorkflowRun) (int, error) {
	if b.spec == 0 || b.generation != run.Generation {
		text, err := json.Marshal(&run.Spec)
		if err != nil {
			return 0, fmt.Errorf("encode spec: %w", err)
		}
		b.generation, b.spec = run.Generation, len(text)
	}
	return b.spec + metadataBytes(run), nil
}

// sized is what is sent of a run as it is stored, and how large all of it is.
func (m *memory) sized(stored *v1alpha1.WorkflowRun) (body []byte, size int, err error) {
	if body, err = encoded(stored); err != nil {
		return nil, 0, err
	}
	rest, err := m.beside.of(stored)
	return body, rest + len(body), err
}

// metadataBytes are about those of a run's metadata: of what people may fill without a
// bound of ours.
func metadataBytes(run *v1alpha1.WorkflowRun) (bytes int) {
	const around = len(`"":"",`)
	for _, texts := range []map[string]string{run.Labels, run.Annotations} {
		for k, v := range texts {
			bytes += len(k) + len(v) + around
		}
	}
	for _, f := range run.Finalizers {
		bytes += len(f) + around
	}
	for _, o := range run.OwnerReferences {
		bytes += len(o.APIVersion) + len(o.Kind) + len(o.Name) + len(o.UID) + len(`{"apiVersion":"","kind":"","name":"","uid":"","controller":true},`)
	}
	return bytes
}

// StatusWriter is statuses at the API server. The API server stores what was written, byte for
// byte (lifecycle writes JSON and times in the form in which they come back), so nothing is read
// back but the version: to read the whole run again after each write would be half of what a write
// costs the operator.
type StatusWriter struct {
	runs rest.Interface
	// Writes is told of all writes; nil: nobody is.
	Writes noted
}

// noted is told of status writes; *runwatch.Writes is.
type noted interface {
	// Begin says that a write is sent; its end is called when Note was, or would have been.
	Begin(uid types.UID) (end func())
	// Note has a run as it is stored, with its size.
	Note(run *v1alpha1.WorkflowRun, size int)
}

// NewStatusWriter makes the statuses at the API server.
func NewStatusWriter(config *rest.Config, scheme *runtime.Scheme, c *http.Client) (*StatusWriter, error) {
	config = rest.CopyConfig(config)
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil { // as for the manager's own client
		config.WarningHandlerWithContext = log.NewKubeAPIWarningLogger(log.KubeAPIWarningLoggerOptions{Deduplicate: true})
	}
	kind := v1alpha1.GroupVersion.WithKind("WorkflowRun")
	runs, err := apiutil.RESTClientForGVK(kind, false, false, config, serializer.NewCodecFactory(scheme), c)
	if err != nil {
		return nil, fmt.Errorf("make client of runs: %w", err)
	}
	return &StatusWriter{runs: runs}, nil
}

// Put implements statuses.
func (w *StatusWriter) Put(ctx context.Context, run *v1alpha1.WorkflowRun, body []byte, size int) error {
	var stored metav1.PartialObjectMetadata
	if w.Writes != nil {
		defer w.Writes.Begin(run.UID)()
	}
	err := w.runs.Put().Namespace(run.Namespace).Resource("workflowruns").Name(run.Name).SubResource("status").
		VersionedParams(&metav1.UpdateOptions{FieldManager: string(FieldOwner)}, metav1.ParameterCodec).
		SetHeader("Accept", onlyMetadata).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Into(&stored)
	switch {
	case err != nil:
		return err
	case stored.ResourceVersion == "":
		return errNoVersion
	}
	run.ResourceVersion = stored.ResourceVersion
	if w.Writes != nil {
		w.Writes.Note(run, size)
	}
	return nil
}
