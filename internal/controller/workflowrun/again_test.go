// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// mutation: effectsAgain that is silent when any context has ended makes this fail: a pass that
// never gets through in its time would be told nowhere.
func TestEffectsForWhichThereWasNoTimeAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		told  int
	}{
		"the pass had no more time": {context.DeadlineExceeded, 1},
		"the lease was lost":        {errTest, 0},
	} {
		t.Run(name, func(t *testing.T) {
			lines := 0
			ctx, cancel := context.WithCancelCause(log.IntoContext(t.Context(), funcr.New(func(_, _ string) { lines++ }, funcr.Options{})))
			cancel(c.cause)
			p := &pass{r: &Reconciler{Clock: clocktesting.NewFakeClock(epoch)}}
			if result := p.effectsAgain(ctx, errTest); result.RequeueAfter != actRetryDelay || lines != c.told {
				t.Errorf("told %d times, again in %s", lines, result.RequeueAfter)
			}
		})
	}
}

// mutations: statusStored that takes the time of another edit, the first time, or one that is
// not there.
func TestWhenAStatusWasStored(t *testing.T) {
	entry := func(subresource string, after time.Duration) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(epoch.Add(after))
		return metav1.ManagedFieldsEntry{Subresource: subresource, Time: &at}
	}
	labels := []metav1.ManagedFieldsEntry{entry("", time.Hour), {Subresource: "status"}}
	if at := statusStored(labels); !at.IsZero() {
		t.Errorf("without a write of status: %s", at)
	}
	all := slices.Concat(labels, []metav1.ManagedFieldsEntry{entry("status", time.Minute), entry("status", 2*time.Minute), entry("status", 0)})
	if at := statusStored(all); !at.Equal(epoch.Add(2 * time.Minute)) {
		t.Errorf("stored at %s", at)
	}
}
