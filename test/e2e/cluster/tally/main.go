// SPDX-License-Identifier: Apache-2.0

// Command tally is the worker of the cluster suite: each job is written down in a Redis of its
// own when it begins and when it ends, so that a spec can tell how often each was done,
// whatever died meanwhile.
//
// It reads NATS_URL, LEDGER_ADDR, the address of that Redis, and POD_NAME. Where NATS wants a
// certificate and a login, it reads NATS_TLS, a directory with ca.crt, tls.crt and tls.key,
// NATS_USER and NATS_PASSWORD, too.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
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
	nc, err := worker.Connect(os.Getenv("NATS_URL"), login()...)
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

// login is how NATS is told who this is.
func login() (opts []nats.Option) {
	if dir := os.Getenv("NATS_TLS"); dir != "" {
		opts = append(opts, nats.RootCAs(filepath.Join(dir, "ca.crt")), nats.ClientCert(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))
	}
	if user := os.Getenv("NATS_USER"); user != "" {
		opts = append(opts, nats.UserInfo(user, os.Getenv("NATS_PASSWORD")))
	}
	return opts
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
	id := uuid.NewString()
	entry := func() string { return fmt.Sprintf("%s %s %s %d", job.ID, l.pod, id, time.Now().UnixMilli()) }
	if err := l.write(ctx, "begun:"+in.Ledger, entry()); err != nil {
		return nil, fmt.Errorf("write the beginning down: %w", err)
	}
	timer := time.NewTimer(time.Duration(in.Millis) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := l.write(ctx, "done:"+in.Ledger, entry()); err != nil {
		return nil, fmt.Errorf("write the end down: %w", err)
	}
	return map[string]any{"by": l.pod}, nil
}

func (l *ledger) write(ctx context.Context, page, entry string) error {
	return l.store.SAdd(ctx, page, entry).Err()
}
