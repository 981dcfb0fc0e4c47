// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"testing"

	lifecycle "github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// mutation: namespaceOf without one of its annotations makes this fail.
func TestTheNamespacePermitsWhatVerifyUses(t *testing.T) {
	const name = "syncopate-verify-x"
	may := lifecycle.ResolvePermits(namespaceOf(name).Annotations, true)
	if !may.Class(name) || !may.Topic(name) || may.Class("another") || may.Topic("another") {
		t.Errorf("it permits %+v", may)
	}
}
