// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/access"
	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

// counted counts the requests that have passed Admit, whatever it said.
type counted struct {
	server.Access
	admitted atomic.Int64
}

func (c *counted) Admit(r *http.Request) (*cluster.View, error) {
	defer c.admitted.Add(1)
	return c.Access.Admit(r)
}

// until waits until so many have passed.
func (c *counted) until(t *testing.T, want int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests have passed", want), func() bool { return c.admitted.Load() >= want })
}

// half sends a form whose end never comes, and gives its connection.
func (c *console) half(path string) net.Conn {
	c.t.Helper()
	u, err := url.Parse(c.url + path)
	must(c.t, err)
	conn, err := (&net.Dialer{}).DialContext(c.t.Context(), "tcp", u.Host)
	must(c.t, err)
	c.t.Cleanup(func() { _ = conn.Close() })
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n", u.Path, u.Host)
	for name := range c.header {
		head += name + ": " + c.header.Get(name) + "\r\n"
	}
	_, err = fmt.Fprint(conn, head+"\r\ncsrf=")
	must(c.t, err)
	return conn
}

func busy(t *testing.T) (*busyAPI, *rest.Config) {
	t.Helper()
	api := &busyAPI{watchers: map[chan int]bool{}}
	h := httptest.NewServer(api)
	t.Cleanup(func() { h.CloseClientConnections(); h.Close() })
	return api, &rest.Config{Host: h.URL, QPS: -1}
}

// As many forms as there are places are sent by halves, and a page may take an hour: others come in
// all the same.
//
// mutation: page without its bound of each user, and hurry that does not have the connection
// closed, make this fail.
func TestWhoSendsHalvesKeepsNobodyOut(t *testing.T) {
	for name, header := range map[string]http.Header{"one user": {"Authorization": {"Bearer user-a"}}, "nobody who is known": {}} {
		t.Run(name, func(t *testing.T) {
			_, config := busy(t)
			known, err := access.NewInCluster(config, access.Options{Clock: clock.RealClock{}})
			must(t, err)
			who := &counted{Access: known}
			c := serve(t, who, server.Options{PageTime: time.Hour})
			a, b := c.as("user-a"), c.as("user-b")
			a.get("/runs") // the token is known from now on
			a.header = header
			const places = 64
			for range places {
				a.half("/runs/x/" + strings.Repeat("y", 4000) + "/cancel") // the answer has it, and is too long to wait in a buffer
			}
			who.until(t, 1+places)
			eventually(t, "another user gets a page", func() bool {
				status, _, _ := b.do(http.MethodGet, "/runs", "")
				return status == http.StatusOK
			})
		})
	}
}

// A page that follows changes goes on as before.
//
// mutation: hurry without a read deadline makes this fail.
func TestAFormHasToComeInTime(t *testing.T) {
	api, config := busy(t)
	view, err := cluster.NewView(config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	c := serve(t, who, server.Options{Base: who.Base(), PageTime: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/live/runs/team/run-0", nil)
	must(t, err)
	stream, err := c.client.Do(r)
	must(t, err)
	defer func() { must(t, stream.Body.Close()) }()
	api.until(t, 1)
	conn := c.half("/runs/x/y/cancel")
	must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer func() { must(t, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusRequestTimeout || !answer.Close {
		t.Errorf("%s, the connection is closed: %t", answer.Status, answer.Close)
	}
	for range 50 { // then the API server sends them on
		api.change()
	}
	lines := bufio.NewScanner(stream.Body)
	for lines.Scan() && lines.Text() != "event: changed" {
	}
	if lines.Text() != "event: changed" {
		t.Errorf("a page that follows changes has ended: %v", lines.Err())
	}
}

// slowBox takes a while for all that it does.
type slowBox struct{ letterBox }

func (*slowBox) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

func (b *slowBox) List(ctx context.Context, limit int) (facts.Letters, error) {
	if err := b.wait(ctx); err != nil {
		return facts.Letters{}, err
	}
	return b.letterBox.List(ctx, limit)
}

func (b *slowBox) Redrive(ctx context.Context, _ uint64) error { return b.wait(ctx) }

// behind is a clock that is late.
type behind struct {
	clock.RealClock
	by time.Duration
}

func (b behind) Now() time.Time { return b.RealClock.Now().Add(-b.by) }

// A page may take ten minutes, and what is sent has a tenth of a second of them left to come.
//
// mutation: hurry with a read deadline for what has no body makes this fail.
func TestOnlyFormsHaveToHurry(t *testing.T) {
	_, config := busy(t)
	view, err := cluster.NewView(config, nil, "")
	must(t, err)
	who := access.NewLocal(view)
	const page = 10 * time.Minute
	c := serve(t, who, server.Options{Base: who.Base(), PageTime: page, Letters: &slowBox{}, Clock: behind{by: page - 100*time.Millisecond}})
	found := tokens.FindStringSubmatch(c.get("/dead-letters"))
	if found == nil {
		t.Fatal("there are no dead letters")
	}
	if status, text, _ := c.do(http.MethodPost, "/dead-letters/7/redrive", "csrf="+found[1]); status != http.StatusSeeOther {
		t.Errorf("%d\n%s", status, text)
	}
}

// What follows changes takes no body, which might never come to its end, whoever sends it.
//
// mutation: guard that lets such a request pass makes this fail: it has no answer.
func TestAStreamTakesNoBody(t *testing.T) {
	_, config := busy(t)
	known, err := access.NewInCluster(config, access.Options{Clock: clock.RealClock{}})
	must(t, err)
	c := serve(t, known, server.Options{PageTime: time.Hour})
	for _, header := range []http.Header{{"Authorization": {"Bearer user-a"}}, {}} {
		c.header = header
		conn := c.half("/live/ticks")
		must(t, conn.SetReadDeadline(time.Now().Add(patience)))
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if answer.StatusCode != http.StatusBadRequest || !answer.Close {
			t.Errorf("%s, close %t", answer.Status, answer.Close)
		}
		must(t, answer.Body.Close())
	}
}
