// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"regexp"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
)

const (
	maxSlices      = 20
	maxAuthorities = 20
	// asksForASlot and isNoChildRun are the shipped match conditions. They are true of the run that
	// try creates.
	asksForASlot = "asks-for-a-slot"
	isNoChildRun = "is-no-child-run"
)

var (
	// classesIn is a match condition as the chart and docs/admission.md write it.
	classesIn = regexp.MustCompile(`^\s*object\.spec\.workloadClass\s+in\s+\[((?:\s*(?:"[a-z0-9-]+"|'[a-z0-9-]+')\s*,?)+\s*)\]\s*$`)
	className = regexp.MustCompile(`[a-z0-9-]+`)
)

// webhook reads the configuration and tries a create through it, in a dry run.
func (k *kube) webhook(ctx context.Context, namespace string) check.Webhook {
	c := &admissionv1.ValidatingWebhookConfiguration{}
	err := k.Get(ctx, client.ObjectKey{Name: operatorName}, c)
	switch {
	case apierrors.IsNotFound(err):
		return check.Webhook{Missing: true}
	case err != nil:
		return check.Webhook{Unread: unread("read the webhook's configuration", err)}
	case len(c.Webhooks) == 0:
		return check.Webhook{Missing: true}
	}
	hook := c.Webhooks[0]
	w := check.Webhook{Ignores: hook.FailurePolicy != nil && *hook.FailurePolicy == admissionv1.Ignore, Endpoints: -1}
	w.Authorities, w.Broken = bundle(hook.ClientConfig.CABundle)
	if s := hook.ClientConfig.Service; s != nil {
		w.Endpoints = k.endpoints(ctx, s.Namespace, s.Name)
	}
	w.Classes, w.Asked = classesOf(hook.MatchConditions)
	class := "default"
	if len(w.Classes) > 0 {
		class = w.Classes[0]
	}
	w.Call = k.try(ctx, namespace, class, hook.Name)
	return w
}

// classesOf are the workload classes for whose runs the webhook is asked; nil: all.
func classesOf(conditions []admissionv1.MatchCondition) (classes []string, unknown check.Unread) {
	for _, c := range conditions {
		if c.Name == asksForASlot || c.Name == isNoChildRun {
			continue
		}
		list := classesIn.FindStringSubmatch(c.Expression)
		if list == nil || classes != nil {
			return nil, check.Unread{
				Why:  "the webhook is asked for some runs only, by its match condition " + c.Name,
				Hint: "name the classes in one condition, as docs/admission.md has it: object.spec.workloadClass in ['payments', 'ledger']",
			}
		}
		classes = className.FindAllString(list[1], -1)
	}
	return classes, unknown
}

func bundle(raw []byte) (all []check.Authority, broken string) {
	if len(raw) == 0 {
		return nil, "it is empty"
	}
	for block, rest := pem.Decode(raw); block != nil && len(all) < maxAuthorities; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err.Error()
		}
		all = append(all, check.Authority{Subject: cert.Subject.String(), From: cert.NotBefore, To: cert.NotAfter})
	}
	if len(all) == 0 {
		return nil, "there is no certificate in it"
	}
	return all, ""
}

// endpoints counts those of a Service that are called; -1: not known.
func (k *kube) endpoints(ctx context.Context, namespace, service string) int {
	list := &discoveryv1.EndpointSliceList{}
	if err := k.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}, client.Limit(maxSlices)); err != nil {
		return -1 // the finding says that it is not known
	}
	n := 0
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if serves(e.Conditions) {
				n++
			}
		}
	}
	return n
}

// serves tells that an endpoint is called. Of what is not said, as the API has it, the
// better is true.
func serves(c discoveryv1.EndpointConditions) bool {
	return ptr.Deref(c.Serving, true) && !ptr.Deref(c.Terminating, false)
}

// try creates a run of a class for which the webhook is asked, in a dry run. What the webhook
// itself refuses has reached it.
func (k *kube) try(ctx context.Context, namespace, class, hook string) check.Call {
	run := &v1alpha1.WorkflowRun{}
	run.Namespace, run.GenerateName = namespace, "syncopate-check-"
	run.Spec.WorkloadClass = class
	run.Spec.Steps = []v1alpha1.Step{{Name: "check", Job: &v1alpha1.Job{Topic: "syncopate-check"}}}
	err := k.Create(ctx, run, client.DryRunAll)
	switch {
	case err == nil, strings.Contains(err.Error(), fmt.Sprintf("admission webhook %q denied the request", hook)):
		return check.Call{}
	case strings.Contains(err.Error(), "failed calling webhook"):
		return check.Call{Unreached: err.Error()}
	}
	return check.Call{Unread: unread("a dry run of a create in namespace "+namespace, err)}
}
