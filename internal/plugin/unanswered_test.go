// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

// at makes a plugin ask the API server of a configuration.
func (p *plugin) at(config *rest.Config) {
	p.cluster = func() (client.Client, string, error) {
		scheme, mapper, err := reads.Kinds()
		if err != nil {
			return nil, "", err
		}
		c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
		return c, "team-a", err
	}
}

// mutation: why that reads without a bound, or gives the error as it is, makes this fail.
func TestWhySaysThatTheAPIServerDoesNotAnswer(t *testing.T) {
	hang := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer cut.Close()
	defer s.Close()
	defer s.CloseClientConnections()
	defer close(hang)
	for name, host := range map[string]string{"it hangs": s.URL, "nobody is there": gone.URL, "it ends the connection": cut.URL} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t)
			p.at(&rest.Config{Host: host})
			begin := time.Now()
			_, _, err := p.call("why", "r")
			var silent *UnansweredError
			if !errors.As(err, &silent) || time.Since(begin) > whyPatience+2*time.Second {
				t.Fatalf("after %s: %v", time.Since(begin), err)
			}
			for _, part := range []string{"team-a/r", "the API server does not answer", "If the operator cannot reach it either", "no run goes on", "results wait in NATS"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
		})
	}
}

// A mistake on the machine of who asks is no outage of the cluster.
//
// mutation: unanswered that takes whatever is no answer of the API server for silence makes this
// fail; so does one that takes each error of the network for that.
func TestAMistakeOfOnesOwnIsNoOutage(t *testing.T) {
	quiet := func(s *httptest.Server) *httptest.Server {
		s.Config.ErrorLog = nil
		s.StartTLS()
		t.Cleanup(s.Close)
		return s
	}
	secure := quiet(httptest.NewUnstartedServer(http.NotFoundHandler()))
	asks := httptest.NewUnstartedServer(http.NotFoundHandler())
	asks.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	quiet(asks)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	login := &api.ExecConfig{Command: "no-such-login-helper", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: api.NeverExecInteractiveMode}
	for name, c := range map[string]struct {
		config *rest.Config
		want   string
	}{
		"a certificate that does not verify": {&rest.Config{Host: secure.URL}, "x509"},
		"no certificate of its own":          {&rest.Config{Host: asks.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, "certificate required"},
		"no TLS at that port":                {&rest.Config{Host: strings.Replace(plain.URL, "http:", "https:", 1)}, "HTTP"},
		"a login helper that is not there":   {&rest.Config{Host: plain.URL, ExecProvider: login}, "no-such-login-helper"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t)
			p.at(c.config)
			isNoOutage(t, p, c.want)
		})
	}
	t.Run("a context that is not there", func(t *testing.T) {
		p := newPlugin(t)
		p.cluster = func() (client.Client, string, error) {
			_, err := clientcmd.NewNonInteractiveClientConfig(*api.NewConfig(), "typo", nil, nil).ClientConfig()
			return nil, "", fmt.Errorf("kubeconfig: %w", err)
		}
		isNoOutage(t, p, "context was not found for specified context: typo")
	})
}

func isNoOutage(t *testing.T, p *plugin, want string) {
	t.Helper()
	_, _, err := p.call("why", "r")
	var silent *UnansweredError
	if err == nil || errors.As(err, &silent) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "no run goes on") {
		t.Errorf("need %q and no outage: %v", want, err)
	}
}

func TestARefusalIsAnAnswer(t *testing.T) {
	_, _, err := newPlugin(t).call("why", "r")
	var silent *UnansweredError
	if !apierrors.IsNotFound(err) || errors.As(err, &silent) {
		t.Errorf("%v", err)
	}
}

// parentRun is a run with a child run under way, that follows a revision of a Workflow.
func parentRun() *v1alpha1.WorkflowRun {
	run := testRun("team-a", "r", "u-1")
	run.Spec.Steps, run.Spec.WorkflowRef = nil, &v1alpha1.WorkflowReference{Name: "flow"}
	run.Status = &v1alpha1.WorkflowRunStatus{
		Phase: v1alpha1.RunRunning, Workflow: &v1alpha1.WorkflowRevision{Name: "flow", Revision: "r1"},
		Steps: []v1alpha1.StepStatus{{Name: "below", Phase: v1alpha1.StepRunning, ChildRun: &v1alpha1.ChildRunStatus{Name: "kid", UID: "u-2"}}},
	}
	return run
}

// Of a run that was read is told what is known, whichever question beside it has no answer, and
// each is waited for shortly.
//
// mutations: why that ends where one of these cannot be read, or waits for one as long as for other
// runs, makes this fail.
func TestWhyTellsOfARunWhoseSideQuestionsHaveNoAnswer(t *testing.T) {
	for _, kind := range []string{"*v1alpha1.LockPolicyList", "*v1alpha1.WorkflowRun", "*v1.ControllerRevision"} {
		for how, fails := range map[string]func(ctx context.Context) error{
			"fails": func(context.Context) error { return apierrors.NewInternalError(errors.New("etcd is away")) },
			"hangs": func(ctx context.Context) error {
				until, bounded := ctx.Deadline()
				if !bounded || time.Until(until) > whyPatience {
					t.Errorf("%s is waited for until %s", kind, until)
				}
				return fmt.Errorf("etcd is away: %w", context.DeadlineExceeded)
			},
		} {
			t.Run(kind+" "+how, func(t *testing.T) { whyWithout(t, kind, fails) })
		}
	}
}

// without is a cluster in which one kind cannot be read, beside the run itself.
func without(t *testing.T, kind string, fails func(ctx context.Context) error) (c client.Client, asked *bool) {
	t.Helper()
	asked = new(bool)
	away := func(ctx context.Context, object any, name string) error {
		if fmt.Sprintf("%T", object) != kind || name == "r" {
			return nil
		}
		*asked = true
		return fails(ctx)
	}
	return fakeCluster(t, parentRun()).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if err := away(ctx, object, key.Name); err != nil {
				return err
			}
			return c.Get(ctx, key, object, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := away(ctx, list, ""); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
	}).Build(), asked
}

// mutation: tree that shows nothing where one of these cannot be read, or does not say so.
func TestTreeShowsARunWhoseSideQuestionsHaveNoAnswer(t *testing.T) {
	for _, kind := range []string{"*v1alpha1.WorkflowRun", "*v1.ControllerRevision"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlugin(t)
			c, _ := without(t, kind, func(context.Context) error { return apierrors.NewInternalError(errors.New("etcd is away")) })
			p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
			out, _, err := p.call("tree", "r")
			if err == nil || !strings.Contains(err.Error(), "etcd is away") || !strings.Contains(out, "below") {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

func whyWithout(t *testing.T, kind string, fails func(ctx context.Context) error) {
	t.Helper()
	c, asked := without(t, kind, fails)
	p := newPlugin(t)
	p.cluster = func() (client.Client, string, error) { return c, "team-a", nil }
	for _, format := range []string{"text", "json"} {
		out, _, err := p.call("why", "r", "-o", format)
		if !*asked || err == nil || !strings.Contains(err.Error(), "etcd is away") || strings.Contains(err.Error(), "the API server does not answer") {
			t.Errorf("asked: %t, error: %v", *asked, err)
		}
		if !strings.Contains(out, "Running") || !strings.Contains(out, "kid") {
			t.Errorf("it does not tell of the run:\n%s", out)
		}
	}
}
