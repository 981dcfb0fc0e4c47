// SPDX-License-Identifier: Apache-2.0

// Command worker-go is a sample worker: some topics to try runs with, and the shape of a worker
// of your own.
//
// It reads NATS_URL, the address of the NATS server, and where they are set: NATS_USER and
// NATS_PASSWORD; NATS_CA, NATS_CERT and NATS_KEY, the names of files; SYNCOPATE_PREFIX, which is
// the operator's --nats-prefix; GRACE_SECONDS, which jobs have after SIGTERM, some 15 less than the
// pod has; INBOX_PREFIX and NO_OBJECT_STORE=1, for a confined worker; TOPICS, those of its topics
// that it does, with commas between them.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/worker"
)

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil))) // where the SDK says what it has to say
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	period, err := grace(os.Getenv("GRACE_SECONDS"))
	if err != nil {
		return err
	}
	topics, err := chosen(os.Getenv("TOPICS"))
	if err != nil {
		return err
	}
	nc, err := worker.Connect(os.Getenv("NATS_URL"), login(os.Getenv)...)
	if err != nil {
		return err
	}
	defer nc.Close()
	w := worker.New(nc, worker.Options{
		Prefix: os.Getenv("SYNCOPATE_PREFIX"), GracePeriod: period, NoObjectStore: os.Getenv("NO_OBJECT_STORE") == "1",
	})
	for _, name := range topics {
		t := known[name]
		w.Handle(name, t.handler, worker.Concurrency(t.concurrency))
	}
	return w.Run(ctx)
}

// known are the topics of this worker.
var known = map[string]struct {
	handler     worker.Handler
	concurrency int
}{
	"demo.echo":        {echo, 16},
	"demo.flaky":       {flaky, 16},
	"demo.slow":        {slow, 16},
	"demo.fail":        {fail, 1},
	"http.fetch":       {fetch, 16},
	"demo.conformance": {conformance, 4},
}

// chosen reads TOPICS. A worker asks NATS for the jobs of all topics that it handles, so one that
// may have some only has to leave out the others. Nothing is all.
func chosen(text string) (topics []string, err error) {
	all := slices.Sorted(maps.Keys(known))
	if text == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("TOPICS: no topic %q here, only %s", name, strings.Join(all, ", "))
		}
		topics = append(topics, name)
	}
	slices.Sort(topics)
	return slices.Compact(topics), nil
}

var (
	graceSeconds = regexp.MustCompile(`^[0-9]{1,6}$`)
	errGrace     = errors.New("GRACE_SECONDS: want a whole number of seconds, 0 to 999999")
)

// grace reads GRACE_SECONDS as worker.Options has it: there a negative period is none.
func grace(text string) (time.Duration, error) {
	text = cmp.Or(text, "20")
	if !graceSeconds.MatchString(text) {
		return 0, errGrace
	}
	seconds, err := strconv.Atoi(text)
	if err != nil {
		return 0, errGrace
	}
	return cmp.Or(time.Duration(seconds)*time.Second, -1), nil
}

// login is how NATS is told who this is, and where answers go. Files are read again for each
// connection, as they rotate.
func login(getenv func(string) string) (opts []nats.Option) {
	if ca := getenv("NATS_CA"); ca != "" {
		opts = append(opts, nats.RootCAs(ca))
	}
	if cert := getenv("NATS_CERT"); cert != "" {
		opts = append(opts, nats.ClientCert(cert, getenv("NATS_KEY")))
	}
	if user := getenv("NATS_USER"); user != "" {
		opts = append(opts, nats.UserInfo(user, getenv("NATS_PASSWORD")))
	}
	if inbox := getenv("INBOX_PREFIX"); inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	return opts
}

// echo answers its input.
func echo(_ context.Context, job worker.Job) (any, error) {
	return job.Input, nil
}

// flaky fails the first attempts of a step: as many as input.failures says, 1 if it says nothing.
func flaky(_ context.Context, job worker.Job) (any, error) {
	in := struct{ Failures int32 }{Failures: 1}
	if err := job.Decode(&in); err != nil {
		return nil, err
	}
	if job.ID.Attempt <= in.Failures {
		return nil, worker.Fail("Flaky", fmt.Sprintf("attempt %d of a worker that fails %d times", job.ID.Attempt, in.Failures))
	}
	return map[string]any{"attempt": job.ID.Attempt}, nil
}

// slow takes input.millis, or until the run is cancelled.
func slow(ctx context.Context, job worker.Job) (any, error) {
	in := struct{ Millis int64 }{Millis: 1000}
	if err := job.Decode(&in); err != nil {
		return nil, err
	}
	return after(ctx, time.Duration(in.Millis)*time.Millisecond, map[string]any{"slept": in.Millis})
}

// after gives an output after some time, or says why the job is not wanted any more.
func after(ctx context.Context, d time.Duration, output any) (any, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return output, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// fail cannot do its job, and says that a retry does not help.
func fail(context.Context, worker.Job) (any, error) {
	return nil, worker.Final(errors.New("this topic always fails"))
}

// fetch stands for an HTTP client, so that samples need no network.
func fetch(_ context.Context, job worker.Job) (any, error) {
	var in struct{ URL string }
	if err := job.Decode(&in); err != nil {
		return nil, err
	}
	if in.URL == "" {
		return nil, worker.Final(worker.Fail("InvalidInput", "url is missing"))
	}
	return map[string]any{"status": 200, "url": in.URL, "pages": []string{in.URL + "#1", in.URL + "#2"}}, nil
}

// conformance is the topic of the conformance kit, see docs/workers.md.
func conformance(ctx context.Context, job worker.Job) (any, error) {
	var in struct {
		Do, Code, Message string
		Millis            int64
		Bytes             int
		Value             any
	}
	if err := job.Decode(&in); err != nil {
		return nil, err
	}
	pause := time.Duration(in.Millis) * time.Millisecond
	switch in.Do {
	case "succeed":
		return in.Value, nil
	case "sleep":
		return after(ctx, pause, in.Value)
	case "fences":
		return fences(job), nil
	case "trace":
		return job.TraceParent, nil
	case "large":
		return strings.Repeat("x", max(0, in.Bytes)), nil
	case "fail":
		return nil, worker.Fail(in.Code, in.Message)
	case "final":
		return nil, worker.Final(worker.Fail(in.Code, in.Message))
	case "retry":
		return nil, worker.RetryAfter(pause, nil)
	default:
		return nil, worker.Final(worker.Fail("InvalidInput", fmt.Sprintf("do is %q", in.Do)))
	}
}

// fences are those of the locks that protect a job; an empty object if there are none.
func fences(job worker.Job) map[string]int64 {
	if job.LockFences == nil {
		return map[string]int64{}
	}
	return job.LockFences
}
