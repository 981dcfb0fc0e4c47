// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

func checkStarted(ctx context.Context, k *kit) error {
	j, es, err := k.do(ctx, "long", sleep(k.config.AckWait/2))
	if err != nil {
		return err
	}
	if at := first(es, started); at < 0 || at > first(es, answer) {
		return k.saw(j, "Started before the answer")
	}
	return nil
}

func checkInProgress(ctx context.Context, k *kit) error {
	j, es, err := k.do(ctx, "long", sleep(2*k.config.AckWait))
	if err != nil {
		return err
	}
	for _, e := range es {
		if e.delivered > 1 {
			return k.saw(j, "InProgress often enough to keep the job")
		}
	}
	if count(es, ping) == 0 {
		return k.saw(j, "InProgress")
	}
	return nil
}

// several dispatches jobs that sleep.
func (k *kit) several(ctx context.Context, n int, d time.Duration) ([]job, error) {
	js := make([]job, 0, n)
	for i := range n {
		j, err := k.dispatch(ctx, newJob(fmt.Sprint("many-", i)), sleep(d))
		if err != nil {
			return nil, err
		}
		js = append(js, j)
	}
	return js, nil
}

// answered says whether one of the jobs has an answer.
func (k *kit) answered(js []job) bool {
	return slices.ContainsFunc(js, func(j job) bool { return count(k.tap.of(j), answer) > 0 })
}

// begun counts the jobs of which the worker spoke at least so many times.
func (k *kit) begun(js []job, times int) int {
	n := 0
	for _, j := range js {
		if len(k.tap.of(j)) >= times {
			n++
		}
	}
	return n
}

// long is a job that lasts until it is cancelled, or over a restart. A worker that does not obey
// has it for some time, not for ever.
func (k *kit) long() time.Duration { return 3 * k.config.AckWait }

// end takes jobs out of the queue, has the worker stop them, and waits for those that it has.
func (k *kit) end(ctx context.Context, js []job) error {
	if err := k.withdraw(ctx); err != nil {
		return err
	}
	for _, j := range js {
		if err := k.jobs.Cancel(ctx, j.id.RunUID, nil); err != nil {
			return err
		}
	}
	for _, j := range js {
		if k.begun([]job{j}, 1) == 0 {
			continue
		}
		if _, err := k.settled(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

func checkOverlap(ctx context.Context, k *kit) error {
	js, err := k.several(ctx, k.config.Concurrency, k.long())
	if err != nil {
		return err
	}
	begun := 0
	if err := k.await(ctx, "all jobs are worked on, or one is done", func() (bool, error) {
		done := k.answered(js) // before the count: who begins meanwhile counts
		begun = k.begun(js, 1)
		return done || begun == len(js), nil
	}); err != nil || begun < len(js) {
		return &Failure{Expected: fmt.Sprintf("%d jobs begun before the first is done", len(js)), Saw: strconv.Itoa(begun)}
	}
	return k.end(ctx, js)
}

// checkPullBound looks at how many jobs are taken for some time, and until the worker has spoken
// twice of as many as it can do: by then it would have pulled more. After the first is done it does
// not look any more: its ack may come in after the next pull.
func checkPullBound(ctx context.Context, k *kit) error {
	n, most := k.config.Concurrency, 0
	js, err := k.several(ctx, n+2, k.long())
	if err != nil {
		return err
	}
	var begun time.Time
	long := false // it was looked long enough
	if err := k.await(ctx, "jobs are worked on", func() (bool, error) {
		info, err := k.info(ctx)
		if k.answered(js) || err != nil {
			return err == nil, err
		}
		most = max(most, info.NumAckPending)
		switch {
		case begun.IsZero() && k.begun(js, 1) > 0:
			begun = time.Now()
		case !begun.IsZero():
			passed := time.Since(begun)
			long = k.begun(js, 2) >= n && passed > k.config.AckWait || passed > 2*k.config.AckWait
		}
		return long, nil
	}); err != nil {
		return k.saw(js[0], "signs of work")
	}
	switch {
	case most > n:
		return &Failure{Expected: fmt.Sprintf("at most %d jobs taken", n), Saw: strconv.Itoa(most)}
	case !long:
		return fmt.Errorf("%w whether jobs are taken too soon: one was done before", errInconclusive)
	}
	return k.end(ctx, js)
}

// checkKilled kills the worker in the middle of a job.
func checkKilled(ctx context.Context, k *kit) error {
	j, err := k.dispatch(ctx, newJob("killed"), sleep(2*k.config.AckWait))
	if err != nil {
		return err
	}
	if err := k.working(ctx, j); err != nil {
		return err
	}
	if err := k.stop(); err != nil {
		return err
	}
	done := k.answered([]job{j})
	if err := k.start(); err != nil {
		return err
	}
	if done {
		return fmt.Errorf("%w what becomes of a job whose worker is killed: it was done before", errInconclusive)
	}
	if err := k.survived(ctx, j); err != nil {
		return err
	}
	_, err = k.finish(ctx, j)
	return err
}

// checkShutdown stops a worker that has as many jobs as it can do, while more wait.
func checkShutdown(ctx context.Context, k *kit) error {
	js, err := k.several(ctx, k.config.Concurrency+2, 2*k.config.AckWait)
	if err != nil {
		return err
	}
	if err := k.working(ctx, js[0]); err != nil {
		return err
	}
	if k.answered(js) {
		return fmt.Errorf("%w how a worker stops in the middle of its jobs: one was done before", errInconclusive)
	}
	stopped := k.terminate(ctx)
	if err := k.start(); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	for _, j := range js {
		if err := k.survived(ctx, j); err != nil {
			return err
		}
		if _, err := k.finish(ctx, j); err != nil {
			return err
		}
		// What is given back comes at once as delivery 2; what is left in silence does too, but
		// nothing was said of delivery 1.
		if es := k.tap.of(j); !settledOnce(es) {
			return k.saw(j, "an ack or a NAK of every job that the worker had when it was stopped")
		}
	}
	return nil
}

// checkHalfDone stops a worker whose job takes longer than its grace period. What it answers before
// the job can be done is half of the work.
func checkHalfDone(ctx context.Context, k *kit) error {
	if err := k.startHasty(); err != nil {
		return err
	}
	begun, long := time.Now(), k.long()
	j, err := k.dispatch(ctx, newJob("half-done"), sleep(long))
	if err != nil {
		return err
	}
	if err := k.underWay(ctx, j); err != nil {
		return err
	}
	stopped := k.terminate(ctx)
	early := time.Since(begun) < long // nobody has done all of it by then
	if err := k.start(); err != nil {
		return err
	}
	if stopped != nil {
		return stopped
	}
	if err := k.survived(ctx, j); err != nil {
		return err
	}
	es, err := k.finish(ctx, j)
	if err != nil {
		return err
	}
	if early && ackedAtOnce(es) {
		return k.saw(j, fmt.Sprintf("a NAK, or no answer before the %s that the job takes", long))
	}
	return nil
}

// ackedAtOnce says whether the first delivery of a job was acknowledged.
func ackedAtOnce(es []event) bool {
	return slices.ContainsFunc(es, func(e event) bool { return e.kind == acked && e.delivered == 1 })
}

// startHasty has a worker with a short grace period in the place of the one that runs.
func (k *kit) startHasty() error {
	if err := k.stop(); err != nil {
		return err
	}
	return k.startBy(k.config.StartHasty)
}

// underWay waits until a worker has a job, and wants that it is not done by then.
func (k *kit) underWay(ctx context.Context, j job) error {
	if err := k.working(ctx, j); err != nil {
		return err
	}
	if k.answered([]job{j}) {
		return fmt.Errorf("%w what a worker answers at the end of its grace period: the job was done before", errInconclusive)
	}
	return nil
}

// settledOnce says whether the first delivery of a job was acknowledged or given back.
func settledOnce(es []event) bool {
	for _, e := range es {
		if e.delivered == 1 && (e.kind == acked || e.kind == returned) {
			return true
		}
	}
	return false
}

// terminate stops the worker in peace.
func (k *kit) terminate(ctx context.Context) error {
	p := k.process
	k.process = nil
	ctx, cancel := context.WithTimeout(ctx, k.config.Patience)
	defer cancel()
	err := p.Terminate(ctx)
	k.output += p.Output()
	if err != nil {
		return &Failure{Expected: "the worker ends by itself, with exit code 0, after SIGTERM", Saw: err.Error()}
	}
	return nil
}

// checkConsumerGone takes the topic's consumer away from an idle worker, and makes it again. It is
// best done while the worker waits for a job, so that it is told; one that asks now and then only
// is not waited for.
func checkConsumerGone(ctx context.Context, k *kit) error {
	enough := time.Now().Add(k.config.AckWait)
	if err := k.await(ctx, "a pull waits", func() (bool, error) {
		info, err := k.info(ctx)
		return err == nil && (info.NumWaiting > 0 || time.Now().After(enough)), err
	}); err != nil {
		return err
	}
	if err := k.js.DeleteConsumer(ctx, k.names.JobsStream(), k.consumer.Durable); err != nil {
		return fmt.Errorf("delete consumer: %w", err)
	}
	if err := k.makeConsumer(ctx); err != nil {
		return err
	}
	_, _, err := k.do(ctx, "late", quick)
	return err
}

func checkRestartWorking(ctx context.Context, k *kit) error {
	j, err := k.dispatch(ctx, newJob("restart"), sleep(k.long())) // not done before a busy machine has stopped the server
	if err != nil {
		return err
	}
	if err := k.working(ctx, j); err != nil {
		return err
	}
	if k.answered([]job{j}) {
		return fmt.Errorf("%w what becomes of a job over a restart: it was done before", errInconclusive)
	}
	if err := k.restartNATS(ctx); err != nil {
		return err
	}
	return k.survived(ctx, j)
}

func checkRestartIdle(ctx context.Context, k *kit) error {
	if err := k.restartNATS(ctx); err != nil {
		return err
	}
	j, err := k.dispatch(ctx, newJob("restart"), quick)
	if err != nil {
		return err
	}
	return k.survived(ctx, j)
}

// restartPatience is what a server and its clients may need for a restart on a busy machine.
const restartPatience = time.Minute

func (k *kit) restartNATS(ctx context.Context) error {
	if err := k.config.RestartNATS(); err != nil {
		return fmt.Errorf("restart NATS: %w", err)
	}
	// How long a server takes to come back says nothing about the worker.
	return k.awaitFor(ctx, max(k.config.Patience, restartPatience), "the operator is connected again", func() (bool, error) {
		_, err := k.js.AccountInfo(ctx)
		return err == nil && k.bus.Connected() && k.tap.nc.IsConnected(), nil
	})
}

func checkSecret(_ context.Context, k *kit) error {
	if k.leaked() {
		return &Failure{Expected: "no token in the output of the worker", Saw: "one"}
	}
	return nil
}
