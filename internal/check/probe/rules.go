// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// errNoRights is returned where the shipped roles are empty: a defect of the build.
var errNoRights = errors.New("they have no rights")

// rightsOf is what a rule allows, each right by itself.
func rightsOf(rule rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var all []authorizationv1.ResourceAttributes
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			kind, sub, _ := strings.Cut(resource, "/")
			for _, name := range names {
				for _, verb := range rule.Verbs {
					all = append(all, authorizationv1.ResourceAttributes{
						Namespace: namespace, Group: group, Resource: kind, Subresource: sub, Name: name, Verb: verb,
					})
				}
			}
		}
	}
	return all
}
