// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// chart is the arguments of helm upgrade --install with an image.
func chart(image string, more ...string) []string {
	name, tag := nameAndTag(image)
	return append([]string{
		"upgrade", "--install", "syncopate", "charts/syncopate", "-n", helmNS, "--wait", waitFlag,
		"--set-string", "image.repository=" + name, "--set-string", "image.tag=" + tag, "--set", "webhook.enabled=true",
	}, more...)
}

func helmStories() {
	It("installed by Helm it works the same, is upgraded, and uninstalling keeps the runs", func(ctx context.Context) {
		restricted := namespaceNamed(helmNS)
		restricted.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		Expect(client.IgnoreAlreadyExists(k8s.Create(ctx, restricted))).To(Succeed())
		helm(ctx, chart(config.operator)...)
		operatorReady(ctx, helmNS)
		helm(ctx, "test", "syncopate", "-n", helmNS)
		w := newWorld(ctx, 2)
		w.create(ctx, 6, w.all(jobMillis)...)
		w.nothingLostNothingTwice(ctx, jobsOfAll*6)

		By("an upgrade in the middle of runs")
		w.create(ctx, 6, w.all(jobMillis)...)
		helm(ctx, chart(config.next, "--set", "replicas=1", "--set", "logLevel=debug")...)
		operatorReady(ctx, helmNS)
		w.nothingLostNothingTwice(ctx, jobsOfAll*12)

		By("a roll-back")
		helm(ctx, "rollback", "syncopate", "1", "-n", helmNS, "--wait", waitFlag)
		w.create(ctx, 1, w.all(jobMillis)...)
		w.nothingLostNothingTwice(ctx, jobsOfAll*13)

		By("uninstalling")
		helm(ctx, "uninstall", "syncopate", "-n", helmNS, "--wait", waitFlag)
		var kept v1alpha1.WorkflowRunList
		Expect(k8s.List(ctx, &kept, client.InNamespace(w.namespace))).To(Succeed())
		Expect(kept.Items).To(HaveLen(2*13), "the runs and their children")
		Expect(k8s.Delete(ctx, namespaceNamed(w.namespace))).To(Succeed())
		gone(ctx, namespaceNamed(w.namespace))
		Expect(k8s.Delete(ctx, namespaceNamed(helmNS))).To(Succeed())
		gone(ctx, namespaceNamed(helmNS))
		kubectl(ctx, "delete", "crd", "workflowruns.syncopate.dev", "workflows.syncopate.dev", "schedules.syncopate.dev",
			"lockpolicies.syncopate.dev", "semaphores.syncopate.dev", "stepapprovals.syncopate.dev", waitFlag)
	}, SpecTimeout(2*specTimeout))
}
