// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// mutation: oneTime.start that begins at once, or that waits by itself, makes this fail.
func TestWorkThatIsDoneOnceBeginsAgainOnceItHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		goOn := make(chan struct{})
		parts := []manager.Runnable{manager.RunnableFunc(func(ctx context.Context) error {
			told = append(told, "begins")
			<-ctx.Done()
			<-goOn // as one whose call to Redis hangs
			told = append(told, "ends")
			return nil
		})}
		is := func(want ...string) {
			t.Helper()
			if synctest.Wait(); !slices.Equal(told, want) {
				t.Fatalf("told %q, want %q", told, want)
			}
		}
		hasty, end := context.WithCancel(t.Context())
		end()
		var o oneTime
		defer o.stop(hasty)
		free := sync.OnceFunc(func() { close(goOn) })
		defer free()
		o.start(t.Context(), clock.RealClock{}, parts)
		is("begins")
		o.stop(hasty)
		o.start(t.Context(), clock.RealClock{}, parts)
		is("begins")
		goOn <- struct{}{}
		is("begins", "ends", "begins")

		o.stop(hasty)
		o.start(t.Context(), clock.RealClock{}, parts)
		over := make(chan struct{})
		go func() {
			defer close(over)
			o.stop(t.Context()) // before it has begun
		}()
		is("begins", "ends", "begins")
		free()
		is("begins", "ends", "begins", "ends")
		<-over
	})
}
