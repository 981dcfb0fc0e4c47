// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/passes"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/ahead"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/driven"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/results"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// mutations: an informer that looks at the generation only, or at the operator's own marks, too;
// editable that leaves one of these out.
func TestEditsOfMetadataWakeARun(t *testing.T) {
	run := func(edit func(*v1alpha1.WorkflowRun)) *v1alpha1.WorkflowRun {
		o := aRun("1")
		o.Labels = map[string]string{"a": "1", "b": "2"}
		o.OwnerReferences = []metav1.OwnerReference{{Name: "first", UID: "o", Controller: new(true)}}
		o.Annotations = map[string]string{"note": "x", passes.OwnPrefix + "look": "1"}
		edit(o)
		return o
	}
	for name, c := range map[string]struct {
		edit  func(*v1alpha1.WorkflowRun)
		wakes bool
	}{
		"nothing":               {func(*v1alpha1.WorkflowRun) {}, false},
		"a mark":                {func(o *v1alpha1.WorkflowRun) { o.Annotations[passes.OwnPrefix+"look"] = "2" }, false},
		"a mark taken away":     {func(o *v1alpha1.WorkflowRun) { delete(o.Annotations, passes.OwnPrefix+"look") }, false},
		"a label taken away":    {func(o *v1alpha1.WorkflowRun) { delete(o.Labels, "b") }, true},
		"another value":         {func(o *v1alpha1.WorkflowRun) { o.Labels["b"] = "3" }, true},
		"an annotation":         {func(o *v1alpha1.WorkflowRun) { o.Annotations["note"] = "y" }, true},
		"a finalizer":           {func(o *v1alpha1.WorkflowRun) { o.Finalizers = []string{"example.org/x"} }, true},
		"an owner":              {func(o *v1alpha1.WorkflowRun) { o.OwnerReferences = []metav1.OwnerReference{{Name: "x"}} }, true},
		"a flag of an owner":    {func(o *v1alpha1.WorkflowRun) { o.OwnerReferences[0].Controller = nil }, true},
		"a label that is moved": {func(o *v1alpha1.WorkflowRun) { delete(o.Labels, "b"); o.Annotations["b"] = "2" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Index: results.NewIndex(), Holder: "me", Driven: driven.New(clock.RealClock{}, ownsAll{}), Known: func(context.Context, types.UID) {}}
			r.Driven.Begin(protocol.AllPartitions())
			was, now := run(func(*v1alpha1.WorkflowRun) {}), run(c.edit)
			if woken := len(wokenBy(t, r, event.UpdateEvent{ObjectOld: was, ObjectNew: now})) > 0; woken != c.wakes {
				t.Errorf("woken: %t", woken)
			}
			if differs := editable(was) != editable(now); differs != c.wakes {
				t.Errorf("differs: %t", differs)
			}
		})
	}
}

// mutation: deskFirst that asks for a desk then makes this fail.
func TestARunThatIsGivenUpAsksForNoDeskFirst(t *testing.T) {
	turns := shares.NewTurns(2, shares.KindMetrics{}, func(types.NamespacedName) {})
	desks := shares.NewDesks(shares.Room{Desks: 1, Rest: 1}, turns, clock.RealClock{}, shares.KindMetrics{})
	r := &Reconciler{Turns: turns, Desks: desks}
	p := &pass{r: r, desk: r.Desks.For("b"), run: aRun("1"), ahead: &ahead.Session{Closes: true}, mem: &memory{toDesk: true}}
	if err := deskFirst(t.Context(), p); err != nil || p.desk.Has() {
		t.Errorf("%v, desk: %t", err, p.desk.Has())
	}
}

// mutations: comesAgain that does not look at patience, or comes at once when that is over.
func TestARunThatStandsOffComesAgainForResults(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct{ patience, want time.Duration }{
		"none wait":              {-1, time.Minute},
		"some wait":              {2 * time.Second, 2 * time.Second},
		"longer than the run":    {2 * time.Minute, time.Minute},
		"their patience is over": {0, actRetryDelay},
	} {
		t.Run(name, func(t *testing.T) {
			patience := now.Add(c.patience)
			if c.patience < 0 {
				patience = time.Time{}
			}
			if got := comesAgain(now.Add(time.Minute), patience, now).Sub(now); got != c.want {
				t.Errorf("after %s, want %s", got, c.want)
			}
		})
	}
}
