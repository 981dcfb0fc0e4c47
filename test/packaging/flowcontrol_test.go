// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience ends a hung test; it is no expectation about speed.
const patience = time.Minute

// The API server says of each answer which flow schema and level the request waited in.
// mutation: a precedence after that of service-accounts, another subject, or a FlowSchema without
// its level makes this fail.
func TestWhereTheOperatorsRequestsWait(t *testing.T) {
	for name, c := range map[string]struct {
		user, method, path string
		schema, level      string
	}{
		"its reads and writes":         {operatorUser, http.MethodGet, "/apis/syncopate.dev/v1alpha1/workflowruns", "syncopate", "syncopate"},
		"its status writes":            {operatorUser, http.MethodPut, "/apis/syncopate.dev/v1alpha1/namespaces/default/workflowruns/a/status", "syncopate", "syncopate"},
		"its discovery":                {operatorUser, http.MethodGet, "/apis", "syncopate", "syncopate"},
		"its renewals of leadership":   {operatorUser, http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/syncopate-system/leases/syncopate-manager", "syncopate-leader-election", "leader-election"},
		"its writes of owners":         {operatorUser, http.MethodPut, "/api/v1/namespaces/syncopate-system/configmaps/syncopate-ownership", "syncopate-leader-election", "leader-election"},
		"those of another account":     {"system:serviceaccount:team-a:flood", http.MethodGet, "/apis/syncopate.dev/v1alpha1/workflowruns", "service-accounts", "workload-low"},
		"those of another of that ns.": {"system:serviceaccount:syncopate-system:default", http.MethodGet, "/apis/syncopate.dev/v1alpha1/workflowruns", "service-accounts", "workload-low"},
	} {
		t.Run(name, func(t *testing.T) {
			schema, level := &flowcontrolv1.FlowSchema{}, &flowcontrolv1.PriorityLevelConfiguration{}
			if err := server.client.Get(t.Context(), client.ObjectKey{Name: c.schema}, schema); err != nil {
				t.Fatal(err)
			}
			if err := server.client.Get(t.Context(), client.ObjectKey{Name: c.level}, level); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for { // the server takes up new schemas in the background
				header := ask(ctx, t, c.user, c.method, c.path)
				if header.Get("X-Kubernetes-PF-FlowSchema-UID") == string(schema.UID) && header.Get("X-Kubernetes-PF-PriorityLevel-UID") == string(level.UID) {
					return
				}
				select {
				case <-ctx.Done():
					t.Fatalf("not in schema %s and level %s: %v", c.schema, c.level, header)
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
}

// ask makes a request as the user; whether it is allowed does not matter.
func ask(ctx context.Context, t *testing.T, user, method, path string) http.Header {
	t.Helper()
	config := rest.CopyConfig(server.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, server.config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header
}
