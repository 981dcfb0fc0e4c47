// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"testing"

	"github.com/go-logr/logr/funcr"
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
