// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

// mutation: why that reads without a bound, or gives the error as it is, makes this fail.
func TestWhySaysThatTheAPIServerDoesNotAnswer(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	defer s.Close()
	defer s.CloseClientConnections()
	defer close(hang)
	for name, host := range map[string]string{"it hangs": s.URL, "nobody is there": gone.URL} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t)
			p.cluster = func() (client.Client, string, error) {
				scheme, mapper, err := reads.Kinds()
				if err != nil {
					return nil, "", err
				}
				c, err := client.New(&rest.Config{Host: host}, client.Options{Scheme: scheme, Mapper: mapper})
				return c, "team-a", err
			}
			begin := time.Now()
			_, _, err := p.call("why", "r")
			var silent *UnansweredError
			if !errors.As(err, &silent) || time.Since(begin) > whyPatience+2*time.Second {
				t.Fatalf("after %s: %v", time.Since(begin), err)
			}
			for _, part := range []string{"team-a/r", "the API server does not answer", "no run goes on", "results wait in NATS"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

func TestARefusalIsAnAnswer(t *testing.T) {
	_, _, err := newPlugin(t).call("why", "r")
	var silent *UnansweredError
	if !apierrors.IsNotFound(err) || errors.As(err, &silent) {
		t.Errorf("%v", err)
	}
}
