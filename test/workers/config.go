// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Defaults of Config.
const (
	DefaultTopic       = "demo.conformance"
	DefaultConcurrency = 4
	DefaultAckWait     = 2 * time.Second
	DefaultPatience    = 30 * time.Second
)

// minAckWait leaves a third of it, the time between two pings, well above what a busy machine takes
// to wake a process.
const minAckWait = 300 * time.Millisecond

// ErrStreamsExist is returned by Run when streams of the prefix are there. Another prefix, another
// server or Config.Reset helps.
var ErrStreamsExist = errors.New("streams of this prefix exist")

// errConfig is returned for a Config that no worker can be tested with.
var errConfig = errors.New("invalid configuration")

// Config says which worker is tested, and where.
type Config struct {
	URL    string // of a NATS server with JetStream, with all rights
	Prefix string // of subjects and streams; default protocol.DefaultPrefix
	Topic  string // the worker's test topic, see docs/workers.md; default DefaultTopic

	// Concurrency is how many jobs the worker does at the same time; default DefaultConcurrency.
	Concurrency int
	// AckWait of the topic's consumer. A worker that pings at a fixed pace needs at least three
	// times that; default DefaultAckWait.
	AckWait time.Duration
	// Patience is how long a check waits for what must happen; default DefaultPatience.
	Patience time.Duration

	// References says that a worker has to put large outputs into the object store: a final failure
	// in their place is not enough.
	References bool

	// Start starts the worker. Nil: it runs already, and checks that kill or stop it are skipped.
	Start func() (Process, error)
	// StartHasty starts the worker as Start does, with a grace period that is shorter than AckWait:
	// a second, say. Nil: checks that need it are skipped.
	StartHasty func() (Process, error)
	// RestartNATS stops the server and starts it at the same address with the same data. Nil: its
	// checks are skipped.
	RestartNATS func() error
	// Skip names checks by their ID.
	Skip []string
	// Reset allows to delete streams that are there.
	Reset bool

	Report func(Outcome) // is called after every check; optional
	Log    logr.Logger   // of the operator's side; default: nothing
}

// Process is a running worker.
type Process interface {
	// Kill ends it as SIGKILL does, and returns when it is gone.
	Kill() error
	// Terminate asks it to end as SIGTERM does, and waits. An error says that it did not end with
	// exit code 0.
	Terminate(ctx context.Context) error
	// Output is what it wrote to standard output and error.
	Output() string
}

// Verdict says how a check ended.
type Verdict string

// The verdicts.
const (
	OK      Verdict = "ok"
	Failed  Verdict = "FAILED"
	Skipped Verdict = "skipped"
)

// Outcome is what one check found.
type Outcome struct {
	ID       string // a word for Config.Skip
	Sentence string // of docs/protocol.md or docs/workers.md: what was checked
	Verdict  Verdict
	Detail   string // why it failed (what was expected, what was seen) or was skipped
	Took     time.Duration
}

// String is one line, or three for a failure.
func (o Outcome) String() string {
	s := fmt.Sprintf("%-8s%-19s%s", o.Verdict, o.ID, o.Sentence)
	if o.Detail != "" {
		s += "\n        " + o.Detail
	}
	return s
}

func (c Config) withDefaults() (Config, error) {
	c.Prefix = cmp.Or(c.Prefix, protocol.DefaultPrefix)
	c.Topic = cmp.Or(c.Topic, DefaultTopic)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.AckWait = cmp.Or(c.AckWait, DefaultAckWait)
	c.Patience = cmp.Or(c.Patience, DefaultPatience)
	if c.Report == nil {
		c.Report = func(Outcome) {}
	}
	switch {
	case c.Concurrency < 1:
		return c, fmt.Errorf("%w: concurrency %d", errConfig, c.Concurrency)
	case c.AckWait < minAckWait:
		return c, fmt.Errorf("%w: AckWait %s is below %s", errConfig, c.AckWait, minAckWait)
	}
	for _, id := range c.Skip {
		if !known(id) {
			return c, fmt.Errorf("%w: there is no check %q to skip", errConfig, id)
		}
	}
	return c, nil
}
