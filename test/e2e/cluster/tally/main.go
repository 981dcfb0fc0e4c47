// SPDX-License-Identifier: Apache-2.0

// Command tally is the worker of the cluster suite: each job is written down in a Redis of its
// own when it begins and when it ends, so that a spec can tell how often each was done,
// whatever died meanwhile.
//
// It reads NATS_URL, LEDGER_ADDR, the address of that Redis, and POD_NAME.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// concurrency is how many jobs of the topic one pod does at the same time.
const concurrency = 16

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	nc, err := worker.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer nc.Close()
	l := &ledger{
		store: redis.NewClient(&redis.Options{Addr: os.Getenv("LEDGER_ADDR"), MaxRetries: 10}),
		pod:   os.Getenv("POD_NAME"),
	}
	defer func() { err = errors.Join(err, l.store.Close()) }()
	w := worker.New(nc, worker.Options{Log: logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))})
	w.Handle("e2e.work", l.work, worker.Concurrency(concurrency))
	return w.Run(ctx)
}

// ledger is where jobs are written down.
type ledger struct {
	store *redis.Client
	pod   string
}

// input of a job: the page of the ledger, and how long the job takes.
type input struct {
	Ledger string
	Millis int64
}

// work takes input.millis. Entries are members of sets and each has an id, so that repeating a
// command whose answer was lost adds none.
func (l *ledger) work(ctx context.Context, job worker.Job) (any, error) {
	var in input
	if err := job.Decode(&in); err != nil {
		return nil, err
	}
	entry := fmt.Sprintf("%s %s %s", job.ID, l.pod, uuid.NewString())
	if err := l.store.SAdd(ctx, "begun:"+in.Ledger, entry).Err(); err != nil {
		return nil, fmt.Errorf("write the beginning down: %w", err)
	}
	timer := time.NewTimer(time.Duration(in.Millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := l.store.SAdd(ctx, "done:"+in.Ledger, entry).Err(); err != nil {
		return nil, fmt.Errorf("write the end down: %w", err)
	}
	return map[string]any{"by": l.pod}, nil
}
