// SPDX-License-Identifier: Apache-2.0

package book

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Whoever compares read the runs while they were still written.
//
// mutation: Has that knows the last version only makes this fail.
func TestTheHistoryHasWhatItHasSeen(t *testing.T) {
	h := newHistory(func(_, _ *v1alpha1.WorkflowRun, _ time.Time) {})
	version := func(n string) v1alpha1.WorkflowRun {
		return v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: "r", UID: types.UID("u"), ResourceVersion: n}}
	}
	for _, n := range []string{"1", "2", "3"} {
		run := version(n)
		h.take(watch.Event{Type: watch.Modified, Object: &run}, time.Now())
	}
	if missing := h.Has([]v1alpha1.WorkflowRun{version("2")}); missing != "" {
		t.Errorf("it has not seen %s", missing)
	}
	if h.Has([]v1alpha1.WorkflowRun{version("4")}) == "" {
		t.Error("it has seen what is to come")
	}
}
