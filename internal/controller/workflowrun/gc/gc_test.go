// SPDX-License-Identifier: Apache-2.0

package gc

import (
	"context"
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// broken is a broker that cannot list jobs.
type broken struct{ rounds chan struct{} }

func (b broken) List(context.Context) ([]jobs.QueuedJob, error) {
	b.rounds <- struct{}{}
	return nil, errors.New("the test wants it")
}
func (broken) Withdraw(context.Context, string, protocol.JobID) error { return nil }
func (broken) Cancel(context.Context, string, []protocol.JobID) error { return nil }

// empty is an object store with nothing in it.
type empty struct{}

func (empty) List(context.Context) ([]string, error)                      { return nil, nil }
func (empty) Drop(context.Context, []string) error                        { return nil }
func (empty) LooseParts(context.Context, time.Duration) ([]string, error) { return nil, nil }
func (empty) DropParts(context.Context, []string) error                   { return nil }

func TestCollector_MakesARoundAtOnceAndThenAtItsPaceAndOutlivesErrors(t *testing.T) {
	b, clk := broken{make(chan struct{}, 10)}, clocktesting.NewFakeClock(time.Unix(1000, 0))
	c := &Collector{Jobs: b, Outputs: empty{}, Uploads: empty{}, Clock: clk}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	<-b.rounds
	for !clk.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
	if len(b.rounds) != 0 {
		t.Error("two rounds at once")
	}
	clk.Step(roundRetry)
	<-b.rounds
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
