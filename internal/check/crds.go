// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
)

// maxNamed bounds what one message lists.
const maxNamed = 5

func judgeCRDs(f Facts) []Finding {
	if f.CRDs.Why != "" {
		return unreadAll(f.CRDs.Unread, CRDsThere, CRDsEqual)
	}
	const apply = "apply config/crd of the operator's release, before the operator itself"
	var there, equal []Finding
	for _, c := range f.CRDs.Items {
		switch {
		case c.Missing:
			there = append(there, CRDsThere.find(Failed, apply, "%s is not installed", c.Name))
		case !c.Established:
			there = append(there, CRDsThere.find(Failed, "kubectl get crd "+c.Name+" -o yaml says why", "%s is not established", c.Name))
		case len(c.Differs) > 0:
			equal = append(equal, CRDsEqual.find(Failed, apply+"; or take the plugin of that release",
				"%s is not that of this plugin: %s", c.Name, some(c.Differs)))
		}
	}
	return append(CRDsThere.orOK(there, "%d kinds are established", len(f.CRDs.Items)),
		CRDsEqual.orOK(equal, "the kinds that are there are those of this plugin")...)
}

// some lists the first of them, and how many more there are.
func some(all []string) string {
	if len(all) <= maxNamed {
		return strings.Join(all, ", ")
	}
	return strings.Join(all[:maxNamed], ", ") + ", ..." // the rest is in the object
}
