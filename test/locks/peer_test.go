// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// errGone is returned by calls when the process at the other end has closed its pipe.
var errGone = errors.New("the other process is gone")

// message is one line between a test and its child. With a Method it is a call, or, without an ID,
// a notice that nobody answers; else it is the answer to the call with that ID.
type message struct {
	ID     int64           `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Body   json.RawMessage `json:"body,omitempty"`
	Error  string          `json:"error,omitempty"`
}

// method answers calls.
type method func(ctx context.Context, body json.RawMessage) (any, error)

// methods are what one end offers to the other, by name.
type methods map[string]method

// does makes a method of a function.
func does[In, Out any](f func(ctx context.Context, in In) (Out, error)) method {
	return func(ctx context.Context, body json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, fmt.Errorf("body: %w", err)
		}
		return f(ctx, in)
	}
}

// none is the argument or the result of methods that have none.
type none struct{}

// peer is one end of the connection between a test and its child. Both ends may call.
type peer struct {
	methods methods
	gone    chan struct{} // closed when nothing comes from the other end any more

	mu    sync.Mutex
	out   *json.Encoder
	calls map[int64]chan message // that wait for their answer
	last  int64
}

func newPeer(out io.Writer, m methods) *peer {
	return &peer{methods: m, gone: make(chan struct{}), out: json.NewEncoder(out), calls: map[int64]chan message{}}
}

// serve answers calls until in ends, which also ends the contexts of calls that are being answered,
// and waits for those.
func (p *peer) serve(ctx context.Context, in io.Reader) {
	ctx, cancel := context.WithCancel(ctx)
	var answers sync.WaitGroup
	defer answers.Wait()
	defer cancel()
	defer close(p.gone)
	lines := json.NewDecoder(in)
	for {
		var m message
		if lines.Decode(&m) != nil {
			return
		}
		switch {
		case m.Method == "":
			p.deliver(m)
		case m.ID == 0:
			// In this goroutine: notices sent before an answer are dealt with before
			// the answer arrives.
			_, _ = p.run(ctx, m)
		default:
			answers.Go(func() { p.answer(ctx, m) })
		}
	}
}

func (p *peer) run(ctx context.Context, m message) (any, error) {
	f, ok := p.methods[m.Method]
	if !ok {
		return nil, fmt.Errorf("unknown method %q", m.Method)
	}
	return f(ctx, m.Body)
}

func (p *peer) answer(ctx context.Context, m message) {
	reply := message{ID: m.ID}
	out, err := p.run(ctx, m)
	if err == nil {
		reply.Body, err = json.Marshal(out)
	}
	if err != nil {
		reply.Error = err.Error()
	}
	_ = p.send(reply) // whoever does not read it is gone
}

func (p *peer) deliver(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.calls[m.ID]; ok {
		delete(p.calls, m.ID)
		c <- m
	}
}

func (p *peer) send(m message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(m)
}

// notify sends a notice.
func (p *peer) notify(method string, in any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return p.send(message{Method: method, Body: body})
}

// call calls a method of the other end. out may be nil.
func (p *peer) call(ctx context.Context, method string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	reply := make(chan message, 1)
	p.mu.Lock()
	p.last++
	id := p.last
	p.calls[id] = reply
	p.mu.Unlock()
	if err := p.send(message{ID: id, Method: method, Body: body}); err != nil {
		return fmt.Errorf("%s: %w: %w", method, errGone, err)
	}
	select {
	case m := <-reply:
		if m.Error != "" {
			return fmt.Errorf("%s: %s", method, m.Error)
		}
		if out == nil {
			return nil
		}
		return json.Unmarshal(m.Body, out)
	case <-p.gone:
		return fmt.Errorf("%s: %w", method, errGone)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", method, context.Cause(ctx))
	}
}
