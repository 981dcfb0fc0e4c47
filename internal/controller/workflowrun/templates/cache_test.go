// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/template"
)

func keyOf(namespace string, n int) key {
	return key{namespace, v1alpha1.WorkflowRevision{Name: "w", Revision: fmt.Sprint(n)}}
}

func TestCache_IsBoundedAndSharedByNamespaces(t *testing.T) {
	const size, limit = 100, 10 * 100 * decodedFactor
	c := newCache(limit)
	c.put(keyOf("calm", 0), &template.Content{}, size)
	for n := range 50 {
		c.put(keyOf("flood", n), &template.Content{}, size)
		if c.room.Used() > limit {
			t.Fatalf("%d bytes, more than %d", c.room.Used(), limit)
		}
	}
	if c.get(keyOf("calm", 0)) == nil {
		t.Error("a namespace was pushed out by another")
	}
	if c.get(keyOf("flood", 49)) == nil || c.get(keyOf("flood", 0)) != nil {
		t.Error("those that were used last are not the ones that are kept")
	}
	for n := range 20 {
		namespace := fmt.Sprint("n", n)
		c.put(keyOf(namespace, 0), &template.Content{}, size)
		if c.get(keyOf(namespace, 0)) == nil {
			t.Errorf("namespace %s, which has nothing, got nothing", namespace)
		}
	}
	c.put(keyOf("big", 0), &template.Content{}, limit)
	if c.get(keyOf("big", 0)) != nil {
		t.Error("what is larger than the room is kept")
	}
	c.put(keyOf("n19", 0), &template.Content{}, size)
	if len(c.known) != c.used.Len() {
		t.Errorf("%d are known, %d in order", len(c.known), c.used.Len())
	}
}
