// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/pages"
	"github.com/syncopate-dev/syncopate/internal/console/views"
	"github.com/syncopate-dev/syncopate/internal/console/waves"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	stopTimeout   = 5 * time.Second
	maxHeader     = 64 << 10
	secretBytes   = 32
)

// Access finds out who asks.
type Access interface {
	// Admit is the cluster as the user of a request may see it. Its error says why there is none.
	Admit(r *http.Request) (*cluster.View, error)
}

// Letters are the dead letters, with the rights of who started the console.
type Letters interface {
	// List gives the oldest, and how many more there are.
	List(ctx context.Context, limit int) (facts.Letters, error)
	// Redrive publishes one again.
	Redrive(ctx context.Context, sequence uint64) error
}

// Options are what a console needs.
type Options struct {
	Base      string        // what addresses begin with, without a slash at the end
	Hosts     []string      // names, with ports where they have one, under which it may be asked
	Namespace string        // whose runs are shown to who may not list those of all; "": none
	Operator  string        // the namespace of the operator
	Letters   Letters       // nil: the console has no rights in NATS
	PageTime  time.Duration // after which a request is given up; 0: 20 s
	Clock     clock.WithTicker
	Log       func(format string, values ...any)
}

// Server is a console.
type Server struct {
	Options
	access  Access
	feeds   *cluster.Feeds
	pages   *pages.Pages
	waves   *waves.Waves
	secret  []byte
	places  chan struct{} // of requests
	asked   *users        // by requests whose user is known
	streams *users
}

// New makes a console. Close ends what it began.
func New(ctx context.Context, access Access, o Options) (*Server, error) {
	p, err := pages.New()
	if err != nil {
		return nil, err
	}
	if o.PageTime == 0 {
		o.PageTime = pageTime
	}
	s := &Server{
		Options: o, access: access, feeds: cluster.NewFeeds(ctx, o.Clock), pages: p, waves: waves.New(), secret: make([]byte, secretBytes),
		places: make(chan struct{}, maxRequests), asked: newUsers(maxRequests, maxUserRequests), streams: newUsers(maxStreams, maxUserStreams),
	}
	_, _ = rand.Read(s.secret) // it never fails
	return s, nil
}

// Close ends the watches.
func (s *Server) Close() { s.feeds.Close() }

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	get := func(pattern string, h handler) { mux.Handle("GET "+s.Base+pattern, s.page(h)) }
	mux.Handle("GET "+s.Base+"/{$}", http.RedirectHandler(s.Base+"/runs", http.StatusSeeOther))
	mux.Handle("GET "+s.Base+"/assets/{name}", http.HandlerFunc(asset))
	get("/runs", s.runs)
	get("/runs/{namespace}/{name}", s.run)
	get("/runs/{namespace}/{name}/yaml", s.yaml)
	get("/policies", s.policies)
	get("/tenants", s.tenants)
	get("/schedules", s.schedules)
	get("/replicas", s.replicas)
	get("/dead-letters", s.letters)
	mux.Handle("POST "+s.Base+"/dead-letters/{sequence}/redrive", s.page(s.redrive))
	mux.Handle("POST "+s.Base+"/runs/{namespace}/{name}/{action}", s.page(s.act))
	mux.Handle("GET "+s.Base+"/live/runs", s.live(s.followRuns))
	mux.Handle("GET "+s.Base+"/live/runs/{namespace}/{name}", s.live(s.followRun))
	mux.Handle("GET "+s.Base+"/live/ticks", s.live(s.followTicks))
	return s.guard(mux)
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		done <- h.Shutdown(ending)
	}()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("console: %w", err)
	}
	return <-done
}

// visit is one request of a user.
type visit struct {
	*http.Request
	view *cluster.View
	now  time.Time
}

// handler answers a request with a page, or an error.
type handler func(ctx context.Context, v visit) (answer, error)

// answer is a page, or the address of one.
type answer struct {
	name  string
	page  views.Page
	elsew string // an address; "": the page
}

// page asks who is there, and writes what the handler gives.
func (s *Server) page(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), s.PageTime)
		defer cancel()
		view, err := s.access.Admit(r.WithContext(ctx))
		if err != nil {
			s.refuse(w, r, "", err)
			return
		}
		if !s.asked.enter(view.User) {
			s.refuse(w, r, view.User, errManyAsked)
			return
		}
		defer s.asked.leave(view.User)
		v := visit{r, view, s.Clock.Now()}
		if r.Method == http.MethodPost {
			if err := s.genuine(v); err != nil {
				s.refuse(w, r, view.User, err)
				return
			}
			w.Header().Del("Connection") // all of it was read
		}
		a, err := h(ctx, v)
		switch {
		case err != nil:
			s.refuse(w, r, view.User, err)
		case a.elsew != "":
			http.Redirect(w, r, s.Base+"/"+a.elsew, http.StatusSeeOther)
		default:
			s.write(w, http.StatusOK, a.name, a.page, v)
		}
	})
}

// write writes a page. It is made as a whole first: an error leaves no half of one.
func (s *Server) write(w http.ResponseWriter, status int, name string, page views.Page, v visit) {
	page.Base, page.Now = s.Base, v.now
	if v.view != nil {
		page.User, page.CSRF, page.Nonce = v.view.User, s.csrf(v.view.User), rand.Text()
	}
	var b bytes.Buffer
	if err := s.pages.Write(&b, name, page); err != nil {
		s.Log("%v", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client is gone
}

func asset(w http.ResponseWriter, r *http.Request) {
	content, kind, ok := pages.Asset(r.PathValue("name"))
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "private, max-age=300")
	_, _ = w.Write(content) //nolint:gosec // a file of ours, whatever its name was in the address
}
