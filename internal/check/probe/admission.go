// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/check"
)

const (
	// shippedNamespace is that of the operator in the manifests.
	shippedNamespace = "syncopate-system"
	maxBindings      = 500
)

// admission looks at the shipped admission policies and their bindings.
func (k *kube) admission(ctx context.Context, namespace string, operator check.Operator) check.Admission {
	var found check.Admission
	bindings := &admissionv1.ValidatingAdmissionPolicyBindingList{}
	if err := k.List(ctx, bindings, client.Limit(maxBindings)); err != nil {
		found.Unread = unread("list bindings of admission policies", err)
		return found
	}
	for _, file := range []string{"status/policy.yaml", "approval/policy.yaml", "schedules/policy.yaml"} {
		want, err := shippedPolicy(file)
		if err != nil {
			return check.Admission{Unread: check.Unread{Why: err.Error()}}
		}
		p, err := k.policy(ctx, want, namespace, operator)
		if err != nil {
			return check.Admission{Unread: unread("read admission policy "+want.Name, err)}
		}
		for _, b := range bindings.Items {
			switch {
			case b.Spec.PolicyName != want.Name:
			case b.Spec.MatchResources != nil && !empty(b.Spec.MatchResources):
				p.PartBindings = append(p.PartBindings, actions(b.Spec.ValidationActions))
			default:
				p.Bindings = append(p.Bindings, actions(b.Spec.ValidationActions))
			}
		}
		found.Items = append(found.Items, p)
	}
	return found
}

func (k *kube) policy(ctx context.Context, want *admissionv1.ValidatingAdmissionPolicy, namespace string, operator check.Operator) (check.AdmissionPolicy, error) {
	p := check.AdmissionPolicy{Name: want.Name}
	got := &admissionv1.ValidatingAdmissionPolicy{}
	err := k.Get(ctx, client.ObjectKey{Name: want.Name}, got)
	if apierrors.IsNotFound(err) {
		p.Missing = true
		return p, nil
	}
	if err != nil {
		return p, err
	}
	p.Ignores = got.Spec.FailurePolicy != nil && *got.Spec.FailurePolicy == admissionv1.Ignore
	user, shipped := userOf(namespace, cmp.Or(operator.Account, operatorName)), userOf(shippedNamespace, operatorName)
	p.Narrowed = asks(got) != strings.ReplaceAll(asks(want), shipped, user)
	if p.Narrowed && operator.Account == "" && strings.Contains(asks(want), shipped) {
		p.Narrowed, p.Unread = false, accountUnknown()
	}
	return p, nil
}

// asks is what a policy looks at, and what it asks. A default of the API server is the
// same as none.
func asks(p *admissionv1.ValidatingAdmissionPolicy) string {
	var b strings.Builder
	m := p.Spec.MatchConstraints
	rules := func(what string, all []admissionv1.NamedRuleWithOperations) {
		for _, r := range all {
			fmt.Fprintln(&b, what, r.APIGroups, r.APIVersions, r.Operations, r.Resources, r.ResourceNames, ptr.Deref(r.Scope, admissionv1.AllScopes))
		}
	}
	rules("of", m.ResourceRules)
	rules("not of", m.ExcludeResourceRules)
	fmt.Fprintln(&b, "in", metav1.FormatLabelSelector(m.NamespaceSelector), "with", metav1.FormatLabelSelector(m.ObjectSelector))
	fmt.Fprintln(&b, "by", ptr.Deref(m.MatchPolicy, admissionv1.Equivalent))
	for _, c := range p.Spec.MatchConditions {
		fmt.Fprintln(&b, "if", c.Expression)
	}
	for _, v := range p.Spec.Validations {
		fmt.Fprintln(&b, v.Expression)
	}
	return b.String()
}

func empty(m *admissionv1.MatchResources) bool {
	return len(m.ResourceRules) == 0 && len(m.ExcludeResourceRules) == 0 &&
		(m.NamespaceSelector == nil || m.NamespaceSelector.String() == "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}") &&
		(m.ObjectSelector == nil || m.ObjectSelector.String() == "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}")
}

func actions(all []admissionv1.ValidationAction) []string {
	var texts []string
	for _, a := range all {
		texts = append(texts, string(a))
	}
	slices.Sort(texts)
	return texts
}

func shippedPolicy(file string) (*admissionv1.ValidatingAdmissionPolicy, error) {
	p := &admissionv1.ValidatingAdmissionPolicy{}
	err := shipped(file, func(raw []byte) error {
		var o admissionv1.ValidatingAdmissionPolicy
		if err := json.Unmarshal(raw, &o); err != nil {
			return err
		}
		if o.Kind == "ValidatingAdmissionPolicy" {
			p = &o
		}
		return nil
	})
	return p, err
}
