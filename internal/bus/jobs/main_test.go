// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
)

func TestMain(m *testing.M) {
	if natstest.Main() {
		return
	}
	goleak.VerifyTestMain(m, natstest.Leaks()...)
}
