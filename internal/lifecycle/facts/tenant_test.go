// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestResolveTenant(t *testing.T) {
	label := func(v string) map[string]string { return map[string]string{v1alpha1.LabelTenant: v} }
	allow := func(v string) map[string]string { return map[string]string{v1alpha1.AnnotationAllowedTenants: v} }
	tests := map[string]struct {
		spec                string
		labels, annotations map[string]string
		want                Tenant
	}{
		"a namespace is its own tenant":              {"", nil, nil, Tenant{Name: "team-a", Allowed: true}},
		"a label names the tenant":                   {"", label("acme"), nil, Tenant{Name: "acme", Allowed: true}},
		"an empty label is none":                     {"", label(""), nil, Tenant{Name: "team-a", Allowed: true}},
		"naming the own tenant is always allowed":    {"acme", label("acme"), nil, Tenant{Name: "acme", Allowed: true}},
		"the name does not count beside a label":     {"team-a", label("acme"), nil, Tenant{Name: "team-a", Allowed: false}},
		"another tenant must be listed":              {"other", nil, nil, Tenant{Name: "other", Allowed: false}},
		"a listed one is allowed, whatever the gaps": {"other", nil, allow("x , other,y"), Tenant{Name: "other", Allowed: true}},
		"part of a listed one is not":                {"oth", nil, allow("other"), Tenant{Name: "oth", Allowed: false}},
		"an empty list allows nobody":                {"other", nil, allow(""), Tenant{Name: "other", Allowed: false}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, ResolveTenant(tt.spec, "team-a", tt.labels, tt.annotations)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
