// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	hooks "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/syncopate-dev/syncopate/internal/webhook/certs"
)

// Path is where the webhook is served; the ValidatingWebhookConfiguration names it.
const Path = "/admit-workflowrun"

// SecretName is the Secret of the certificates that the operator makes by itself, in
// its own namespace.
const SecretName = "syncopate-webhook-certs" //nolint:gosec // a name, no credential

// Options are what Setup needs beside the manager.
type Options struct {
	// Gate keeps the slots.
	Gate reserver
	// Host and Port are where to listen; an empty host is all addresses.
	Host string
	Port int
	// CertDir has tls.crt and tls.key, which somebody else renews, along with the caBundle
	// of the ValidatingWebhookConfiguration.
	// Empty: the operator makes its certificates, in the Secret SecretName, and
	// writes the caBundle.
	CertDir string
	// Namespace and Service are where the API server finds the webhook: the certificate made by the
	// operator is for them.
	Namespace, Service string
	// Configuration is the name of the ValidatingWebhookConfiguration, whose caBundle is written.
	// Without CertDir only.
	Configuration string
	// Reservation is how long a slot is kept for a run whose creation was allowed; 0: 10 s.
	Reservation time.Duration
	Clock       clock.WithTicker
	Rand        func() float64 // uniform in [0,1), safe for concurrent use
	Log         logr.Logger
	Registry    prometheus.Registerer
	// Turns are AtOnce places for questions, which namespaces share.
	Turns turns
	// Checks are ChecksAtOnce places for looks at inputs, which namespaces share.
	Checks turns
	// Revisions has what runs follow that name a revision.
	Revisions revisionSource
	// Ready takes the check that says whether the webhook answers.
	Ready func(name string, check func(*http.Request) error)
}

// Setup adds the webhook to a manager, on all replicas, with the readiness check "webhook". The
// manager's cache should have WorkflowRuns, LockPolicies and Namespaces before it starts.
func Setup(mgr manager.Manager, o Options) error {
	m := newMetrics(o.Registry)
	certificates, err := o.source(mgr, m)
	if err != nil {
		return err
	}
	hook, err := hooks.StandaloneWebhook(&hooks.Webhook{Handler: &handler{
		cache: mgr.GetClient(), live: mgr.GetAPIReader(), quotas: o.Gate, rand: o.Rand,
		ttl: cmp.Or(o.Reservation, reservation), turns: o.Turns, metrics: m,
		revisions: o.Revisions, checks: o.Checks,
	}, WithContextFunc: withBudget}, hooks.StandaloneOptions{Logger: o.Log, MetricsPath: Path})
	if err != nil {
		return fmt.Errorf("make webhook: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(Path, hook)
	s := &server{addr: net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), handler: mux, certificates: certificates, log: o.Log}
	if err := errors.Join(mgr.Add(certificates), mgr.Add(s)); err != nil {
		return fmt.Errorf("add webhook: %w", err)
	}
	o.Ready("webhook", s.ready)
	return nil
}

// source is the certificates of a directory, or the operator's own.
func (o Options) source(mgr manager.Manager, m *metrics) (source, error) {
	if o.CertDir != "" {
		w, err := certwatcher.New(filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("load the certificate of the webhook: %w", err)
		}
		w.RegisterCallback(func(c tls.Certificate) { m.serves(c.Leaf.NotAfter) })
		return w, nil
	}
	// Not the manager's client: its cache would want to list all Secrets.
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("make client for certificates: %w", err)
	}
	return certs.New(certs.Options{
		Client: live, Secret: types.NamespacedName{Namespace: o.Namespace, Name: SecretName}, Configuration: o.Configuration,
		Hosts: []string{o.Service + "." + o.Namespace + ".svc"}, // the API server asks for this name, whatever the cluster's domain
		Clock: o.Clock, Log: o.Log, Serves: m.serves,
	}), nil
}
