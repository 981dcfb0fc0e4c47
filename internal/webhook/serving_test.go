// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// serial is the number of the certificate that is served at a port to somebody who trusts what the
// API server trusts.
func (w *world) serial(ctx context.Context, port int) (string, error) {
	c := &admissionv1.ValidatingWebhookConfiguration{}
	if err := suite.client.Get(ctx, client.ObjectKey{Name: w.ns}, c); err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle)
	d := &tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: w.service + "." + operatorNamespace + ".svc", MinVersion: tls.VersionTLS12}}
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort("localhost", strconv.Itoa(port)))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	over, _ := conn.(*tls.Conn)
	return over.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// serves waits until a port serves with a certificate other than those named, and
// returns its number.
func (w *world) serves(ctx context.Context, port int, others ...string) string {
	GinkgoHelper()
	var serial string
	Eventually(ctx, func(g Gomega) {
		var err error
		serial, err = w.serial(ctx, port)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(others).NotTo(ContainElement(serial))
	}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
	return serial
}

// watched creates runs that are refused, one after the other, until the function returned is
// called; it gives all other answers.
func (w *world) watched(ctx context.Context, class string) (stop func() []string) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var odd []string
	all.Go(func() {
		defer GinkgoRecover()
		for ctx.Err() == nil {
			if got := w.create(context.WithoutCancel(ctx), w.run(class, "probe"), "?dryRun=All"); got.cause() != v1alpha1.ReasonTenantAtCapacity {
				odd = append(odd, fmt.Sprintf("%d %s", got.code, got.status.Message))
			}
		}
	})
	return func() []string {
		cancel()
		all.Wait()
		return odd
	}
}

var _ = Describe("While the webhook is down", func() {
	It("runs are created all the same as shipped, and refused with failurePolicy Fail", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, w.operator(setting{}))
		class := w.policy(ctx, "payments", rejecting(0))
		w.guarded(ctx)
		Expect(w.create(ctx, w.run(class, "refused"), "").code).To(Equal(http.StatusTooManyRequests))

		down := int32(freePort(GinkgoTB()))
		w.change(ctx, func(h *admissionv1.ValidatingWebhook) { h.ClientConfig.Service.Port = &down })
		Eventually(ctx, func() int { return w.create(ctx, w.run(class, "ignored"), "").code }).
			WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusCreated))

		w.change(ctx, closed)
		var got reply
		Eventually(ctx, func() int {
			got = w.create(ctx, w.run(class, "failed"), "?dryRun=All")
			return got.code
		}).WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusInternalServerError))
		Expect(got.status.Message).To(ContainSubstring(`failed calling webhook "admission.syncopate.dev"`))
		Expect(got.header.Get("Retry-After")).To(BeEmpty())

		By("leaving alone what it is not registered for")
		suspended := w.run(class, "suspended")
		suspended.Spec.Suspend = true
		Expect(w.create(ctx, suspended, "").code).To(Equal(http.StatusCreated), "a match condition keeps the API server from asking")
		ignored := &v1alpha1.WorkflowRun{}
		Expect(suite.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: "ignored"}, ignored)).To(Succeed())
		Expect(suite.client.Delete(ctx, ignored)).To(Succeed())
	}, SpecTimeout(2*patience))

	It("a class that is left out by a match condition needs no webhook, even with failurePolicy Fail", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		class := w.policy(ctx, "payments", rejecting(0))
		w.register(ctx, freePort(GinkgoTB()), closed, func(h *admissionv1.ValidatingWebhook) {
			// The one that the shipped configuration shows, with another class.
			h.MatchConditions = append(h.MatchConditions, admissionv1.MatchCondition{
				Name: "class-rejects", Expression: "object.spec.workloadClass in ['" + class + "', 'ledger']",
			})
		})
		Eventually(ctx, func() int { return w.create(ctx, w.run(class, "run"), "?dryRun=All").code }).
			WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusInternalServerError))
		Expect(w.create(ctx, w.run("batch", "run"), "").code).To(Equal(http.StatusCreated))
	}, SpecTimeout(2*patience))

	// mutations: the shipped configuration without is-no-child-run; with any user in it,
	// or any owner.
	It("a child run that the operator creates needs no webhook, and nobody else's does without", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		w.register(ctx, freePort(GinkgoTB()), func(h *admissionv1.ValidatingWebhook) { h.FailurePolicy = new(admissionv1.Fail) })
		as := func(user string) client.Client {
			config := rest.CopyConfig(suite.config)
			config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
			c, err := client.New(config, client.Options{Scheme: suite.client.Scheme()})
			Expect(err).NotTo(HaveOccurred())
			return c
		}
		operator, other := as("system:serviceaccount:"+operatorNamespace+":syncopate"), as("ann")
		try := func(c client.Client, owners ...metav1.OwnerReference) error {
			run := w.run("batch", "run")
			run.OwnerReferences = owners
			return c.Create(ctx, run, client.DryRunAll)
		}
		owner := metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkflowRun", Name: "p", UID: "u-p", Controller: new(true)}
		schedule, helper := owner, owner
		schedule.Kind, helper.Controller = "Schedule", nil
		Eventually(ctx, func() error { return try(other, owner) }).WithTimeout(patience).WithPolling(polling).Should(MatchError(ContainSubstring("failed calling webhook")))
		Expect(try(operator, owner)).To(Succeed())
		for _, owners := range [][]metav1.OwnerReference{nil, {schedule}, {helper}} {
			Expect(try(operator, owners...)).To(MatchError(ContainSubstring("failed calling webhook")))
		}
	}, SpecTimeout(2*patience))
})

var _ = Describe("Certificates that the operator makes", func() {
	// The first is made 61 days ago and so in its last 30 days; when the operator's clock is put
	// right, it renews.
	//
	// mutation: a Source that looks at the Secret only when it starts makes this fail.
	It("are renewed without a restart and without a failed call", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		// What replaces a certificate of another spec, which began later by this clock,
		// ends as that.
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: SecretName}}
		Expect(client.IgnoreNotFound(suite.client.Delete(ctx, secret))).To(Succeed())
		clock := testingclock.NewFakeClock(time.Now().Add(-61 * 24 * time.Hour))
		port := w.operator(setting{clock: clock})
		w.register(ctx, port, closed)
		class := w.policy(ctx, "payments", rejecting(0))
		w.guarded(ctx)
		first := w.serves(ctx, port)

		stop := w.watched(ctx, class)
		Eventually(ctx, clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
		clock.SetTime(time.Now())
		second := w.serves(ctx, port, first)

		By("another replica, to which the API server has to connect anew: it shares the Secret")
		other := w.operator(setting{})
		Expect(w.serves(ctx, other)).To(Equal(second))
		asked := w.instance.asked.Load()
		w.change(ctx, func(h *admissionv1.ValidatingWebhook) { h.ClientConfig.Service.Port = new(int32(other)) })
		Eventually(ctx, w.instance.asked.Load).WithTimeout(patience).Should(BeNumerically(">", asked+20))
		Expect(stop()).To(BeEmpty(), "answers other than 429")
	}, SpecTimeout(3*patience))

	It("are made anew when their Secret is deleted, and the API server is told", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		clock := testingclock.NewFakeClock(time.Now())
		port := w.operator(setting{clock: clock})
		w.register(ctx, port)
		class := w.policy(ctx, "payments", rejecting(0))
		w.guarded(ctx)
		first := w.serves(ctx, port)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: SecretName}}
		Expect(suite.client.Delete(ctx, secret)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			if clock.HasWaiters() {
				clock.Step(time.Minute)
			}
			serial, err := w.serial(ctx, port)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(serial).NotTo(Equal(first))
		}).WithTimeout(patience).WithPolling(polling).Should(Succeed())
		Eventually(ctx, func() int { return w.create(ctx, w.run(class, "run"), "?dryRun=All").code }).
			WithTimeout(patience).WithPolling(polling).Should(Equal(http.StatusTooManyRequests))
	}, SpecTimeout(2*patience))

	// mutation: a verb taken out of a role makes this fail.
	It("need no more rights than those that are shipped", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		asOperator := rest.CopyConfig(suite.config)
		asOperator.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + operatorNamespace + ":syncopate"}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: SecretName}}
		Expect(client.IgnoreNotFound(suite.client.Delete(ctx, secret))).To(Succeed())

		// The role names the configuration, so this world's own gets the same rights
		// under its name.
		var role rbacv1.ClusterRole
		Expect(suite.client.Get(ctx, client.ObjectKey{Name: "syncopate-webhook-certs"}, &role)).To(Succeed())
		Expect(role.Rules).To(HaveLen(1))
		Expect(role.Rules[0].ResourceNames).To(Equal([]string{shipped().Name}))
		role.Rules[0].ResourceNames = append(role.Rules[0].ResourceNames, w.ns)
		Expect(suite.client.Update(ctx, &role)).To(Succeed())

		clock := testingclock.NewFakeClock(time.Now().Add(-61 * 24 * time.Hour))
		port := w.operator(setting{config: asOperator, clock: clock})
		w.register(ctx, port, closed)
		class := w.policy(ctx, "payments", rejecting(0))
		first := w.serves(ctx, port)
		Eventually(ctx, func() string { return w.create(ctx, w.run(class, "run"), "?dryRun=All").cause() }).
			WithTimeout(patience).WithPolling(polling).Should(Equal(v1alpha1.ReasonTenantAtCapacity))
		Eventually(ctx, clock.HasWaiters).WithTimeout(patience).Should(BeTrue())
		clock.SetTime(time.Now())
		w.serves(ctx, port, first)
	}, SpecTimeout(2*patience))
})

var _ = Describe("Certificates of a directory", func() {
	// As a mounted Secret changes: files that are links, put elsewhere at once.
	//
	// mutation: a certificate that is loaded once makes this fail.
	It("are read again when they change", func(ctx SpecContext) {
		w := newWorld(ctx, suite.redis)
		dir, bundle := GinkgoT().TempDir(), []byte(nil)
		put := func(version, old string) {
			GinkgoHelper()
			cert, key := selfSigned(GinkgoTB(), w.service+"."+operatorNamespace+".svc")
			bundle = append(bundle, cert...)
			Expect(os.Mkdir(filepath.Join(dir, version), 0o700)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, version, "tls.crt"), cert, 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(dir, version, "tls.key"), key, 0o600)).To(Succeed())
			Expect(os.Symlink(version, filepath.Join(dir, "next"))).To(Succeed())
			Expect(os.Rename(filepath.Join(dir, "next"), filepath.Join(dir, "..data"))).To(Succeed())
			Expect(os.RemoveAll(filepath.Join(dir, old))).To(Succeed())
		}
		put("v1", "none")
		for _, file := range []string{"tls.crt", "tls.key"} {
			Expect(os.Symlink(filepath.Join("..data", file), filepath.Join(dir, file))).To(Succeed())
		}
		port := w.operator(setting{certDir: dir})
		w.register(ctx, port, closed, func(h *admissionv1.ValidatingWebhook) { h.ClientConfig.CABundle = bundle })
		class := w.policy(ctx, "payments", rejecting(0))
		w.guarded(ctx)
		first := w.serves(ctx, port)

		cert1 := bundle
		put("v2", "v1")
		w.change(ctx, func(h *admissionv1.ValidatingWebhook) { h.ClientConfig.CABundle = bundle })
		w.serves(ctx, port, first)
		Expect(bundle).NotTo(Equal(cert1))
		Expect(w.create(ctx, w.run(class, "run"), "").code).To(Equal(http.StatusTooManyRequests))
	}, SpecTimeout(2*patience))
})

func selfSigned(t testing.TB, host string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: []string{host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

var _ = Describe("The shipped manifests", func() {
	// mutation: another path, or a time-out that leaves no time to answer, makes this fail.
	It("fit the code", func(ctx SpecContext) {
		c := shipped()
		Expect(c.Webhooks).To(HaveLen(1))
		hook := c.Webhooks[0]
		Expect(*hook.ClientConfig.Service.Path).To(Equal(Path))
		Expect(time.Duration(*hook.TimeoutSeconds) * time.Second).To(BeNumerically(">=", longest+ahead))
		Expect(*hook.FailurePolicy).To(Equal(admissionv1.Ignore))
		Expect(*hook.SideEffects).To(Equal(admissionv1.SideEffectClassNoneOnDryRun))
		Expect(suite.client.Create(ctx, c, client.DryRunAll)).To(Succeed())

		services := documents(testenv.Root("config", "webhook", "base", "service.yaml"))
		Expect(services).To(HaveLen(1))
		Expect(services[0].GetName()).To(Equal(hook.ClientConfig.Service.Name))
		Expect(services[0].GetNamespace()).To(Equal(hook.ClientConfig.Service.Namespace))
		Expect(suite.client.Create(ctx, services[0], client.DryRunAll)).To(Succeed())

		var role rbacv1.Role
		Expect(suite.client.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: "syncopate-webhook-certs"}, &role)).To(Succeed())
		Expect(role.Rules[1].ResourceNames).To(Equal([]string{SecretName}))
	}, SpecTimeout(patience))
})
