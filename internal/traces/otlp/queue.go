// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"sync"

	"github.com/syncopate-dev/syncopate/internal/traces"
)

// Bounds of what waits to be sent, and of one request.
const (
	maxSpans   = 8192
	maxBytes   = 8 << 20
	batchSpans = 512
)

// queue has the spans that wait to be sent. Nobody waits for room in it.
type queue struct {
	mu    sync.Mutex
	spans []traces.Span
	bytes int
	ready chan struct{} // has a word when there may be spans
}

func newQueue() *queue { return &queue{ready: make(chan struct{}, 1)} }

// put takes as many spans as there is room for, and says how many that were not.
func (q *queue) put(spans []traces.Span) (dropped int) {
	q.mu.Lock()
	for i := range spans {
		n := size(&spans[i])
		if len(q.spans) >= maxSpans || q.bytes+n > maxBytes {
			dropped++
			continue
		}
		q.spans, q.bytes = append(q.spans, spans[i]), q.bytes+n
	}
	q.mu.Unlock()
	select {
	case q.ready <- struct{}{}:
	default:
	}
	return dropped
}

// full says whether there are spans for a whole request.
func (q *queue) full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.spans) >= batchSpans
}

// take takes the next batch out; nil: there is none.
func (q *queue) take() []traces.Span {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(len(q.spans), batchSpans)
	if n == 0 {
		return nil
	}
	batch := make([]traces.Span, n)
	copy(batch, q.spans)
	for i := range batch {
		q.bytes -= size(&batch[i])
	}
	rest := copy(q.spans, q.spans[n:])
	clear(q.spans[rest:])
	q.spans = q.spans[:rest]
	return batch
}
