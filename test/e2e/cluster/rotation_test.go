// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// redisPods are those of examples/production. Each has a server and a sentinel.
var redisPods = []string{"redis-0", "redis-1", "redis-2"}

// passwords are those that people give to the servers of examples/production at the moment.
type passwords struct{ admin, sentinel string }

// passwordsNow reads the Secret that the servers begin with.
func passwordsNow(ctx context.Context) passwords {
	GinkgoHelper()
	s := &corev1.Secret{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: redisNS, Name: "redis-passwords"}, s)).To(Succeed())
	return passwords{admin: string(s.Data["admin"]), sentinel: string(s.Data["sentinel"])}
}

// replace puts another value into a Secret.
func replace(ctx context.Context, namespace, name, key, value string) {
	GinkgoHelper()
	kubectl(ctx, "-n", namespace, "patch", "secret", name, "-p", fmt.Sprintf(`{"stringData":{%q:%q}}`, key, value))
}

// ask has redis-cli ask one container of a pod something, as docs/production.md has people do.
func ask(ctx context.Context, pod, container, port, user, password string, words ...string) (string, error) {
	GinkgoHelper()
	out, err := try(ctx, "", "kubectl", append([]string{
		"-n", redisNS, "exec", pod, "-c", container, "--", "redis-cli", "--no-auth-warning", "-p", port,
		"--tls", "--cacert", "/etc/redis-tls/ca.crt", "--cert", "/etc/redis-tls/tls.crt", "--key", "/etc/redis-tls/tls.key",
		"--user", user, "--pass", password,
	}, words...)...)
	if err == nil && (strings.HasPrefix(out, "ERR") || strings.HasPrefix(out, "NO") || strings.HasPrefix(out, "AUTH failed")) {
		err = fmt.Errorf("%s of %s: %s", words[0], pod, strings.TrimSpace(out))
	}
	return out, err
}

func (p passwords) server(ctx context.Context, pod string, words ...string) string {
	GinkgoHelper()
	out, err := ask(ctx, pod, "redis", "6379", "admin", p.admin, words...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

func (p passwords) askSentinel(ctx context.Context, pod string, words ...string) (string, error) {
	GinkgoHelper()
	return ask(ctx, pod, "sentinel", "26379", "default", p.sentinel, words...)
}

func (p passwords) ofSentinel(ctx context.Context, pod string, words ...string) string {
	GinkgoHelper()
	out, err := p.askSentinel(ctx, pod, words...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

// master is the pod of the master.
func (p passwords) master(ctx context.Context) string {
	GinkgoHelper()
	host, _, _ := strings.Cut(p.ofSentinel(ctx, redisPods[0], "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "locks"), ".")
	Expect(redisPods).To(ContainElement(host))
	return host
}

// inStep waits until each sentinel has two replicas that reach the master, and could fail over.
func (p passwords) inStep(ctx context.Context) {
	GinkgoHelper()
	for _, pod := range redisPods {
		Eventually(func(g Gomega) {
			out, err := p.askSentinel(ctx, pod, "SENTINEL", "REPLICAS", "locks")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(out, "master-link-status\nok")).To(Equal(2), out)
			for line := range strings.Lines(out) {
				if strings.HasPrefix(line, "slave") { // the flags
					g.Expect(line).NotTo(Or(ContainSubstring("down"), ContainSubstring("disconnected")), out)
				}
			}
			out, err = p.askSentinel(ctx, pod, "SENTINEL", "CKQUORUM", "locks")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(ContainSubstring("OK 3 usable Sentinels"))
		}).WithContext(ctx).WithTimeout(eventTimeout).WithPolling(listInterval).Should(Succeed())
	}
}

// restartRedis restarts the pods one at a time, in the order of upgrades: the replicas, a
// fail-over, the old master.
func (p passwords) restartRedis(ctx context.Context) {
	GinkgoHelper()
	old := p.master(ctx)
	restart := func(pod string) {
		kubectl(ctx, "-n", redisNS, "delete", "pod", pod, waitFlag)
		kubectl(ctx, "-n", redisNS, "wait", "--for=create", "--for=condition=Ready", waitFlag, "pod/"+pod)
		p.inStep(ctx)
	}
	for _, pod := range slices.DeleteFunc(slices.Clone(redisPods), func(pod string) bool { return pod == old }) {
		restart(pod)
	}
	p.ofSentinel(ctx, redisPods[0], "SENTINEL", "FAILOVER", "locks")
	Eventually(func() string { return p.master(ctx) }).WithContext(ctx).WithTimeout(eventTimeout).WithPolling(listInterval).ShouldNot(Equal(old))
	restart(old)
}

// rotations are steps 5 and 6 of docs/production.md.
func rotations() {
	It("the password of admin in Redis is rotated", func(ctx context.Context) {
		whileLongRuns(ctx, func() {
			old, next := passwordsNow(ctx), passwordsNow(ctx)
			next.admin = password()
			for _, pod := range redisPods {
				old.server(ctx, pod, "ACL", "SETUSER", "admin", ">"+next.admin)
			}
			for _, pod := range redisPods {
				next.server(ctx, pod, "CONFIG", "SET", "masterauth", next.admin)
				next.ofSentinel(ctx, pod, "SENTINEL", "SET", "locks", "auth-pass", next.admin)
			}
			next.inStep(ctx)
			replace(ctx, redisNS, "redis-passwords", "admin", next.admin)
			next.restartRedis(ctx)
			for _, pod := range redisPods {
				_, err := ask(ctx, pod, "redis", "6379", "admin", old.admin, "PING")
				Expect(err).To(HaveOccurred(), "the old password is gone")
			}
		})
	}, SpecTimeout(2*specTimeout))

	It("the password of the sentinels is rotated", func(ctx context.Context) {
		whileLongRuns(ctx, func() {
			old, next := passwordsNow(ctx), passwordsNow(ctx)
			next.sentinel = password()
			for _, pod := range redisPods {
				old.ofSentinel(ctx, pod, "ACL", "SETUSER", "default", ">"+next.sentinel)
			}
			for _, pod := range redisPods {
				next.ofSentinel(ctx, pod, "SENTINEL", "CONFIG", "SET", "sentinel-pass", next.sentinel)
			}
			next.inStep(ctx)
			replace(ctx, redisNS, "redis-passwords", "sentinel", next.sentinel)
			replace(ctx, operatorNS, "syncopate-redis", "sentinelPassword", next.sentinel)
			kubectl(ctx, "-n", operatorNS, "rollout", "restart", "deployment/syncopate")
			kubectl(ctx, "-n", operatorNS, "rollout", "status", "deployment/syncopate", waitFlag)
			next.restartRedis(ctx)
			for _, pod := range redisPods {
				_, err := old.askSentinel(ctx, pod, "PING")
				Expect(err).To(HaveOccurred(), "the old password is gone")
			}
		})
		wellFromOutside(ctx)
	}, SpecTimeout(2*specTimeout))
}
