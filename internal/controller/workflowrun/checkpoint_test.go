// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// mutations: place without the patience, or with it for each run, makes this fail.
func TestALargeRunThatIsGivenUpWaitsShortlyForItsTurn(t *testing.T) {
	r := &Reconciler{}
	leave, err := r.closing.enter(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	for range checkpointParallel / 2 { // as many as one namespace may have
		if _, err := r.closing.places.Wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	large, small := types.NamespacedName{Namespace: "a", Name: "large"}, types.NamespacedName{Namespace: "a", Name: "small"}
	r.memories.of(large, "1").lastWriteBytes = 1 << 20
	r.memories.of(small, "2").lastWriteBytes = 1 << 10
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := make(chan error, 1)
	go func() {
		_, err := r.place(ctx, small)
		waited <- err
	}()
	for r.closing.places.Waiting() == 0 {
		runtime.Gosched()
	}
	if _, err := r.place(ctx, large); !errors.Is(err, errManyLarge) {
		t.Errorf("a large run: %v", err)
	}
	cancel(errTest)
	if err := <-waited; !errors.Is(err, errTest) {
		t.Errorf("a small run: %v", err)
	}
}
