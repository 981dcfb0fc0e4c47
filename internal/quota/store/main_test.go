// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Leaks()...) }
