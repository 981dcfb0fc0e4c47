// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/views"
)

const (
	maxStreams     = 100
	maxUserStreams = 10
	streamLife     = 15 * time.Minute
	streamPause    = time.Second // between two words to a page
	streamBeat     = 20 * time.Second
	tickPeriod     = 10 * time.Second
	writeTimeout   = 10 * time.Second
)

// follower finds what a page follows: changes come out of the channel until ctx ends. It is closed
// when there is nothing more to follow.
type follower func(ctx context.Context, v visit) (<-chan struct{}, error)

// live tells a page of changes, as server-sent events.
func (s *Server) live(follow follower) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		view, err := s.admit(r)
		if err != nil {
			status, _ := failureOf(err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		if !s.streams.enter(view.User) {
			http.Error(w, "too many pages follow changes", http.StatusTooManyRequests)
			return
		}
		defer s.streams.leave(view.User)
		ctx, cancel := context.WithTimeout(r.Context(), streamLife)
		defer cancel()
		changes, err := follow(ctx, visit{r, view, s.Clock.Now()})
		if err != nil {
			status, _ := failureOf(err)
			http.Error(w, http.StatusText(status), status)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		if s.say(w, ": hello\n\n") == nil {
			s.tell(ctx, w, changes)
		}
	})
}

// admit finds out who asks for a stream, in the time that a page may take: who is not known yet is
// counted nowhere, and may ask again and again.
func (s *Server) admit(r *http.Request) (*cluster.View, error) {
	ctx, cancel := context.WithTimeout(r.Context(), s.PageTime)
	defer cancel()
	return s.access.Admit(r.WithContext(ctx))
}

// tell writes an event for changes, once a second at most, and a comment when nothing happens, so
// that nobody on the way takes the connection for a dead one.
func (s *Server) tell(ctx context.Context, w http.ResponseWriter, changes <-chan struct{}) {
	beat := s.Clock.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		text := ": still here\n\n"
		select {
		case <-ctx.Done():
			return
		case <-beat.C():
		case _, ok := <-changes:
			if !ok {
				_ = s.say(w, "event: gone\ndata:\n\n") // it is the last word
				return
			}
			text = "event: changed\ndata:\n\n"
		}
		if s.say(w, text) != nil {
			return
		}
		if s.pause(ctx, streamPause) != nil {
			return
		}
	}
}

func (s *Server) say(w http.ResponseWriter, text string) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(s.Clock.Now().Add(writeTimeout)) // not every writer has one
	if _, err := fmt.Fprint(w, text); err != nil {
		return err
	}
	return c.Flush()
}

func (s *Server) pause(ctx context.Context, d time.Duration) error {
	t := s.Clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C():
		return nil
	}
}

// followRuns follows the list of runs.
func (s *Server) followRuns(ctx context.Context, v visit) (<-chan struct{}, error) {
	namespace, _, err := s.listable(ctx, v, views.ParseRunsQuery(v.URL.Query()).Namespace)
	if err != nil {
		return nil, err
	}
	changes, stop, err := s.feeds.Subscribe(ctx, v.view, namespace)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, stop)
	return changes, nil
}

// followRun follows one run.
func (s *Server) followRun(ctx context.Context, v visit) (<-chan struct{}, error) {
	namespace, name := v.PathValue("namespace"), v.PathValue("name")
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	go func() {
		_ = v.view.Follow(ctx, s.Clock, namespace, name, changed) // the page says why, once it is read again
		if ctx.Err() == nil {
			close(changes)
		}
	}()
	return changes, nil
}

// followTicks is for pages of what is not watched: they are told every ten seconds.
func (s *Server) followTicks(ctx context.Context, _ visit) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	ticker := s.Clock.NewTicker(tickPeriod)
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
				select {
				case changes <- struct{}{}:
				default:
				}
			}
		}
	}()
	return changes, nil
}
