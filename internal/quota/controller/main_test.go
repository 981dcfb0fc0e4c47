// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// server is the API server that all tests share; each begins with no policies and no runs.
var server struct {
	config *rest.Config
	scheme *runtime.Scheme
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	testenv.Main(m, func(s *envtest.Environment) (err error) {
		server.config = s.Config
		server.scheme, err = testenv.Scheme()
		return err
	})
}
