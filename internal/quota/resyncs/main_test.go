// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server that all tests share.
var server testenv.Shared

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	server.Main(m)
}
