// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// The API server takes some selectors that are none: what is wrong is the Semaphore, and not the
// namespace of who asks.
//
// mutations: a selector that cannot be read and selects nothing, or everything, makes this fail.
func TestASelectorThatCannotBeReadIsNamed(t *testing.T) {
	s := newSite(t)
	r := s.replica()
	must(t, r.Resync(t.Context()))
	for name, c := range map[string]struct {
		selector metav1.LabelSelector
		why      []string
	}{
		"blank": {
			metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpIn, Values: []string{"a b"}}}},
			[]string{"spec.namespaces of Semaphore ", " cannot be read: ", `"a b"`},
		},
		"other": {metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}, []string{" is not for namespace " + s.ns}},
	} {
		t.Run(name, func(t *testing.T) {
			sem := &v1alpha1.Semaphore{Spec: v1alpha1.SemaphoreSpec{Permits: 1, Namespaces: &c.selector}}
			sem.Name = s.ns + "-" + name
			must(t, s.client.Create(t.Context(), sem))
			_, err := r.Take(t.Context(), s.run(name, nil), "", []Request{{Name: sem.Name + "/", Permits: 1}})
			unusable, is := errors.AsType[*UnusableError](err)
			if !is {
				t.Fatalf("%v, want an UnusableError", err)
			}
			for _, word := range c.why {
				if !strings.Contains(unusable.Why, word) {
					t.Errorf("%q does not say %q", unusable.Why, word)
				}
			}
		})
	}
}
