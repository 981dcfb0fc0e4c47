// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
)

// kube is the API server, for reads.
type kube struct {
	client.Client

	http *http.Client
	host string
}

func newKube(config *rest.Config) (*kube, error) {
	config = guarded(config)
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	scheme, mapper, err := kinds()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: h})
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &kube{Client: c, http: h, host: strings.TrimSuffix(host.String(), "/")}, nil
}

// kinds also says where the kinds are, so that the server need not be asked.
func kinds() (*runtime.Scheme, meta.RESTMapper, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme), admissionv1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme))
	if err != nil {
		return nil, nil, fmt.Errorf("register kinds: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"WorkflowRun", "StepApproval", "Workflow", "Schedule"} {
		mapper.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(v1alpha1.GroupVersion.WithKind("Semaphore"), meta.RESTScopeRoot)
	mapper.AddSpecific(v1alpha1.GroupVersion.WithKind("LockPolicy"), v1alpha1.GroupVersion.WithResource("lockpolicies"),
		v1alpha1.GroupVersion.WithResource("lockpolicy"), meta.RESTScopeRoot)
	for _, kind := range []string{"ConfigMap", "Pod"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), meta.RESTScopeNamespace)
	mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	mapper.AddSpecific(admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"), admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
		admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicy"), meta.RESTScopeRoot)
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"} {
		mapper.Add(admissionv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	for _, kind := range []string{"SubjectAccessReview", "SelfSubjectAccessReview"} {
		mapper.Add(authorizationv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	return scheme, mapper, nil
}

// unread says why the API server did not give something.
func unread(what string, err error) check.Unread {
	u := check.Unread{Why: what + ": " + strings.Join(strings.Fields(err.Error()), " ")}
	switch {
	case apierrors.IsForbidden(err):
		u.Hint = "ask somebody with the rights of docs/checks.md to run it"
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		u.Hint = "install Syncopate first (docs/install.md)"
	default:
		u.Hint = "kubectl version says whether the API server can be reached"
	}
	return u
}

// maxVersion bounds the answer about the version, in bytes.
const maxVersion = 64 << 10

// server asks for the version, and for the time on the way: the header Date has whole seconds.
func (k *kube) server(ctx context.Context, now clock.PassiveClock) check.Server {
	const what = "ask the API server for its version"
	fail := func(err error) check.Server {
		return check.Server{Unread: unread(what, err)}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.host+"/version", http.NoBody)
	if err != nil {
		return fail(err)
	}
	sent := now.Now()
	answer, err := k.http.Do(req)
	received := now.Now()
	if err != nil {
		return fail(err)
	}
	defer func() { _ = answer.Body.Close() }()
	var version struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxVersion)).Decode(&version); err != nil {
		return fail(err)
	}
	s := check.Server{Version: version.GitVersion}
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		s.Clock.Unread = check.Unread{Why: "the API server does not say what time it is"}
		return s
	}
	s.Clock = clockOf(date.Add(time.Second/2), time.Second/2, sent, received)
	return s
}

// clockOf is how far a server's clock is ahead, from what it said between two moments.
func clockOf(said time.Time, grain time.Duration, sent, received time.Time) check.Clock {
	way := received.Sub(sent) / 2
	return check.Clock{Offset: said.Sub(sent.Add(way)), Error: grain + way}
}
