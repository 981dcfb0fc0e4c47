// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/console/cluster"
	"github.com/syncopate-dev/syncopate/internal/console/server"
)

// hanging is an API server that never says whose a token is.
type hanging struct{}

func (hanging) Admit(r *http.Request) (*cluster.View, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// mutation: live that asks who is there with the time of the stream, or of the connection, makes
// this fail.
func TestAStreamWaitsAsLongAsAPageForWhoAsks(t *testing.T) {
	s, err := server.New(t.Context(), hanging{}, server.Options{Hosts: []string{"example.com"}, PageTime: time.Millisecond, Clock: clock.RealClock{}})
	must(t, err)
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	answer := httptest.NewRecorder()
	s.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/live/runs", nil))
	if ctx.Err() != nil || answer.Code < http.StatusInternalServerError {
		t.Errorf("status %d; it waited for as long as the client: %v", answer.Code, ctx.Err())
	}
}
