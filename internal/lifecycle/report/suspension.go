// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/syncopate-dev/syncopate/internal/lifecycle/facts"

// suspension is what is said of a suspended run: what suspends it, that it does, and what
// would resume it.
type suspension struct{ by, is, end string }

func suspensionOf(in *facts.Input) suspension {
	if in.Run.Spec.Suspend || in.Parent == nil {
		return suspension{by: "by spec.suspend", is: "spec.suspend is set", end: "spec.suspend is taken back"}
	}
	parent := "its parent run " + in.Parent.Claim.Name
	return suspension{by: "with " + parent, is: parent + " is suspended", end: parent + " is resumed"}
}
