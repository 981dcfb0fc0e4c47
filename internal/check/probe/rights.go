// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/syncopate-dev/syncopate/internal/check"
)

// reviewsAtOnce bounds the questions to the API server at the same time.
const reviewsAtOnce = 8

// rights asks whether the operator's account may do what the shipped roles say.
func (k *kube) rights(ctx context.Context, namespace string, operator check.Operator) check.Rights {
	if operator.Account == "" {
		return check.Rights{Unread: accountUnknown()}
	}
	account := userOf(namespace, operator.Account)
	wanted, err := shippedRights(namespace)
	if err != nil {
		return check.Rights{Unread: check.Unread{Why: err.Error()}}
	}
	return ask(ctx, account, wanted, func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		return k.allowed(ctx, namespace, operator.Account, a)
	})
}

// allowed asks whether an account of a namespace may do something.
func (k *kube) allowed(ctx context.Context, namespace, account string, a *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: a, User: userOf(namespace, account), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}}
	err := k.Create(ctx, review)
	return review.Status.Allowed, err
}

// install asks whether the user may create what an installation has.
func (k *kube) install(ctx context.Context, namespace string) check.Rights {
	const rbac, registration = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	var wanted []authorizationv1.ResourceAttributes
	for _, r := range []struct {
		group, resource string
		namespaced      bool
	}{
		{"apiextensions.k8s.io", "customresourcedefinitions", false},
		{"", "namespaces", false},
		{rbac, "clusterroles", false},
		{rbac, "clusterrolebindings", false},
		{rbac, "roles", true},
		{rbac, "rolebindings", true},
		{"", "serviceaccounts", true},
		{"", "services", true},
		{"apps", "deployments", true},
		{"policy", "poddisruptionbudgets", true},
		{registration, "validatingadmissionpolicies", false},
		{registration, "validatingadmissionpolicybindings", false},
		{"flowcontrol.apiserver.k8s.io", "flowschemas", false},
		{"flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations", false},
	} {
		a := authorizationv1.ResourceAttributes{Group: r.group, Resource: r.resource, Verb: "create"}
		if r.namespaced {
			a.Namespace = namespace
		}
		wanted = append(wanted, a)
	}
	return ask(ctx, "you", wanted, func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: a}}
		err := k.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

func ask(ctx context.Context, who string, wanted []authorizationv1.ResourceAttributes,
	allowed func(context.Context, *authorizationv1.ResourceAttributes) (bool, error),
) check.Rights {
	r := check.Rights{Who: who, Asked: len(wanted)}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reviewsAtOnce)
	for i := range wanted {
		group.Go(func() error {
			yes, err := allowed(ctx, &wanted[i])
			if err != nil || yes {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.Missing = append(r.Missing, describe(&wanted[i]))
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return check.Rights{Unread: unread("ask about rights", err)}
	}
	slices.Sort(r.Missing)
	return r
}

func describe(a *authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Name != "" {
		text += " " + a.Name
	}
	return text
}

// shippedRights are the rights of the shipped roles, each one by itself.
func shippedRights(namespace string) ([]authorizationv1.ResourceAttributes, error) {
	var all []authorizationv1.ResourceAttributes
	err := shipped("rbac/role.yaml", func(raw []byte) error {
		var role rbacv1.ClusterRole // a Role has the same rules
		if err := json.Unmarshal(raw, &role); err != nil {
			return err
		}
		if role.Kind == "Role" {
			role.Namespace = namespace
		}
		for _, rule := range role.Rules {
			all = append(all, rightsOf(rule, role.Namespace)...)
		}
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("shipped roles: %w", errNoRights)
	}
	return all, err
}
