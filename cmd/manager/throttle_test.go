// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// A webhook refuses a run, as of a tenant at its limit: 429, again in a minute.
//
// mutation: a client without creationsAtOnce waits for that minute, and makes this fail by its
// time-out; one that takes the header from other requests makes this fail.
func TestARunThatIsRefusedForNowIsToldAtOnce(t *testing.T) {
	refusal := apierrors.NewTooManyRequests("the tenant is at its limit", 60).Status()
	refusal.Kind, refusal.APIVersion = "Status", "v1"
	tries := map[string]int{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries[r.Method]++
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
		_ = json.NewEncoder(w).Encode(refusal)
	}))
	defer server.Close()
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("WorkflowRun"), meta.RESTScopeNamespace)
	config := &rest.Config{Host: server.URL}
	config.Wrap(newCreationsAtOnce)
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Create(t.Context(), &v1alpha1.WorkflowRun{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "report"}})
	if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds != 60 || tries[http.MethodPost] != 1 {
		t.Errorf("%d tries: %v, again in %d s", tries[http.MethodPost], err, seconds)
	}
	for path, want := range map[string]string{"/workflowruns": "", "/workflowruns/report/status": "60", "/events": "60"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := newCreationsAtOnce(http.DefaultTransport).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Header.Get("Retry-After"); got != want {
			t.Errorf("%s: again after %q", path, got)
		}
	}
}
