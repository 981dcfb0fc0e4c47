package controller

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// server is the API server that all tests share; each begins with no policies and no runs.
var server struct {
	config *rest.Config
	scheme *runtime.Scheme
}

func TestMain(m *testing.M) {
	// Connections to the API server are kept alive after the last request; nobody owns them.
	log.SetLogger(logr.Discard())
	goleak.VerifyTestMain(withServer{m},
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

// withServer runs the tests while there is an API server.
type withServer struct{ m *testing.M }

// Run implements goleak.TestingM.
func (w withServer) Run() int {
	root := filepath.Join("..", "..")
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		assets = filepath.Join(root, "bin", "k8s")
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join(root, "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	defer func() { // also when only a part of it was started
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the API server (make controlplane builds it):", err)
		return 1
	}
	config.QPS = -1
	server.config, server.scheme = config, runtime.NewScheme()
	if err := v1alpha1.AddToScheme(server.scheme); err != nil {
		fmt.Fprintln(os.Stderr, "build the scheme:", err)
		return 1
	}
	return w.m.Run()
}
