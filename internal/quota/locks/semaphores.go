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

// allows says whether runs of a namespace may use a semaphore.
func (c *Controller) allows(ctx context.Context, sem *v1alpha1.Semaphore, namespace string) (bool, error) {
	if sem.Spec.Namespaces == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(sem.Spec.Namespaces)
	if err != nil {
		return false, nil //nolint:nilerr // a selector that selects nothing; the API server takes some that are none
	}
	ns := &corev1.Namespace{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: namespace}, ns); err != nil {
		return false, fmt.Errorf("read namespace: %w", err)
	}
	return selector.Matches(labels.Set(ns.Labels)), nil
}

// semaphoreOf is the semaphore of a lock.
func semaphoreOf(lock string) string {
	name, _, _ := strings.Cut(lock, "/")
	return name
}
