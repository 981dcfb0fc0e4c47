// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/shares"
	"github.com/syncopate-dev/syncopate/internal/webhook"
)

// webhookOff is the address that switches the webhook off, as it does for the metrics endpoint.
const webhookOff = "0"

var errNotAPort = errors.New("need [HOST]:PORT with a port of 1 to 65535, or 0")

type webhookOptions struct {
	bindAddr      string
	certDir       string
	service       string
	configuration string
}

func (w *webhookOptions) bind(f *flag.FlagSet) {
	f.StringVar(&w.bindAddr, "webhook-bind-address", webhookOff, "Address of the admission webhook, which policies with onLimit: Reject need; 0 switches it off.")
	f.StringVar(&w.certDir, "webhook-cert-dir", "", "Directory of tls.crt and tls.key for the webhook, read again when they change. Empty: the operator makes its certificates, in a Secret.")
	f.StringVar(&w.service, "webhook-service", "syncopate-webhook", "Service of the webhook in the operator's namespace; without --webhook-cert-dir.")
	f.StringVar(&w.configuration, "webhook-configuration", "syncopate", "ValidatingWebhookConfiguration whose caBundle the operator writes; without --webhook-cert-dir.")
}

func (w *webhookOptions) off() bool { return w.bindAddr == "" || w.bindAddr == webhookOff }

func (w *webhookOptions) check() error {
	if w.off() {
		return nil
	}
	var problems []error
	if _, _, err := w.address(); err != nil {
		problems = append(problems, err)
	}
	if w.certDir == "" && w.service == "" {
		problems = append(problems, errors.New("--webhook-service: needed without --webhook-cert-dir"))
	}
	if w.certDir == "" && w.configuration == "" {
		problems = append(problems, errors.New("--webhook-configuration: needed without --webhook-cert-dir"))
	}
	return errors.Join(problems...)
}

func (w *webhookOptions) address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(w.bindAddr)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("--webhook-bind-address %q: %w", w.bindAddr, errNotAPort)
	}
	return host, port, nil
}

// addWebhook serves the admission webhook, on every replica, if it is switched on. hook has the
// gate; the rest is filled in here.
func addWebhook(mgr manager.Manager, o options, hook webhook.Options) error {
	if o.webhook.off() {
		return nil
	}
	host, port, err := o.webhook.address()
	if err != nil {
		return err
	}
	hook.Host, hook.Port, hook.CertDir = host, port, o.webhook.certDir
	hook.Namespace, hook.Service, hook.Configuration = o.namespace, o.webhook.service, o.webhook.configuration
	hook.Turns, hook.Checks = shares.New(webhook.AtOnce, true, shares.KindMetrics{}), shares.New(webhook.ChecksAtOnce, true, shares.KindMetrics{})
	hook.Clock, hook.Rand, hook.Log, hook.Registry = clock.RealClock{}, rand.Float64, ctrl.Log.WithName("webhook"), metrics.Registry
	return webhook.Setup(mgr, hook)
}
