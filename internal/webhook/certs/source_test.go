// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const (
	configuration = "hooks"
	patience      = 30 * time.Second
)

var (
	secretKey  = types.NamespacedName{Namespace: "ns", Name: "certs"}
	errRefused = errors.New("refused")
)

func apiServer(objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(objects...).Build()
}

func webhooks() *admissionv1.ValidatingWebhookConfiguration {
	return &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: configuration}, Webhooks: []admissionv1.ValidatingWebhook{{Name: "a"}, {Name: "b"}},
	}
}

func newSource(c client.Client, clock *testingclock.FakeClock) *Source {
	return New(Options{Client: c, Secret: secretKey, Configuration: configuration, Hosts: hosts, Clock: clock})
}

// check looks at what there is after a sync: one material for everybody, trusted in all webhooks.
// It returns the material.
func check(t *testing.T, c client.Client, now time.Time, sources ...*Source) material {
	t.Helper()
	secret, hooks := &corev1.Secret{}, &admissionv1.ValidatingWebhookConfiguration{}
	if err := errors.Join(c.Get(t.Context(), secretKey, secret), c.Get(t.Context(), types.NamespacedName{Name: configuration}, hooks)); err != nil {
		t.Fatal(err)
	}
	m, err := parse(secret.Data)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hooks.Webhooks {
		if !bytes.Equal(h.ClientConfig.CABundle, m.bundle()) {
			t.Errorf("webhook %s has another caBundle than the Secret", h.Name)
		}
	}
	for _, s := range sources {
		served, err := s.GetCertificate(nil)
		if err != nil || !served.Leaf.Equal(m.serving.cert) {
			t.Errorf("another certificate is served than that of the Secret (error %v)", err)
		}
	}
	if err := trusted(m.bundle(), m.serving, now, hosts[0]); err != nil {
		t.Error(err)
	}
	return m
}

func TestCertificatesAreMadeOnce(t *testing.T) {
	c, clock := apiServer(webhooks()), testingclock.NewFakeClock(birth())
	a, b := newSource(c, clock), newSource(c, clock)
	if _, err := a.GetCertificate(nil); err == nil {
		t.Error("a certificate before there is one")
	}
	if err := a.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := check(t, c, birth(), a)
	clock.Step(40 * day)
	if err := errors.Join(a.sync(t.Context()), b.sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	if again := check(t, c, clock.Now(), a, b); !again.serving.cert.Equal(first.serving.cert) {
		t.Error("another replica made another certificate")
	}
	clock.Step(40 * day)
	if err := errors.Join(a.sync(t.Context()), b.sync(t.Context())); err != nil {
		t.Fatal(err)
	}
	renewed := check(t, c, clock.Now(), a, b)
	if renewed.serving.cert.Equal(first.serving.cert) || !bytes.Equal(renewed.bundle(), first.bundle()) {
		t.Error("not renewed, or with another authority")
	}
}

// mutation: a Create or Update whose conflict is an error, or one without resourceVersion,
// makes this fail.
func TestReplicasThatStartTogetherAgree(t *testing.T) {
	for name, objects := range map[string][]client.Object{
		"no Secret":          {webhooks()},
		"an unusable Secret": {webhooks(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}},
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := apiServer(objects...), testingclock.NewFakeClock(birth())
			sources := make([]*Source, 5)
			errs := make([]error, len(sources))
			var all sync.WaitGroup
			for i := range sources {
				sources[i] = newSource(c, clock)
				all.Go(func() { errs[i] = sources[i].sync(t.Context()) })
			}
			all.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			check(t, c, birth(), sources...)
		})
	}
}

func TestWhatOthersBreakIsMended(t *testing.T) {
	for name, damage := range map[string]func(ctx context.Context, c client.Client, s *corev1.Secret, w *admissionv1.ValidatingWebhookConfiguration) error{
		"a caBundle taken out": func(ctx context.Context, c client.Client, _ *corev1.Secret, w *admissionv1.ValidatingWebhookConfiguration) error {
			w.Webhooks[1].ClientConfig.CABundle = nil
			return c.Update(ctx, w)
		},
		"a Secret emptied": func(ctx context.Context, c client.Client, s *corev1.Secret, _ *admissionv1.ValidatingWebhookConfiguration) error {
			s.Data = nil
			return c.Update(ctx, s)
		},
		"a key replaced": func(ctx context.Context, c client.Client, s *corev1.Secret, _ *admissionv1.ValidatingWebhookConfiguration) error {
			s.Data[entryServingKey] = s.Data[entryAuthorityKeys]
			return c.Update(ctx, s)
		},
		"a Secret deleted": func(ctx context.Context, c client.Client, s *corev1.Secret, _ *admissionv1.ValidatingWebhookConfiguration) error {
			return c.Delete(ctx, s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := apiServer(webhooks()), testingclock.NewFakeClock(birth())
			s := newSource(c, clock)
			if err := s.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			secret, hooks := &corev1.Secret{}, &admissionv1.ValidatingWebhookConfiguration{}
			if err := errors.Join(c.Get(t.Context(), secretKey, secret), c.Get(t.Context(), types.NamespacedName{Name: configuration}, hooks)); err != nil {
				t.Fatal(err)
			}
			if err := damage(t.Context(), c, secret, hooks); err != nil {
				t.Fatal(err)
			}
			if err := s.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			check(t, c, birth(), s)
		})
	}
}

// mutation: serve before trust makes this fail.
func TestACertificateIsServedOnlyOnceItIsTrusted(t *testing.T) {
	refuse := false
	c := interceptor.NewClient(apiServer(webhooks()), interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if _, ok := o.(*admissionv1.ValidatingWebhookConfiguration); ok && refuse {
				return errRefused
			}
			return c.Update(ctx, o, opts...)
		},
	})
	s := newSource(c, testingclock.NewFakeClock(birth()))
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := s.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}); err != nil {
		t.Fatal(err)
	}
	refuse = true
	if err := s.sync(t.Context()); !errors.Is(err, errRefused) {
		t.Errorf("error %v", err)
	}
	if after, _ := s.GetCertificate(nil); after != before {
		t.Error("a certificate is served that the API server does not trust")
	}
	refuse = false
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(t, c, birth(), s)
}

// The API server trusts whom it trusted a moment before, so a renewal need not wait for an answer
// about the configuration: it may be away until the served certificate ends.
// mutation: a renewal of the same authority that is served only once the configuration was read
// makes this fail.
func TestARenewalByTheSameAuthorityIsServedWithoutTheConfiguration(t *testing.T) {
	c, clock := apiServer(webhooks()), testingclock.NewFakeClock(birth())
	s := newSource(c, clock)
	if err := s.sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	hooks := webhooks()
	if err := c.Delete(t.Context(), hooks); err != nil {
		t.Fatal(err)
	}
	clock.Step(61 * day)
	if err := s.sync(t.Context()); err == nil {
		t.Error("no error though the configuration is missing")
	}
	served, err := s.GetCertificate(nil)
	if err != nil || served.Leaf.NotAfter.Before(clock.Now().Add(servingLife)) {
		t.Errorf("one is served that ends at %s (error %v)", served.Leaf.NotAfter, err)
	}
}

func TestWithoutAConfigurationThereIsACertificateAllTheSame(t *testing.T) {
	s := newSource(apiServer(), testingclock.NewFakeClock(birth()))
	if err := s.sync(t.Context()); err == nil {
		t.Error("no error though the configuration is missing")
	}
	if _, err := s.GetCertificate(nil); err != nil {
		t.Error(err)
	}
}

// mutation: a loop that ends after an error, or that looks only once, makes this fail.
func TestARunningSourceRenewsAndTriesAgain(t *testing.T) {
	c, clock := apiServer(), testingclock.NewFakeClock(birth())
	served := make(chan time.Time, 16)
	s := New(Options{
		Client: c, Secret: secretKey, Configuration: configuration, Hosts: hosts, Clock: clock,
		Serves: func(until time.Time) { served <- until },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Start(ctx) }()

	expect := func(want time.Time) {
		t.Helper()
		timeout := time.After(patience)
		for {
			select {
			case got := <-served:
				if got.Before(want) {
					t.Fatalf("served until %s, want %s", got, want)
				}
				return
			case <-timeout:
				t.Fatalf("no certificate until %s was served", want)
			case <-time.After(time.Millisecond):
				if clock.HasWaiters() {
					clock.Step(lookPause)
				}
			}
		}
	}
	expect(birth().Add(servingLife)) // although there is no configuration yet
	if err := c.Create(t.Context(), webhooks()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); !clock.HasWaiters(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not wait to try again")
		}
	}
	clock.SetTime(birth().Add(61 * day))
	expect(birth().Add(61*day + servingLife))
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if s.NeedLeaderElection() {
		t.Error("replicas that stand by serve too")
	}
}

// A month later its certificate would be over.
//
// mutation: a sync without a bound.
func TestACallThatIsNotAnsweredEndsNoRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := interceptor.NewClient(apiServer(webhooks()), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if asked++; asked == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		s := New(Options{Client: c, Secret: secretKey, Configuration: configuration, Hosts: hosts, Clock: clock.RealClock{}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Start(ctx); err != nil {
			t.Error(err)
		}
		if _, err := s.GetCertificate(nil); err != nil || asked == 1 {
			t.Errorf("asked %d times in a minute: %v", asked, err)
		}
	})
}
