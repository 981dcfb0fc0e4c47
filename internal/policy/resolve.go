// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"slices"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// anyClass stands in a policy for every class that no other policy lists.
const anyClass = "*"

// Conflict says which class a policy lists in vain, and who has it.
type Conflict struct {
	// Class is the first such class, in the order of the policy's spec.
	Class string
	// Policy is the name of the older policy that governs the class.
	Policy string
}

// Resolve is what governs the runs of a class that are in no canary: the oldest policy that lists
// it, else the oldest with "*", else Defaults.
func Resolve(class string, policies []v1alpha1.LockPolicy) Effective {
	return InForce(governing(class, policies))
}

// governing is the policy that governs the runs of a class; nil: the built-in defaults do.
func governing(class string, policies []v1alpha1.LockPolicy) *v1alpha1.LockPolicy {
	if p := owner(class, policies); p != nil {
		return p
	}
	return owner(anyClass, policies)
}

// Missing is the one of gone that would govern the runs of a class if it were still among policies;
// nil: none would. One that lists the class comes before one with "*", and else one that is there
// comes first: a policy that was renamed governs at once.
func Missing(class string, policies, gone []v1alpha1.LockPolicy) *v1alpha1.LockPolicy {
	for _, listed := range []string{class, anyClass} {
		if owner(listed, policies) != nil {
			return nil
		}
		if p := owner(listed, gone); p != nil {
			return p
		}
	}
	return nil
}

// Conflicts is, by name, the policies that list a class which an older policy governs.
func Conflicts(policies []v1alpha1.LockPolicy) map[string]Conflict {
	conflicts, owners := map[string]Conflict{}, OwnersOf(policies)
	for i := range policies {
		p := &policies[i]
		for _, class := range p.Spec.WorkloadClasses {
			if o := owners[class]; o.Name != p.Name {
				conflicts[p.Name] = Conflict{Class: class, Policy: o.Name}
				break
			}
		}
	}
	return conflicts
}

// Owners is the oldest policy that lists a class, by class. It is for whoever asks for many
// classes: 1,000 policies may list 50,000.
type Owners map[string]*v1alpha1.LockPolicy

// OwnersOf are the owners of all classes that policies list.
func OwnersOf(policies []v1alpha1.LockPolicy) Owners {
	owners := Owners{}
	for i := range policies {
		p := &policies[i]
		for _, class := range p.Spec.WorkloadClasses {
			if o := owners[class]; o == nil || older(p, o) < 0 {
				owners[class] = p
			}
		}
	}
	return owners
}

// Governed is the classes that p really governs, in the order of its spec: without those that
// belong to an older policy. p is among those whose owners these are.
func (o Owners) Governed(p *v1alpha1.LockPolicy) []string {
	var classes []string
	for _, class := range p.Spec.WorkloadClasses {
		if by := o[class]; by != nil && by.Name == p.Name {
			classes = append(classes, class)
		}
	}
	return classes
}

// Of is the name of the policy that governs the runs of a class; empty: the built-in defaults do.
func (o Owners) Of(class string) string {
	for _, listed := range []string{class, anyClass} {
		if by := o[listed]; by != nil {
			return by.Name
		}
	}
	return ""
}

// owner is the oldest policy that lists the class; nil if none does.
func owner(class string, policies []v1alpha1.LockPolicy) *v1alpha1.LockPolicy {
	var oldest *v1alpha1.LockPolicy
	for i := range policies {
		p := &policies[i]
		if slices.Contains(p.Spec.WorkloadClasses, class) && (oldest == nil || older(p, oldest) < 0) {
			oldest = p
		}
	}
	return oldest
}

// older orders by creation; by name within the same second, which is as fine as the API
// server's clock is.
func older(a, b *v1alpha1.LockPolicy) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}
