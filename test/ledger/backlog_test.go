// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

const (
	backlogTopic = "ledger.backlog"
	resultBytes  = 60 << 10
	mebibyte     = 1 << 20
	// beyondPatience is longer than results wait for Redis: they are given back, and come again.
	beyondPatience = 8 * time.Second
	// backlogPatience bounds each part of such a test.
	backlogPatience = 4 * time.Minute
)

// pile is a backlog of large results: each job is answered more than once, as by workers that do
// not see the PubAck.
type pile struct {
	runs, steps, answers int
	bound                int // of the operator's memory at any time, in MiB
}

// TestABacklogThatDoesNotFitIsNotHeld has more large results wait, while Redis hangs, than
// the operator has memory for. It holds what it may, the rest waits at NATS, and all of it
// is applied afterwards.
//
// mutation: an inbox without a bound of bytes makes this fail, and so does a bus that keeps the
// messages of what it hands out.
func TestABacklogThatDoesNotFitIsNotHeld(t *testing.T) {
	pile{runs: 20, steps: 5, answers: 20, bound: 200}.outlast(t.Context(), t, "--inbox-bytes", strconv.Itoa(24*mebibyte))
}

// BenchmarkBacklog has 8,000 results of 60 KiB wait for an operator as it is shipped.
func BenchmarkBacklog(b *testing.B) {
	for range b.N {
		peak, drain := pile{runs: 40, steps: 10, answers: 20, bound: 400}.outlast(b.Context(), b)
		b.ReportMetric(float64(peak), "peak-MiB")
		b.ReportMetric(drain.Seconds(), "drain-s")
	}
}

// outlast gives the most memory that the operator had, in MiB, and how long it took to apply all
// once Redis answered.
func (p pile) outlast(ctx context.Context, tb testing.TB, args ...string) (peak int, drain time.Duration) {
	tb.Helper()
	w := newWorld(ctx, tb)
	redis := site.env.Redis.Process()
	if redis == nil {
		tb.Skip("needs a redis-server that can be stopped")
	}
	o := w.startOperator(ctx, "operator", args...)
	desk := w.openDesk(ctx, backlogTopic)
	w.create(ctx, numbered("backlog", p.runs, parallelSteps(backlogTopic, p.steps)))
	jobs := desk.take(ctx, tb, backlogPatience, p.runs*p.steps)
	before := o.peakMiB(tb)

	if err := redis.Signal(syscall.SIGSTOP); err != nil {
		tb.Fatal(err)
	}
	goesOn := false
	tb.Cleanup(func() {
		if !goesOn {
			_ = redis.Signal(syscall.SIGCONT)
		}
	})
	for n := range p.answers {
		w.publish(ctx, largeAnswers(jobs, n)...)
	}
	total := uint64(p.answers * len(jobs))
	await(ctx, tb, backlogPatience, "all results were delivered", func() string {
		if n, err := w.deliveries(ctx); err != nil || n < total {
			return fmt.Sprintf("%d of %d, %v", n, total, err)
		}
		return ""
	})
	linger(ctx, beyondPatience)
	during := o.peakMiB(tb)

	begin := time.Now()
	if err := redis.Signal(syscall.SIGCONT); err != nil {
		tb.Fatal(err)
	}
	goesOn = true
	w.expectSettled(ctx, backlogPatience)
	drain, peak = time.Since(begin), o.peakMiB(tb)
	w.note("%d results of %d KiB: at most %d MiB before, %d while they waited, %d after; applied within %s",
		total, resultBytes>>10, before, during, peak, drain.Round(100*time.Millisecond))
	if peak > p.bound {
		tb.Errorf("the operator had %d MiB, more than %d", peak, p.bound)
	}
	w.expectDeadLetters(ctx, 0)
	for _, run := range w.runs(ctx) {
		if run.Unwritten() || run.Status.Phase != v1alpha1.RunSucceeded {
			tb.Errorf("run %s did not succeed", run.Name)
		}
	}
	return peak, drain
}

// largeAnswers are the nth answers to jobs.
func largeAnswers(jobs []deskJob, n int) []*nats.Msg {
	output := strings.Repeat("x", resultBytes)
	all := make([]*nats.Msg, len(jobs))
	for i, j := range jobs {
		all[i] = j.message(fmt.Appendf(nil, `{"status":"Succeeded","output":%q}`, output))
		all[i].Header.Set(nats.MsgIdHdr, fmt.Sprintf("%s/%d", all[i].Header.Get(nats.MsgIdHdr), n))
	}
	return all
}

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peakMiB is the most resident memory that the operator had since it started.
func (o *operator) peakMiB(tb testing.TB) int {
	tb.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.now.PID()))
	if err != nil {
		tb.Skip("needs /proc:", err)
	}
	match := highWater.FindSubmatch(text)
	if match == nil {
		tb.Fatalf("no peak in %s", text)
	}
	kib, err := strconv.Atoi(string(match[1]))
	if err != nil {
		tb.Fatal(err)
	}
	return kib >> 10
}
