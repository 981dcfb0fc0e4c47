// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
)

// stepsEnd is status.StepsEnd. A run that cleans up, and does not have the revision that it
// follows, has no such end: how long its clean-up may take is in the revision.
func stepsEnd(d *draft) time.Time {
	if d.st.Ending != nil && d.in.Template.Missing != "" {
		return time.Time{}
	}
	return status.StepsEnd(d.run, &d.st)
}
