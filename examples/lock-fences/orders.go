// SPDX-License-Identifier: Apache-2.0

// Package orders is an example: a worker whose writes a database refuses when they are late.
// docs/limits.md tells why that is needed. A worker may be late since the lock that protected it
// has gone to another holder:
//
//	worker A  fence 17  begins ... is paused, and its job times out
//	worker B  fence 18                                  begins, writes: the table has 18
//	worker A                                                            wakes, writes with 17: refused
//
// or since its step, which has kept the lock and the fence, was tried again:
//
//	worker A  attempt 1  begins ... is paused, and its job times out
//	worker B  attempt 2                                 begins, writes: the table has 2
//	worker A                                                            wakes, writes for 1: refused
//
// The lock is a mutex. A Semaphore has several holders at a time, each with a fence of its own, and
// a table that compares them would refuse holders that are in time.
//
// The SQL is that of most databases. The test plays the stories with the operator, two processes of
// workers, and a real database.
package orders

import (
	"context"
	"database/sql"
	_ "embed" // for the SQL
	"errors"
	"fmt"
	"path"

	_ "modernc.org/sqlite" // the driver

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

//go:embed schema.sql
var schema string

//go:embed fence.sql
var fenceSQL string

//go:embed clear.sql
var clearSQL string

//go:embed attempt.sql
var attemptSQL string

// ErrStale says that a later holder of the lock was here before, or a later attempt of the job.
var ErrStale = errors.New("a later holder of the lock, or a later attempt, was here before")

// Open makes a database with its tables in a new file, or opens it.
func Open(ctx context.Context, file string) (*sql.DB, error) {
	// A transaction is the only writer from its begin on; others wait up to 10 s.
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	var tables int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE name = 'orders'").Scan(&tables)
	if err == nil && tables == 0 {
		_, err = db.ExecContext(ctx, schema)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make tables: %w", err), db.Close())
	}
	return db, nil
}

// Write sets the state of an order for a holder of a mutex, or returns ErrStale if a later holder,
// or a later attempt of the job, was here. All is in one transaction: who is later comes before all
// of it, or after all of it.
func Write(ctx context.Context, db *sql.DB, lock string, job worker.Job, in Input) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if err := inTime(ctx, tx, lock, job); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state", in.Order, in.State); err != nil {
		return fmt.Errorf("write order: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// inTime notes the fence and the attempt of a job, or returns ErrStale.
func inTime(ctx context.Context, tx *sql.Tx, lock string, job worker.Job) error {
	all := []any{
		sql.Named("lock", lock), sql.Named("fence", job.LockFences[lock]),
		sql.Named("work", path.Join(job.ID.RunUID, job.ID.Step, job.ID.Item)), sql.Named("attempt", job.ID.Attempt),
	}
	if err := changes(tx.ExecContext(ctx, fenceSQL, all[:2]...)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, clearSQL, all[:2]...); err != nil {
		return fmt.Errorf("remove attempts of earlier holders: %w", err)
	}
	return changes(tx.ExecContext(ctx, attemptSQL, all...))
}

// changes is ErrStale if a statement changed no row.
func changes(done sql.Result, err error) error {
	if err != nil {
		return fmt.Errorf("compare: %w", err)
	}
	if rows, err := done.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, ErrStale)
	}
	return nil
}

// Input of a job.
type Input struct {
	Order string `json:"order"`
	State string `json:"state"`
}

// Handler writes orders under a mutex, "<namespace>/<name>". It takes no other lock, since it
// compares fences. pause stands for whatever keeps a worker from going on: a machine that sleeps, a
// garbage collection, a network that comes back.
func Handler(db *sql.DB, mutex string, pause func(fence int64)) worker.Handler {
	lock := "mutex:" + mutex
	return func(ctx context.Context, job worker.Job) (any, error) {
		var in Input
		if err := job.Decode(&in); err != nil {
			return nil, err
		}
		fence, ok := job.LockFences[lock]
		if !ok {
			return nil, worker.Final(worker.Fail("NoLock", "the step has no lock "+lock))
		}
		pause(fence)
		// That ctx has ended is no help: a worker may be paused after it has looked.
		err := Write(context.WithoutCancel(ctx), db, lock, job, in)
		if errors.Is(err, ErrStale) {
			return nil, worker.Final(worker.Fail("Stale", err.Error()))
		}
		return map[string]any{"fence": fence}, err
	}
}
