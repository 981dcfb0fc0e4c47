// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// written is a run whose status was written under a fence, by a lease.
func written(name string, fence int64, lease string, admitted bool) *v1alpha1.WorkflowRun {
	r := &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Name: name}}
	r.Status = &v1alpha1.WorkflowRunStatus{Phase: v1alpha1.RunRunning, ObservedGeneration: 1, Fence: &fence, Lock: &v1alpha1.RunLockStatus{LeaseID: lease}}
	if admitted {
		now := metav1.Now()
		r.Status.Admission = &v1alpha1.AdmissionStatus{AdmittedAt: &now}
	}
	return r
}

const limit = 6

func newWatcher() *Watcher { return NewWatcher(New(), limit) }

// mutation: each comparison of the watcher turned round makes its row fail.
func TestTheWatcherSeesWhatIsPlanted(t *testing.T) {
	full := make([]*v1alpha1.WorkflowRun, limit+1)
	for i := range full {
		full[i] = written(fmt.Sprintf("run-%d", i), 1, "a", true)
	}
	for name, c := range map[string]struct {
		versions []*v1alpha1.WorkflowRun
		want     string
	}{
		"a fence that rises":             {[]*v1alpha1.WorkflowRun{written("r", 1, "a", false), written("r", 2, "b", false)}, ""},
		"a fence that goes back":         {[]*v1alpha1.WorkflowRun{written("r", 2, "b", false), written("r", 1, "a", false)}, "I3: the fence"},
		"two leases under a fence":       {[]*v1alpha1.WorkflowRun{written("r", 1, "a", false), written("r", 1, "b", false)}, "I3: leases"},
		"as many runs as the limit lets": {full[:limit], ""},
		"one more":                       {full, "I4: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatcher()
			last := map[string]*v1alpha1.WorkflowRun{}
			for _, v := range c.versions {
				w.See(last[v.Name], v, time.Now())
				last[v.Name] = v
			}
			got := strings.Join(w.Wrong(), "; ")
			if (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

// mutation: a stall that begins with the first effect makes this fail.
func TestAStallBeginsWithTheHealing(t *testing.T) {
	w, healed := newWatcher(), time.Now()
	for _, s := range []int{-20, 7, 9, 12} {
		w.effects = append(w.effects, healed.Add(time.Duration(s)*time.Second))
	}
	if got := w.Stall(healed); got != 7*time.Second {
		t.Errorf("the longest stall is %s", got)
	}
}

// mutation: StallUntil that ends with the last effect makes this fail.
func TestAStallThatGoesOnIsCounted(t *testing.T) {
	w, healed := newWatcher(), time.Now()
	if got := w.StallUntil(healed, healed.Add(time.Minute)); got != time.Minute {
		t.Errorf("without an effect the longest stall is %s", got)
	}
	w.effects = []time.Time{healed.Add(40 * time.Second)}
	if got := w.StallUntil(healed, healed.Add(time.Minute)); got != 40*time.Second {
		t.Errorf("the longest stall is %s", got)
	}
}
