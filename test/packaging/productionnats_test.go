// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// What asks for no login, as the monitor port of NATS, is not for every pod: a rule without peers
// lets in to the port of clients only. The kubelet, which probes, is let in without a rule.
// mutation: {port: monitor} in the first rule of nats.yaml makes this fail.
func TestNoPodReachesThePortsOfTheProductionExampleThatAskForNoLogin(t *testing.T) {
	rules := 0
	for _, o := range production(t) {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		findObject(t, production(t), o.GetKind(), o.GetNamespace(), o.GetName(), &policy)
		for _, rule := range policy.Spec.Ingress {
			rules++
			if len(rule.From) > 0 {
				continue
			}
			if len(rule.Ports) == 0 {
				t.Errorf("%s/%s lets all in to all ports", policy.Namespace, policy.Name)
			}
			for _, p := range rule.Ports {
				if name := p.Port.String(); name != "client" {
					t.Errorf("%s/%s lets all in to port %s", policy.Namespace, policy.Name, name)
				}
			}
		}
	}
	if rules < 2 {
		t.Errorf("%d rules", rules)
	}
}

// A server whose disk is new copies all streams before /healthz is well, so that the next server is
// not drained before. The kubelet lets it: at 5 MB/s, the pace of a poor disk, streams as large as
// they may be are there in time.
// mutation: a failureThreshold of 60 makes this fail.
func TestAServerOfTheProductionExampleMayCopyAllStreams(t *testing.T) {
	var d appsv1.Deployment
	var set appsv1.StatefulSet
	all := production(t)
	findObject(t, all, "Deployment", operatorNamespace, "syncopate", &d)
	findObject(t, all, "StatefulSet", "nats", "nats", &set)
	storage := natsStorage(&d)
	const pace = 5e6 // bytes a second
	need := time.Duration(float64(storage.Value())/pace) * time.Second
	probe := set.Spec.Template.Spec.Containers[0].StartupProbe
	if has := time.Duration(probe.FailureThreshold) * time.Duration(probe.PeriodSeconds) * time.Second; storage.IsZero() || has < need {
		t.Errorf("a server has %s for %s, and takes %s", has, storage.String(), need)
	}
}

// secretsOf are the variables of a container that a Secret has, of which a process sees no change.
func secretsOf(c corev1.Container) (names []string) {
	for _, v := range c.Env {
		if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
			names = append(names, v.Name)
		}
	}
	return names
}

// Servers and workers read variables at their start only, so who rotates a password that is in one
// is told to restart them.
// mutation: either restart taken from that step of docs/production.md makes this fail.
func TestTheRotationOfThePageRestartsWhoReadsVariables(t *testing.T) {
	var set appsv1.StatefulSet
	findObject(t, production(t), "StatefulSet", "nats", "nats", &set)
	step := regexp.MustCompile(`(?s)\n\d\. a new password of NATS.*?\n\d\. `).FindString(pageOf(t, "production.md"))
	accounts := string(accountsOfThePage(t))
	named := slices.DeleteFunc(secretsOf(set.Spec.Template.Spec.Containers[0]), func(name string) bool { return !strings.Contains(accounts, "$"+name) })
	if len(named) < 3 {
		t.Errorf("accounts.conf names %q", named)
	}
	for restart, variables := range map[string][]string{
		"kubectl -n nats rollout restart statefulset/nats":    named,
		"kubectl -n team-a rollout restart deployment/worker": secretsOf(workerOfTheExample(t)),
	} {
		if len(variables) > 0 && !strings.Contains(step, restart) {
			t.Errorf("nobody is told %q, and variables are %q:\n%s", restart, variables, step)
		}
	}
}
