// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

// A whole worker: its topics, its concurrency, a clean end at SIGTERM.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := worker.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()

	w := worker.New(nc, worker.Options{GracePeriod: 10 * time.Second})
	w.Handle("text.length", func(_ context.Context, job worker.Job) (any, error) {
		var in struct{ Text string }
		if err := job.Decode(&in); err != nil {
			return nil, err
		}
		return map[string]int{"length": len(in.Text)}, nil
	}, worker.Concurrency(8))
	if err := w.Run(ctx); err != nil {
		fmt.Println(err)
	}
}

// What a handler can say about a job that it did not do.
func ExampleHandler() {
	var fetch worker.Handler = func(ctx context.Context, job worker.Job) (any, error) {
		var in struct{ URL string }
		if err := job.Decode(&in); err != nil {
			return nil, err // final: the next attempt has the same input
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.URL, nil) // ctx ends at the deadline and on cancel
		if err != nil {
			return nil, worker.Final(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err // failed, retried as the step says
		}
		defer func() { _ = res.Body.Close() }()
		switch res.StatusCode {
		case http.StatusTooManyRequests:
			return nil, worker.RetryAfter(30*time.Second, errors.New("rate limit")) // not a failure
		case http.StatusNotFound:
			return nil, worker.Final(worker.Fail("NotFound", in.URL))
		}
		return map[string]int{"status": res.StatusCode}, nil
	}
	_ = fetch
}

// Every error with a delay in its chain means "again, in that time"; %v instead of %w
// would lose it.
func ExampleRetryAfter() {
	quota := worker.RetryAfter(2*time.Second, errors.New("quota"))
	kept, lost := fmt.Errorf("call model: %w", quota), fmt.Errorf("call model: %v", quota) //nolint:errorlint // the wrong way, shown
	var d interface{ RetryDelay() time.Duration }
	fmt.Println(errors.As(kept, &d), errors.As(lost, &d))
	// Output: true false
}
