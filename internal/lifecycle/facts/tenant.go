// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"strings"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// Tenant is whom a run is accounted to, and whether its namespace may do so.
type Tenant struct {
	Name    string
	Allowed bool
}

// ResolveTenant finds the tenant of a run. The namespace's own tenant is its label
// syncopate.dev/tenant, else its name, and always allowed; specTenant may name another one that the
// annotation syncopate.dev/allowed-tenants lists.
func ResolveTenant(specTenant, namespace string, labels, annotations map[string]string) Tenant {
	own := labels[v1alpha1.LabelTenant]
	if own == "" {
		own = namespace
	}
	if specTenant == "" || specTenant == own {
		return Tenant{Name: own, Allowed: true}
	}
	for name := range strings.SplitSeq(annotations[v1alpha1.AnnotationAllowedTenants], ",") {
		if strings.TrimSpace(name) == specTenant {
			return Tenant{Name: specTenant, Allowed: true}
		}
	}
	return Tenant{Name: specTenant}
}
