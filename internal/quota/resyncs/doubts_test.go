// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// reader has runs for some time.
type reader struct {
	client.Reader
	has func() bool
}

func (r reader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if !r.has() {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), key.Name)
	}
	o.SetUID(types.UID(key.Name))
	return nil
}

// doubting reads runs of which the API server says at first that they are not there, and the watch
// that they are.
type doubting struct {
	doubts *Doubts
	clock  clock.Clock
	begun  time.Time
}

func newDoubting() *doubting {
	c := clock.RealClock{}
	return &doubting{doubts: NewDoubts(c), clock: c, begun: c.Now()}
}

func (d *doubting) took() time.Duration { return d.clock.Since(d.begun) }

// read reads a run of which the API server learns after a time that it is there, and the watch that
// it is not; 0: never.
func (d *doubting) read(ctx context.Context, there, gone time.Duration) (*v1alpha1.WorkflowRun, error) {
	begun := d.clock.Now()
	live := reader{has: func() bool { return there > 0 && d.clock.Since(begun) >= there }}
	cache := reader{has: func() bool { return gone == 0 || d.clock.Since(begun) < gone }}
	return d.doubts.Read(ctx, live, cache, types.NamespacedName{Name: "a"}, "a")
}

// One run that was deleted at the wrong moment, or a tenant that deletes thousands, kept a rebuild
// from its end, for all tenants.
//
// mutations: Doubts that do not wait; that wait for each of many that nobody will know of; that
// give up while the watch gets on; that wait for one without an end.
func TestDoubtsWaitForTheWatch(t *testing.T) {
	for name, c := range map[string]struct {
		play      func(ctx context.Context, d *doubting) error
		want      error
		took      time.Duration
		endsAfter time.Duration // 0: it does not
	}{
		"it is gone": {took: 300 * time.Millisecond, play: func(ctx context.Context, d *doubting) error {
			run, err := d.read(ctx, 0, 250*time.Millisecond)
			if run != nil {
				return errors.New("it is there")
			}
			return err
		}},
		"it is there": {took: 300 * time.Millisecond, play: func(ctx context.Context, d *doubting) error {
			run, err := d.read(ctx, 250*time.Millisecond, 0)
			if run == nil {
				return errors.New("it is gone")
			}
			return err
		}},
		"nobody knows": {took: doubtTime, want: ErrDoubted, play: func(ctx context.Context, d *doubting) error {
			_, err := d.read(ctx, 0, 0)
			return err
		}},
		"the work ends": {took: time.Second, endsAfter: time.Second, want: context.DeadlineExceeded, play: func(ctx context.Context, d *doubting) error {
			_, err := d.read(ctx, 0, 0)
			return err
		}},
		"nobody knows of a thousand": {took: doubtTime, want: ErrDoubted, play: func(ctx context.Context, d *doubting) (err error) {
			for range 1000 {
				_, err = d.read(ctx, 0, 0)
			}
			return err
		}},
		"a thousand are gone, each a moment before": {took: 200 * time.Second, play: func(ctx context.Context, d *doubting) error {
			for range 1000 {
				if _, err := d.read(ctx, 0, 150*time.Millisecond); err != nil {
					return err
				}
			}
			return nil
		}},
		"nobody knows of one beside others that are gone": {took: doubtTime, want: ErrDoubted, play: func(ctx context.Context, d *doubting) error {
			var others sync.WaitGroup
			others.Go(func() {
				for range 10 { // each takes two pauses
					_, _ = d.read(ctx, 0, 150*time.Millisecond)
				}
			})
			_, err := d.read(ctx, 0, 0)
			others.Wait()
			return err
		}},
		"a while after the watch got on":           {took: 3*time.Second + 400*time.Millisecond, play: afterTheWatchGotOn(3 * time.Second)},
		"right before the time after that is over": {took: 1900*time.Millisecond + 400*time.Millisecond, play: afterTheWatchGotOn(1900 * time.Millisecond)},
		"a while after nobody knew": {took: 2*doubtTime + 200*time.Millisecond, play: func(ctx context.Context, d *doubting) error {
			_, _ = d.read(ctx, 0, 0)
			<-d.clock.After(doubtTime)
			_, err := d.read(ctx, 0, 150*time.Millisecond)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if c.endsAfter > 0 {
					bounded, stop := context.WithTimeout(ctx, c.endsAfter)
					defer stop()
					ctx = bounded
				}
				d := newDoubting()
				if err := c.play(ctx, d); !errors.Is(err, c.want) {
					t.Errorf("%v; want %v", err, c.want)
				}
				if took := d.took(); took != c.took {
					t.Errorf("it took %s; want %s", took, c.took)
				}
			})
		})
	}
}

// afterTheWatchGotOn has a run that is gone, and after a pause another one.
func afterTheWatchGotOn(pause time.Duration) func(context.Context, *doubting) error {
	return func(ctx context.Context, d *doubting) error {
		_, first := d.read(ctx, 0, 150*time.Millisecond)
		<-d.clock.After(pause)
		_, second := d.read(ctx, 0, 150*time.Millisecond)
		return errors.Join(first, second)
	}
}
