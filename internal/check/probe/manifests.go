// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
)

// maxManifests bounds the objects of the files.
const maxManifests = 100

// errManifest is returned for a file that cannot be judged. No retry helps.
var errManifest = errors.New("need WorkflowRuns, Workflows, Schedules, LockPolicies or Semaphores of " + v1alpha1.GroupVersion.String())

// Manifests decodes the objects of a file. Fields that the kinds do not have are errors.
func Manifests(r io.Reader) ([]client.Object, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	var all []client.Object
	for {
		document, err := documents.Read()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("decode manifest: %w", err)
		}
		for _, text := range objects(document) {
			o, err := manifest(text)
			switch {
			case err != nil:
				return nil, err
			case o == nil:
				continue
			case len(all) == maxManifests:
				return nil, fmt.Errorf("more than %d objects: %w", maxManifests, errManifest)
			}
			all = append(all, o)
		}
	}
}

// objects are those of a document: of JSON there may be several, and YAML is one. They stay text: a
// decoder that makes JSON of YAML takes the last of two fields with the same name.
func objects(document []byte) (all [][]byte) {
	for d := json.NewDecoder(bytes.NewReader(document)); ; {
		var one json.RawMessage
		switch err := d.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			return [][]byte{document}
		}
		all = append(all, one)
	}
}

// manifest is the object of a text; nil if there is none in it.
func manifest(text []byte) (client.Object, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // there is none
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(raw, &kind); err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	kinds := map[schema.GroupVersionKind]client.Object{
		v1alpha1.GroupVersion.WithKind("WorkflowRun"): &v1alpha1.WorkflowRun{}, v1alpha1.GroupVersion.WithKind("LockPolicy"): &v1alpha1.LockPolicy{},
		v1alpha1.GroupVersion.WithKind("Semaphore"): &v1alpha1.Semaphore{}, v1alpha1.GroupVersion.WithKind("Workflow"): &v1alpha1.Workflow{},
		v1alpha1.GroupVersion.WithKind("Schedule"): &v1alpha1.Schedule{},
	}
	o, ok := kinds[kind.GroupVersionKind()]
	if !ok {
		return nil, fmt.Errorf("%s %s: %w", kind.APIVersion, kind.Kind, errManifest)
	}
	if err := Decode(raw, o); err != nil {
		return nil, fmt.Errorf("decode %s: %w", kind.Kind, err)
	}
	return o, nil
}

// Decode reads YAML, or JSON, as an API server does that is strict: timezone is not timeZone, and a
// field that is unknown, or is there twice, is an error.
func Decode(text []byte, into any) error {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(raw, into)
	return errors.Join(append(strict, err)...)
}

// manifests has the API server judge the objects of the files, in dry runs, and then their specs as
// the operator does.
func (k *kube) manifests(ctx context.Context, o Options) []check.Manifest {
	var all []check.Manifest
	for _, object := range o.Manifests {
		kind := object.GetObjectKind().GroupVersionKind().Kind
		m := check.Manifest{Name: kind + "/" + object.GetName() + object.GetGenerateName()}
		switch one := object.(type) {
		case *v1alpha1.LockPolicy:
			m.Policy = one
		case *v1alpha1.WorkflowRun, *v1alpha1.Workflow, *v1alpha1.Schedule: // the others have no namespace
			object.SetNamespace(cmp.Or(object.GetNamespace(), o.Namespace))
		}
		k.judge(ctx, object, &m)
		all = append(all, m)
	}
	return all
}

func (k *kube) judge(ctx context.Context, object client.Object, m *check.Manifest) {
	said := k.dryRun(ctx, object)
	if said != nil && refused(said) {
		m.Refused = said.Error()
		return
	}
	found := judged(object)
	m.Open, m.Idle = found.open, strings.Join(found.idle, "; ")
	switch {
	case len(found.problems) > 0:
		m.Refused = "InvalidSpec: " + strings.Join(found.problems, "; ")
	case said != nil:
		m.Unread = unread("a dry run", said)
	}
}

// refused says whether the API server would not take an object, and not only this time.
func refused(said error) bool {
	return apierrors.IsInvalid(said) || apierrors.IsBadRequest(said) || apierrors.IsTooManyRequests(said) ||
		apierrors.IsForbidden(said) && strings.Contains(said.Error(), "Policy")
}

// dryRun creates the object, or updates the one that is there.
func (k *kube) dryRun(ctx context.Context, object client.Object) error {
	next, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return errManifest
	}
	err := k.Create(ctx, next, client.DryRunAll)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	there, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return errManifest
	}
	if err := k.Get(ctx, client.ObjectKeyFromObject(object), there); err != nil {
		return err
	}
	next, _ = object.DeepCopyObject().(client.Object)
	next.SetResourceVersion(there.GetResourceVersion())
	return k.Update(ctx, next, client.DryRunAll)
}
