// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
)

// mutation: mayWrite that does not ask for a desk makes this fail.
func TestALargeRunIsWrittenFromADesk(t *testing.T) {
	clk := clocktesting.NewFakeClock(epoch)
	turns := shares.NewTurns(2, shares.KindMetrics{}, func(types.NamespacedName) {})
	r := &Reconciler{Clock: clk, Turns: turns, Desks: shares.NewDesks(1, turns, clk, shares.KindMetrics{}), Writes: shares.New(1, false, shares.KindMetrics{})}
	if !r.Desks.For("a").SitDown(t.Context()) {
		t.Fatal("there is no desk")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	for bytes, want := range map[int]bool{1 << 10: false, 1 << 20: true} {
		p := &pass{r: r, desk: r.Desks.For("b"), run: aRun("1"), mem: &memory{lastWriteBytes: bytes}}
		done, err := p.mayWrite(ctx, aRun("1"))
		if err == nil {
			done()
		}
		if errors.Is(err, errTest) != want {
			t.Errorf("a write of %d bytes waits for a desk: %t", bytes, !want)
		}
	}
}

// mutation: encoded without kind and version makes this fail.
func TestARunIsEncodedAsTheAPIServerWantsIt(t *testing.T) {
	run := aRun("7", v1alpha1.StepPending)
	body, err := encoded(run)
	if err != nil {
		t.Fatal(err)
	}
	var back v1alpha1.WorkflowRun
	if err := json.Unmarshal(body, &back); err != nil || back.Kind != "WorkflowRun" || back.APIVersion != v1alpha1.GroupVersion.String() || run.Kind != "" {
		t.Errorf("%v: %s %s; the run itself: %q", err, back.APIVersion, back.Kind, run.Kind)
	}
}
