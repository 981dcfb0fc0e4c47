// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/config"
	"github.com/syncopate-dev/syncopate/internal/check"
)

// crds compares the definitions of the kinds with those that this binary has.
func (k *kube) crds(ctx context.Context) check.CRDs {
	shipped, err := shippedCRDs()
	if err != nil {
		return check.CRDs{Unread: check.Unread{Why: err.Error()}}
	}
	var found check.CRDs
	for i := range shipped {
		c, err := k.crd(ctx, &shipped[i])
		if err != nil {
			return check.CRDs{Unread: unread("read "+shipped[i].Name, err)}
		}
		found.Items = append(found.Items, c)
	}
	return found
}

func (k *kube) crd(ctx context.Context, want *apiextensionsv1.CustomResourceDefinition) (check.CRD, error) {
	c := check.CRD{Name: want.Name}
	got := &apiextensionsv1.CustomResourceDefinition{}
	err := k.Get(ctx, client.ObjectKey{Name: want.Name}, got)
	if apierrors.IsNotFound(err) {
		c.Missing = true
		return c, nil
	}
	if err != nil {
		return c, err
	}
	for _, s := range got.Status.Conditions {
		if s.Type == apiextensionsv1.Established {
			c.Established = s.Status == apiextensionsv1.ConditionTrue
		}
	}
	w, err := matters(want)
	if err != nil {
		return c, err
	}
	g, err := matters(got)
	if err != nil {
		return c, err
	}
	c.Differs = check.Differ(w, g)
	return c, nil
}

// matters is what of a definition is compared: not what the API server fills in.
func matters(c *apiextensionsv1.CustomResourceDefinition) (any, error) {
	raw, err := json.Marshal(map[string]any{"scope": c.Spec.Scope, "versions": c.Spec.Versions})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", c.Name, err)
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, fmt.Errorf("decode %s: %w", c.Name, err)
	}
	return tree, nil
}

func shippedCRDs() ([]apiextensionsv1.CustomResourceDefinition, error) {
	names, err := fs.Glob(config.Manifests, "crd/bases/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("shipped CRDs: %w", err)
	}
	var all []apiextensionsv1.CustomResourceDefinition
	for _, name := range names {
		raw, err := config.Manifests.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("shipped CRDs: %w", err)
		}
		var c apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &c); err != nil {
			return nil, fmt.Errorf("shipped CRDs: %s: %w", name, err)
		}
		all = append(all, c)
	}
	return all, nil
}
