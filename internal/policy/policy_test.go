// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func TestDefaults(t *testing.T) {
	want := Effective{RunLock: RunLock{
		TTL:       30 * time.Second,
		Linger:    250 * time.Millisecond,
		Wait:      Wait{Budget: 3 * time.Second},
		BusyRetry: BusyRetry{Delay: 500 * time.Millisecond, JitterPercent: 30},
		Renewal: Renewal{
			Interval:               10 * time.Second,
			Timeout:                time.Second,
			MaxConsecutiveFailures: 3,
			Margin:                 3300 * time.Millisecond,
		},
	}, Admission: Admission{Default: NoLimit}, Delivery: Delivery{MaxDeliveries: 100, MaxDelay: 30 * time.Second}}
	if diff := cmp.Diff(want, Defaults()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if got := Defaults().RunLock.Validity(); got != 26700*time.Millisecond {
		t.Errorf("validity is %s; want 26.7 s", got)
	}
}

// The defaulting is the API server's own, on the generated CRD.
//
// mutation: another default in the CRD or in this package makes this fail.
func TestAPolicyWithTheCRDsDefaultsIsTheBuiltInOne(t *testing.T) {
	raw, err := os.ReadFile("../../config/crd/bases/syncopate.dev_lockpolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"spec": map[string]any{"workloadClasses": []any{"batch"}}}
	defaulting.Default(object, structural)
	var p v1alpha1.LockPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.RunLock.Renewal.SafetyMarginMillis == nil || p.Spec.Delivery.MaxDeliveries == 0 {
		t.Fatal("nothing was defaulted")
	}
	if diff := cmp.Diff(Defaults(), Of(&p)); diff != "" {
		t.Errorf("built-in defaults and those of the CRD (-built-in +CRD):\n%s", diff)
	}
}

func TestOf(t *testing.T) {
	tests := map[string]struct {
		policy *v1alpha1.LockPolicy
		want   func(e *Effective) // changes to the defaults
	}{
		"no policy is the defaults": {nil, func(*Effective) {}},
		"an empty policy is the defaults under its name": {
			&v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "batch", Generation: 4}},
			func(e *Effective) { e.Name, e.Generation = "batch", 4 },
		},
		"the interval follows the TTL, in whole milliseconds": {
			spec(v1alpha1.RunLockPolicy{TTLSeconds: 5}),
			func(e *Effective) {
				e.RunLock.TTL = 5 * time.Second
				e.RunLock.Renewal.Interval = 1666 * time.Millisecond
				e.RunLock.Renewal.Margin = 3050 * time.Millisecond
			},
		},
		"zeros that mean zero are kept": {
			spec(v1alpha1.RunLockPolicy{
				LingerMillis: new(int64),
				BusyRetry:    v1alpha1.BusyRetry{JitterPercent: new(int64)},
				Renewal:      v1alpha1.RenewalPolicy{ClockDriftPercent: new(int64), SafetyMarginMillis: new(int64)},
			}),
			func(e *Effective) {
				e.RunLock.Linger = 0
				e.RunLock.BusyRetry.JitterPercent = 0
				e.RunLock.Renewal.Margin = 0
			},
		},
		"every field is taken": {
			spec(v1alpha1.RunLockPolicy{
				TTLSeconds:   60,
				Scope:        v1alpha1.LockScopeRun,
				Wait:         v1alpha1.LockWait{Mode: v1alpha1.WaitModePoll, BudgetMillis: new(int64)},
				LingerMillis: new(int64(1)),
				BusyRetry:    v1alpha1.BusyRetry{Mode: v1alpha1.JitterModeFixed, DelayMillis: 2, JitterPercent: new(int64(3))},
				Renewal: v1alpha1.RenewalPolicy{
					IntervalMillis: new(int64(4000)), TimeoutMillis: 500, MaxConsecutiveFailures: 6,
					OnFailure: v1alpha1.RenewalFailureContinue, ClockDriftPercent: new(int64(7)), SafetyMarginMillis: new(int64(8)),
				},
			}),
			func(e *Effective) {
				e.RunLock = RunLock{
					TTL:       60 * time.Second,
					ForRun:    true,
					Wait:      Wait{Poll: true},
					Linger:    time.Millisecond,
					BusyRetry: BusyRetry{Fixed: true, Delay: 2 * time.Millisecond, JitterPercent: 3},
					Renewal: Renewal{
						Interval: 4 * time.Second, Timeout: 500 * time.Millisecond, MaxConsecutiveFailures: 6,
						Continue: true, Margin: 4208 * time.Millisecond,
					},
				}
			},
		},
		"the budget of deliveries and the longest delay are taken": {
			&v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{Delivery: v1alpha1.DeliveryPolicy{MaxDeliveries: 1, MaxDelaySeconds: 3600}}},
			func(e *Effective) { e.Delivery = Delivery{MaxDeliveries: 1, MaxDelay: time.Hour} },
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := Defaults()
			test.want(&want)
			if diff := cmp.Diff(want, Of(test.policy)); diff != "" {
				t.Errorf("effective policy (-want +got):\n%s", diff)
			}
		})
	}
}

func spec(l v1alpha1.RunLockPolicy) *v1alpha1.LockPolicy {
	return &v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{RunLock: l}}
}

func TestWait(t *testing.T) {
	const base = 500 * time.Millisecond
	tests := map[string]struct {
		retry BusyRetry
		r     float64
		want  time.Duration
	}{
		"the least":                         {BusyRetry{Delay: base, JitterPercent: 30}, 0, 350 * time.Millisecond},
		"the middle":                        {BusyRetry{Delay: base, JitterPercent: 30}, 0.5, base},
		"the most, which is never reached":  {BusyRetry{Delay: base, JitterPercent: 30}, 1, 650 * time.Millisecond},
		"fixed is exact":                    {BusyRetry{Fixed: true, Delay: base, JitterPercent: 30}, 0.9, base},
		"without jitter it is exact":        {BusyRetry{Delay: base}, 0.9, base},
		"full jitter reaches down to zero":  {BusyRetry{Delay: base, JitterPercent: 100}, 0, 0},
		"more than that is clamped at zero": {BusyRetry{Delay: base, JitterPercent: 300}, 0, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.retry.Wait(test.r); got != test.want {
				t.Errorf("wait is %s; want %s", got, test.want)
			}
		})
	}
}

// A Kolmogorov-Smirnov test: with 20,000 waits, a uniform Wait fails it once in a million seeds,
// and the seed is fixed.
//
// mutation: r*r instead of r, a range of [delay, delay*(1+p)], or half the jitter make this fail.
func TestWaitIsUniform(t *testing.T) {
	const n, alpha = 20000, 1e-6
	rnd := rand.New(rand.NewPCG(1, 2))
	retry := BusyRetry{Delay: 500 * time.Millisecond, JitterPercent: 30}
	const low, high = float64(350 * time.Millisecond), float64(650 * time.Millisecond)

	waits := make([]float64, n)
	for i := range waits {
		waits[i] = float64(retry.Wait(rnd.Float64()))
	}
	slices.Sort(waits)
	distance := 0.0
	for i, w := range waits {
		expected := (w - low) / (high - low)
		distance = max(distance, math.Abs(expected-float64(i)/n), math.Abs(expected-float64(i+1)/n))
	}
	if limit := math.Sqrt(-math.Log(alpha/2) / 2 / n); distance > limit {
		t.Errorf("the waits are %.4f off a uniform distribution; at most %.4f is chance", distance, limit)
	}
}

// mutation: a BusyRetry that prints its jitter although it is Fixed, or the delay instead of the
// range, makes this fail.
func TestTextOfABusyRetry(t *testing.T) {
	const base = 500 * time.Millisecond
	tests := map[string]struct {
		retry BusyRetry
		want  string
	}{
		"a range":                           {BusyRetry{Delay: base, JitterPercent: 30}, "350-650ms"},
		"fixed":                             {BusyRetry{Delay: base, Fixed: true, JitterPercent: 30}, "500ms"},
		"without jitter":                    {BusyRetry{Delay: base}, "500ms"},
		"full jitter begins at zero":        {BusyRetry{Delay: base, JitterPercent: 100}, "0-1000ms"},
		"more than that is clamped at zero": {BusyRetry{Delay: base, JitterPercent: 150}, "0-1250ms"},
		"parts of a millisecond":            {BusyRetry{Delay: 333 * time.Millisecond, JitterPercent: 7}, "309.69-356.31ms"},
		"the least delay":                   {BusyRetry{Delay: time.Millisecond, JitterPercent: 30}, "0.7-1.3ms"},
		"the largest delay":                 {BusyRetry{Delay: time.Minute, JitterPercent: 100}, "0-120000ms"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.retry.String(); got != test.want {
				t.Errorf("the text is %q; want %q", got, test.want)
			}
		})
	}
}

// mutation: 0 taken for absent makes "none at all" fail.
func TestLimitsOfTenants(t *testing.T) {
	tests := map[string]struct {
		spec v1alpha1.AdmissionPolicy
		want map[string]int
	}{
		"no limit":    {v1alpha1.AdmissionPolicy{}, map[string]int{"acme": NoLimit}},
		"the same":    {v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(10))}, map[string]int{"acme": 10, "other": 10}},
		"none at all": {v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(0))}, map[string]int{"acme": 0}},
		"one's own": {
			v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(10)), Tenants: []v1alpha1.TenantLimit{{Name: "acme", MaxConcurrentRuns: 50}, {Name: "shut", MaxConcurrentRuns: 0}}},
			map[string]int{"acme": 50, "shut": 0, "other": 10},
		},
		"only one's own": {
			v1alpha1.AdmissionPolicy{Tenants: []v1alpha1.TenantLimit{{Name: "acme", MaxConcurrentRuns: 1}}}, map[string]int{"acme": 1, "other": NoLimit},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := Of(&v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{Admission: tt.spec}}).Admission
			for tenant, want := range tt.want {
				if got := a.Limit(tenant); got != want {
					t.Errorf("limit of %s is %d, want %d", tenant, got, want)
				}
			}
		})
	}
}

func TestTheLockOfTenants(t *testing.T) {
	p := &v1alpha1.LockPolicy{Spec: v1alpha1.LockPolicySpec{Admission: v1alpha1.AdmissionPolicy{
		Strategy: v1alpha1.AdmissionStrategyLock, OnLimit: v1alpha1.OnLimitReject,
	}}}
	want := Admission{Reject: true, Default: NoLimit, Lock: &AdmissionLock{
		TTL: 10 * time.Second, MaxWait: 2 * time.Second, Retry: BusyRetry{Delay: 10 * time.Millisecond, JitterPercent: 30},
	}}
	if diff := cmp.Diff(want, Of(p).Admission); diff != "" {
		t.Errorf("defaults of strategy Lock (-want +got):\n%s", diff)
	}
	p.Spec.Admission.Lock = v1alpha1.AdmissionLock{
		TTLSeconds: 5, MaxWaitMillis: new(int64(0)), Retry: v1alpha1.AdmissionRetry{Mode: v1alpha1.JitterModeFixed, DelayMillis: 20},
	}
	want.Lock = &AdmissionLock{TTL: 5 * time.Second, Retry: BusyRetry{Fixed: true, Delay: 20 * time.Millisecond, JitterPercent: 30}}
	if diff := cmp.Diff(want, Of(p).Admission); diff != "" {
		t.Errorf("strategy Lock (-want +got):\n%s", diff)
	}
}

// mutations: admission, or admissionOf, that makes a map of all tenants.
func TestWhatAPolicySaysCostsNoMoreWithManyTenants(t *testing.T) {
	for name, total := range map[string]*v1alpha1.AdmissionTotal{"apart": nil, "with a total": {MaxConcurrentRuns: 5}} {
		allocs := func(tenants int) float64 {
			p := &v1alpha1.LockPolicy{}
			p.Spec.Admission.Total = total
			for i := range tenants {
				p.Spec.Admission.Tenants = append(p.Spec.Admission.Tenants, v1alpha1.TenantLimit{Name: strconv.Itoa(i), MaxConcurrentRuns: int32(i)})
			}
			return testing.AllocsPerRun(10, func() {
				if n := Of(p).Admission.Limit("0"); tenants > 0 && n != 0 {
					t.Errorf("%s: the limit is %d", name, n)
				}
			})
		}
		if none, many := allocs(0), allocs(1000); many > none {
			t.Errorf("%s: %.0f allocations with 1,000 tenants, %.0f with none", name, many, none)
		}
	}
}
