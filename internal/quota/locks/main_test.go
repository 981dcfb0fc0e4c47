// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// apiServer is the API server that tests share.
var apiServer testenv.Shared

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	apiServer.Main(m)
}
