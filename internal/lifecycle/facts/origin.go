// SPDX-License-Identifier: Apache-2.0

package facts

import "github.com/syncopate-dev/syncopate/api/v1alpha1"

// Origin is what was found of the run that spec.startFrom names. The zero value: it names none.
type Origin struct {
	Steps   []v1alpha1.StepStatus // those that are taken over
	Problem string                // why the run cannot start from that one; "": it can
}
