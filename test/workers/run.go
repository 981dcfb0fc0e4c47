// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// check is one thing that a worker may get wrong.
type check struct {
	id       string
	sentence string // as it stands in docs/protocol.md or docs/workers.md
	needs    need
	run      func(context.Context, *kit) error // a *Failure, or what kept the kit from judging
}

// need is what a check cannot do without.
type need int

const (
	nothing    need = iota
	process         // to start, kill and stop the worker
	shortGrace      // to start it with a short grace period
	restart         // to restart NATS
	several         // a worker that does several jobs at a time
)

// Failure is what a check found: the worker did something else than it should.
type Failure struct{ Expected, Saw string }

func (f *Failure) Error() string { return "expected " + f.Expected + "; saw " + f.Saw }

// kit is one run of the checks.
type kit struct {
	*operator
	tap     *tap
	pace    *pace
	process Process // nil if it is not the kit's
	output  string  // of earlier processes
}

// Run checks a worker and says what each check found. Its error says why the checks could not be
// run, or not to their end: it wraps ErrStreamsExist, or tells what is wrong with NATS or with
// starting the worker.
func Run(ctx context.Context, c Config) (outcomes []Outcome, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, err
	}
	o, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	defer o.close(context.WithoutCancel(ctx))
	if err := o.prepare(ctx); err != nil {
		return nil, err
	}
	k := &kit{operator: o}
	defer func() { err = errors.Join(err, k.stop(), o.clear(context.WithoutCancel(ctx), true)) }()
	if k.tap, err = listen(c, o.names); err != nil {
		return nil, err
	}
	defer k.tap.close()
	k.pace = startPace(ctx)
	defer k.pace.stop()
	if err := k.start(); err != nil {
		return nil, err
	}
	for _, ch := range checks() {
		outcome := k.judge(ctx, ch)
		outcomes = append(outcomes, outcome)
		c.Report(outcome)
		if err := ctx.Err(); err != nil {
			return outcomes, err
		}
		if outcome.Verdict == Failed {
			if err := k.renew(ctx); err != nil {
				return outcomes, err
			}
		}
	}
	return outcomes, nil
}

func (k *kit) judge(ctx context.Context, c check) Outcome {
	o := Outcome{ID: c.id, Sentence: c.sentence, Verdict: OK}
	if why := k.skip(c); why != "" {
		o.Verdict, o.Detail = Skipped, why
		return o
	}
	begin := time.Now()
	if err := k.try(ctx, c); err != nil {
		o.Verdict, o.Detail = Failed, err.Error()
	}
	o.Took = time.Since(begin)
	return o
}

// skip says why a check cannot be done, or "".
func (k *kit) skip(c check) string {
	switch {
	case slices.Contains(k.config.Skip, c.id):
		return "as asked"
	case c.needs == process && k.config.Start == nil:
		return "needs the command that starts the worker"
	case c.needs == shortGrace && k.config.StartHasty == nil:
		return "needs the command that starts the worker with a short grace period"
	case c.needs == restart && k.config.RestartNATS == nil:
		return "needs a NATS server of the kit's own"
	case c.needs == several && k.config.Concurrency == 1:
		return "needs a worker that does several jobs at a time"
	}
	return ""
}

func (k *kit) start() error {
	if k.config.Start == nil {
		return nil
	}
	return k.startBy(k.config.Start)
}

func (k *kit) startBy(start func() (Process, error)) error {
	p, err := start()
	if err != nil {
		return fmt.Errorf("start worker: %w", err)
	}
	k.process = p
	return nil
}

// stop ends the worker, whatever state it is in.
func (k *kit) stop() error {
	if k.process == nil {
		return nil
	}
	p := k.process
	k.process = nil
	err := p.Kill()
	k.output += p.Output()
	if err != nil {
		return fmt.Errorf("kill worker: %w", err)
	}
	return nil
}

// renew makes the next check independent of one that failed.
func (k *kit) renew(ctx context.Context) error {
	if err := k.stop(); err != nil {
		return err
	}
	if err := k.await(ctx, "the queue is emptied", func() (bool, error) {
		err := k.withdraw(ctx)
		return err == nil, err
	}); err != nil {
		return err
	}
	return k.start()
}

// said is all that the worker's processes wrote.
func (k *kit) said() string {
	if k.process == nil {
		return k.output
	}
	return k.output + k.process.Output()
}

func known(id string) bool {
	return slices.ContainsFunc(checks(), func(c check) bool { return c.id == id })
}

// IDs are the names of all checks.
func IDs() []string {
	var ids []string
	for _, c := range checks() {
		ids = append(ids, c.id)
	}
	return ids
}

// saw makes a Failure of a job's story.
func (k *kit) saw(j job, expected string) error {
	return &Failure{Expected: expected, Saw: story(k.tap.of(j))}
}

// finish waits until a job is answered and acknowledged, in whatever order, and gives what was
// said about it.
func (k *kit) finish(ctx context.Context, j job) ([]event, error) {
	var es []event
	err := k.await(ctx, "an answer and an ack", func() (bool, error) {
		es = k.tap.of(j)
		return count(es, answer) > 0 && count(es, acked) > 0, nil
	})
	if err != nil {
		return nil, k.saw(j, "an answer and an ack within "+k.config.Patience.String())
	}
	return es, nil
}

// do dispatches a job and waits for its end.
func (k *kit) do(ctx context.Context, step string, in input) (job, []event, error) {
	j, err := k.dispatch(ctx, newJob(step), in)
	if err != nil {
		return j, nil, err
	}
	es, err := k.finish(ctx, j)
	return j, es, err
}

// settled waits until a job is acknowledged or terminated.
func (k *kit) settled(ctx context.Context, j job) ([]event, error) {
	var es []event
	err := k.await(ctx, "an ack or Term", func() (bool, error) {
		es = k.tap.of(j)
		if count(es, returned) > maxReturns {
			return false, k.saw(j, "an ack or Term")
		}
		return count(es, acked, ended) > 0, nil
	})
	if failure := (*Failure)(nil); err != nil && !errors.As(err, &failure) {
		return nil, k.saw(j, "an ack or Term within "+k.config.Patience.String())
	}
	return es, err
}

// maxReturns of one job in a row show that it would go round for ever.
const maxReturns = 3

// working waits until there is a sign that a worker has a job: Started, or a ping.
func (k *kit) working(ctx context.Context, js ...job) error {
	for _, j := range js {
		err := k.await(ctx, "a job is worked on", func() (bool, error) { return len(k.tap.of(j)) > 0, nil })
		if err != nil {
			return k.saw(j, "Started or InProgress within "+k.config.Patience.String())
		}
	}
	return nil
}

// survived waits for the one answer of a job whose messages the tap may have missed.
func (k *kit) survived(ctx context.Context, j job) error {
	var answers int
	// A client's own wait before it connects again counts here, and a busy machine makes it longer.
	err := k.awaitFor(ctx, 4*k.config.Patience, "an answer is stored and the job is gone", func() (bool, error) {
		rs, err := k.stored(ctx, j.id)
		if err != nil {
			return false, err
		}
		answers = len(rs)
		queued, err := k.queued(ctx, j)
		return err == nil && answers > 0 && !queued, err
	})
	if err != nil || answers != 1 {
		return &Failure{Expected: "one answer in the stream, and no job in the queue", Saw: fmt.Sprintf("%d answers (%s)", answers, story(k.tap.of(j)))}
	}
	return nil
}

func (k *kit) queued(ctx context.Context, j job) (bool, error) {
	jobs, err := k.jobs.List(ctx)
	if err != nil {
		return false, err
	}
	for _, q := range jobs {
		if q.ID == j.id {
			return true, nil
		}
	}
	return false, nil
}

// leaked looks for tokens in what the worker wrote.
func (k *kit) leaked() bool {
	said := k.said()
	return slices.ContainsFunc(k.tokens, func(token string) bool { return strings.Contains(said, token) })
}
