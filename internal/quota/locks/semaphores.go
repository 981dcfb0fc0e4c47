// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// semaphore reads one from the cache and, before it says that there is none, live: it may have been
// created with the run. nil: there is none.
func (c *Controller) semaphore(ctx context.Context, name string) (*v1alpha1.Semaphore, error) {
	for _, from := range []client.Reader{c.client, c.live} {
		sem := &v1alpha1.Semaphore{}
		err := from.Get(ctx, types.NamespacedName{Name: name}, sem)
		if err == nil {
			return sem, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read semaphore: %w", err)
		}
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

// shut is why runs of a namespace may not use a semaphore; "": they may.
func (c *Controller) shut(ctx context.Context, sem *v1alpha1.Semaphore, namespace string) (why string, err error) {
	if sem.Spec.Namespaces == nil {
		return "", nil
	}
	selector, err := metav1.LabelSelectorAsSelector(sem.Spec.Namespaces)
	if err != nil { // the API server takes some that are none
		return fmt.Sprintf("spec.namespaces of Semaphore %s cannot be read: %s", sem.Name, err), nil
	}
	ns := &corev1.Namespace{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
		return "", fmt.Errorf("read namespace: %w", err)
	}
	if !selector.Matches(labels.Set(ns.Labels)) {
		why = "Semaphore " + sem.Name + " is not for namespace " + namespace
	}
	return why, nil
}

// semaphoreOf is the semaphore of a lock.
func semaphoreOf(lock string) string {
	name, _, _ := strings.Cut(lock, "/")
	return name
}
