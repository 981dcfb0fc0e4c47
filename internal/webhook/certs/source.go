// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	lookPause   = 30 * time.Second
	retryPause  = 5 * time.Second
	syncTimeout = 20 * time.Second
	// maxTries bounds how often in a row a replica looks again because something had changed.
	maxTries = 5
)

// errNoCertificate is returned by GetCertificate before the first certificate was made or read.
var errNoCertificate = errors.New("the webhook has no certificate yet")

// Options are what a Source needs.
type Options struct {
	// Client reads and writes live. It needs get, create and update of the Secret, and get and
	// update of the configuration.
	Client client.Client
	// Secret is where the certificates are kept; made if absent.
	Secret types.NamespacedName
	// Configuration is the name of the ValidatingWebhookConfiguration; all its webhooks get the
	// caBundle. It is never made.
	Configuration string
	// Hosts are the DNS names and IP addresses at which the API server finds the webhook.
	Hosts []string
	Clock clock.WithTicker
	Log   logr.Logger
	// Serves is called with the end of each certificate that is put to use; nil: nobody is.
	Serves func(until time.Time)
}

// Source has the certificate of the webhook, and keeps it good while it runs.
type Source struct {
	o       Options
	current atomic.Pointer[tls.Certificate]
	told    string // error that was logged last; of the goroutine of Start only
}

// New makes a Source. It does nothing before Start.
func New(o Options) *Source {
	if o.Serves == nil {
		o.Serves = func(time.Time) {}
	}
	return &Source{o: o}
}

// GetCertificate is for a tls.Config. It returns an error until there is a certificate.
func (s *Source) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*Source) NeedLeaderElection() bool { return false }

// Start keeps the certificates good until ctx ends.
func (s *Source) Start(ctx context.Context) error {
	for {
		pause := lookPause
		err := s.sync(ctx)
		if err != nil {
			pause = retryPause
		}
		s.tell(ctx, err)
		timer := s.o.Clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		}
	}
}

// tell logs what is new only.
func (s *Source) tell(ctx context.Context, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case text == s.told || ctx.Err() != nil:
		return
	case err != nil:
		s.o.Log.Error(err, "Certificates of the webhook are not in order, trying on", "delay", retryPause, "serving", s.current.Load() != nil)
	default:
		s.o.Log.Info("Certificates of the webhook are in order")
	}
	s.told = text
}

// sync does all there is to do, and looks again if it changed something: another replica may have
// done the same.
func (s *Source) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	var err error
	for range maxTries {
		var again bool
		if again, err = s.once(ctx); err == nil && !again {
			return nil
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return err
}

// once makes one pass; again says that it changed something.
func (s *Source) once(ctx context.Context) (again bool, err error) {
	m, made, err := s.ensure(ctx)
	if err != nil {
		return false, fmt.Errorf("secret %s: %w", s.o.Secret, err)
	}
	wrote, err := s.trust(ctx, m.bundle())
	if err != nil {
		if served := s.current.Load(); served == nil || m.follows(served.Leaf) {
			s.serve(m)
		}
		return false, fmt.Errorf("validating webhook configuration %s: %w", s.o.Configuration, err)
	}
	s.serve(m)
	return made || wrote, nil
}

// ensure reads the material, renews it as needed, and stores it.
func (s *Source) ensure(ctx context.Context) (m material, made bool, err error) {
	secret := &corev1.Secret{}
	err = s.o.Client.Get(ctx, s.o.Secret, secret)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return material{}, false, fmt.Errorf("read: %w", err)
	}
	var unusable error
	if !absent {
		m, unusable = parse(secret.Data)
	}
	m, made, err = m.renewed(s.o.Clock.Now(), s.o.Hosts)
	if err != nil || !made {
		return m, made, err
	}
	if secret.Data, err = m.data(); err != nil {
		return material{}, false, err
	}
	if absent {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.o.Secret.Namespace, Name: s.o.Secret.Name}, Data: secret.Data}
		err = s.o.Client.Create(ctx, secret)
	} else {
		err = s.o.Client.Update(ctx, secret)
	}
	if err != nil {
		return material{}, false, fmt.Errorf("write: %w", err)
	}
	s.o.Log.Info("Certificates of the webhook made or renewed", "secret", s.o.Secret.String(), "serialNumber", m.serving.cert.SerialNumber.String(),
		"notAfter", m.serving.cert.NotAfter, "authorities", len(m.authorities), "replaced", unusable)
	return m, true, nil
}

// trust has the API server trust the authorities.
func (s *Source) trust(ctx context.Context, bundle []byte) (wrote bool, err error) {
	c := &admissionv1.ValidatingWebhookConfiguration{}
	if err := s.o.Client.Get(ctx, types.NamespacedName{Name: s.o.Configuration}, c); err != nil {
		return false, fmt.Errorf("read: %w", err)
	}
	for i := range c.Webhooks {
		if to := &c.Webhooks[i].ClientConfig; !bytes.Equal(to.CABundle, bundle) {
			to.CABundle, wrote = bundle, true
		}
	}
	if !wrote {
		return false, nil
	}
	if err := s.o.Client.Update(ctx, c); err != nil {
		return false, fmt.Errorf("write the caBundle: %w", err)
	}
	return true, nil
}

func (s *Source) serve(m material) {
	if old := s.current.Load(); old == nil || !old.Leaf.Equal(m.serving.cert) {
		s.current.Store(m.certificate())
		s.o.Serves(m.serving.cert.NotAfter)
	}
}
