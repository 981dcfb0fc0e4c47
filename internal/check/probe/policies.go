// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/check"
)

const maxPolicies = 1000

func (k *kube) policies(ctx context.Context) check.Policies {
	list := &v1alpha1.LockPolicyList{}
	if err := k.List(ctx, list, client.Limit(maxPolicies)); err != nil {
		return check.Policies{Unread: unread("list LockPolicies", err)}
	}
	return check.Policies{Items: list.Items}
}
