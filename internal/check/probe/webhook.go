// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"crypto/x509"
	"encoding/pem"
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
	w.Call = k.try(ctx, namespace)
	return w
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

// try creates a run in a dry run. What the webhook or the schema refuses has passed the webhook.
func (k *kube) try(ctx context.Context, namespace string) check.Call {
	run := &v1alpha1.WorkflowRun{}
	run.Namespace, run.GenerateName = namespace, "syncopate-check-"
	run.Spec.WorkloadClass = "default"
	run.Spec.Steps = []v1alpha1.Step{{Name: "check", Job: &v1alpha1.Job{Topic: "syncopate-check"}}}
	err := k.Create(ctx, run, client.DryRunAll)
	switch {
	case err == nil, apierrors.IsTooManyRequests(err):
		return check.Call{}
	case strings.Contains(err.Error(), "failed calling webhook"):
		return check.Call{Unreached: err.Error()}
	}
	return check.Call{Unread: unread("a dry run of a create in namespace "+namespace, err)}
}
