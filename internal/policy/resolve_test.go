// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func lockPolicy(name string, age time.Duration, classes ...string) v1alpha1.LockPolicy {
	created := metav1.NewTime(time.Unix(1_000_000_000, 0).Add(-age))
	return v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created},
		Spec:       v1alpha1.LockPolicySpec{WorkloadClasses: classes},
	}
}

func TestResolveAndConflicts(t *testing.T) {
	tests := map[string]struct {
		policies  []v1alpha1.LockPolicy
		class     string
		want      string // name of the policy
		conflicts map[string]Conflict
	}{
		"without policies the defaults govern": {
			class: "batch", want: "",
		},
		"the policy that lists the class governs": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", 2, "web"), lockPolicy("b", 1, "batch")},
			class:    "batch", want: "b",
		},
		"a class that nobody lists gets the fallback": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", 2, "web"), lockPolicy("b", 1, "*")},
			class:    "batch", want: "b",
		},
		"a class that nobody lists gets the defaults without a fallback": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", 2, "web")},
			class:    "batch", want: "",
		},
		"a listed class comes before an older fallback": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", time.Hour, "*"), lockPolicy("b", 1, "batch")},
			class:    "batch", want: "b",
		},
		"the oldest wins a class": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", time.Minute, "batch"), lockPolicy("b", time.Hour, "web", "batch")},
			class:    "batch", want: "b",
			conflicts: map[string]Conflict{"a": {Class: "batch", Policy: "b"}},
		},
		"of equal age the first name wins": {
			policies: []v1alpha1.LockPolicy{lockPolicy("b", time.Hour, "batch"), lockPolicy("a", time.Hour, "batch")},
			class:    "batch", want: "a",
			conflicts: map[string]Conflict{"b": {Class: "batch", Policy: "a"}},
		},
		"a policy that lost one class governs its others": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", time.Hour, "web"), lockPolicy("b", time.Minute, "batch", "web")},
			class:    "batch", want: "b",
			conflicts: map[string]Conflict{"b": {Class: "web", Policy: "a"}},
		},
		"there is one fallback": {
			policies: []v1alpha1.LockPolicy{lockPolicy("a", time.Minute, "*"), lockPolicy("b", time.Hour, "*")},
			class:    "batch", want: "b",
			conflicts: map[string]Conflict{"a": {Class: "*", Policy: "b"}},
		},
		"of three the oldest wins, the others are told so": {
			policies: []v1alpha1.LockPolicy{
				lockPolicy("a", time.Minute, "batch"), lockPolicy("b", time.Hour, "batch"), lockPolicy("c", time.Second, "batch"),
			},
			class: "batch", want: "b",
			conflicts: map[string]Conflict{"a": {Class: "batch", Policy: "b"}, "c": {Class: "batch", Policy: "b"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.conflicts == nil {
				test.conflicts = map[string]Conflict{}
			}
			// Twice, since the order in which a cache lists policies must not matter.
			for range 2 {
				if got := Resolve(test.class, test.policies).Name; got != test.want {
					t.Errorf("class %s is governed by %q; want %q", test.class, got, test.want)
				}
				if got := OwnersOf(test.policies).Of(test.class); got != test.want {
					t.Errorf("class %s is that of %q; want %q", test.class, got, test.want)
				}
				if diff := cmp.Diff(test.conflicts, Conflicts(test.policies)); diff != "" {
					t.Errorf("conflicts (-want +got):\n%s", diff)
				}
				slices.Reverse(test.policies)
			}
		})
	}
}

// mutation: Governed that lists the classes of spec makes this fail.
func TestGoverned(t *testing.T) {
	tests := map[string]struct {
		policies []v1alpha1.LockPolicy
		want     map[string][]string // by policy
	}{
		"alone it governs all its classes, in their order": {
			[]v1alpha1.LockPolicy{lockPolicy("a", 1, "web", "*", "batch")},
			map[string][]string{"a": {"web", "*", "batch"}},
		},
		"what an older one lists is the older one's": {
			[]v1alpha1.LockPolicy{lockPolicy("a", time.Hour, "web"), lockPolicy("b", time.Minute, "batch", "web", "*")},
			map[string][]string{"a": {"web"}, "b": {"batch", "*"}},
		},
		"it may be left with nothing": {
			[]v1alpha1.LockPolicy{lockPolicy("a", time.Hour, "web"), lockPolicy("b", time.Minute, "web")},
			map[string][]string{"a": {"web"}, "b": nil},
		},
		"of equal age the first name has the class": {
			[]v1alpha1.LockPolicy{lockPolicy("b", time.Hour, "web"), lockPolicy("a", time.Hour, "web")},
			map[string][]string{"a": {"web"}, "b": nil},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got := map[string][]string{}
				for i := range test.policies {
					p := &test.policies[i]
					got[p.Name] = OwnersOf(test.policies).Governed(p)
					for _, class := range got[p.Name] {
						if by, also := Resolve(class, test.policies).Name, OwnersOf(test.policies).Of(class); by != p.Name || also != p.Name {
							t.Errorf("%s says that it governs %s, but %q does, or %q", p.Name, class, by, also)
						}
					}
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("governed classes (-want +got):\n%s", diff)
				}
				slices.Reverse(test.policies)
			}
		})
	}
}

// mutation: Conflicts, or Governed, that looks through all policies for each class.
func TestClassesOfManyPoliciesAreLookedUp(t *testing.T) {
	many := make([]v1alpha1.LockPolicy, 1000)
	for i := range many {
		many[i].Name = strconv.Itoa(i)
		many[i].CreationTimestamp.Time = time.Unix(int64(i), 0)
		for class := range 50 {
			many[i].Spec.WorkloadClasses = append(many[i].Spec.WorkloadClasses, fmt.Sprintf("class-%d-%d", i, class))
		}
	}
	last := &many[len(many)-1]
	last.Spec.WorkloadClasses[49] = "class-0-49"
	began := time.Now()
	if got := Conflicts(many); len(got) != 1 || got[last.Name].Policy != "0" {
		t.Errorf("%v", got)
	}
	owners := OwnersOf(many)
	for i := range many {
		if n := len(owners.Governed(&many[i])); n < 49 {
			t.Fatalf("%d classes", n)
		}
	}
	if took := time.Since(began); took > 10*time.Second { // it is some 20 ms
		t.Errorf("took %s", took)
	}
}
