// SPDX-License-Identifier: Apache-2.0

// Package orders is an example: a worker whose writes a database refuses when the lock that
// protected them has gone to another holder. docs/limits.md tells why that is needed.
//
//	worker A  fence 17  begins ... is paused, and its job times out
//	worker B  fence 18                                  begins, writes: the table has 18
//	worker A                                                            wakes, writes with 17: refused
//
// The SQL is that of most databases. The test plays the story with the operator, two processes of
// workers, and a real database.
package orders

import (
	"context"
	"database/sql"
	_ "embed" // for the SQL
	"errors"
	"fmt"

	_ "modernc.org/sqlite" // the driver

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

//go:embed schema.sql
var schema string

//go:embed fence.sql
var fenceSQL string

// ErrStale says that a later holder of the lock was here before.
var ErrStale = errors.New("a later holder of the lock was here before")

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

// Write sets the state of an order for a holder of a lock, or returns ErrStale if a later one was
// here. Both are in one transaction: a later holder comes before all of it, or after all of it.
func Write(ctx context.Context, db *sql.DB, lock string, fence int64, order, state string) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	seen, err := tx.ExecContext(ctx, fenceSQL, sql.Named("lock", lock), sql.Named("fence", fence))
	if err != nil {
		return fmt.Errorf("compare fence: %w", err)
	}
	if rows, err := seen.RowsAffected(); err != nil || rows == 0 {
		return errors.Join(err, ErrStale)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state", order, state); err != nil {
		return fmt.Errorf("write order: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// Input of a job.
type Input struct {
	Order string `json:"order"`
	State string `json:"state"`
}

// Handler writes orders under a lock. pause stands for whatever keeps a worker from going on: a
// machine that sleeps, a garbage collection, a network that comes back.
func Handler(db *sql.DB, lock string, pause func(fence int64)) worker.Handler {
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
		err := Write(context.WithoutCancel(ctx), db, lock, fence, in.Order, in.State)
		if errors.Is(err, ErrStale) {
			return nil, worker.Final(worker.Fail("Stale", err.Error()))
		}
		return map[string]any{"fence": fence}, err
	}
}
