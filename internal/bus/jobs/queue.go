// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

const (
	jobAckWait   = 30 * time.Second
	topicRecheck = time.Minute
)

// signer makes the tokens of jobs; *keys.Live does.
type signer interface {
	Sign(id protocol.JobID) string
}

// answers says whether a job has a final answer in RESULTS, judged by keys that were read after
// since; *results.Reader does.
type answers interface {
	Answered(ctx context.Context, id protocol.JobID, since time.Time) (bool, error)
}

// Options of a Queue. Zero values mean the defaults given.
type Options struct {
	MaxAckPending   int           // jobs of one topic in the hands of workers; default 10,000
	MaxTopics       int           // topics with a consumer; jobs of another one wait; default 1,000
	TopicInactivity time.Duration // a topic's consumer vanishes after this time without workers; default 7 days
	Metrics         *Metrics      // default: unregistered ones
}

func (o Options) withDefaults() Options {
	if o.MaxAckPending == 0 {
		o.MaxAckPending = defaultBound
	}
	if o.MaxTopics == 0 {
		o.MaxTopics = 1_000
	}
	if o.TopicInactivity == 0 {
		o.TopicInactivity = 7 * 24 * time.Hour
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(prometheus.NewRegistry())
	}
	return o
}

// Queue is the stream of jobs. All its methods may be called concurrently.
type Queue struct {
	conn    *bus.Conn
	signer  signer
	answers answers
	metrics *Metrics
	topics  *topics
	echo    echo
}

// New makes a Queue on a connection.
func New(conn *bus.Conn, signer signer, answers answers, o Options) *Queue {
	o = o.withDefaults()
	return &Queue{conn: conn, signer: signer, answers: answers, metrics: o.Metrics, topics: newTopics(conn, o)}
}
