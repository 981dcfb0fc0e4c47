// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/devenv"
)

// Root is a path in the repository. A test runs in the folder of its package, which is
// below the root.
func Root(path ...string) string {
	root := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(root, "config", "crd", "bases")); err == nil {
			break
		}
		root = filepath.Join("..", root)
	}
	return filepath.Join(append([]string{root}, path...)...)
}

// CRDs is the folder with those of this repository.
func CRDs() string { return Root("config", "crd", "bases") }

// Scheme has the kinds of Kubernetes and those of this repository.
func Scheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add kinds of Kubernetes: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("add kinds: %w", err)
	}
	return scheme, nil
}

// Lazily starts servers that collect garbage less often. With the collector's usual aim, an API
// server that tests ask without a pause has a small heap, and collects it in a fifth of its time.
// What else this process starts meanwhile has the same aim.
func Lazily(start func() error) error {
	const name, aim = "GOGC", "400"
	if _, wanted := os.LookupEnv(name); wanted {
		return start()
	}
	if err := os.Setenv(name, aim); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	err := start()
	if unset := os.Unsetenv(name); unset != nil {
		return errors.Join(err, fmt.Errorf("unset %s: %w", name, unset))
	}
	return err
}

func startAPIServer(crds ...string) (server *envtest.Environment, err error) {
	err = Lazily(func() (err error) {
		server, err = devenv.StartAPIServer(devenv.Assets(Root()), crds...)
		return err
	})
	return server, err
}

// APIServer runs until the test or the suite ends. It has the CRDs of these folders.
func APIServer(tb testing.TB, crds ...string) *envtest.Environment {
	tb.Helper()
	server, err := startAPIServer(crds...)
	if err != nil {
		tb.Fatalf("%v; make controlplane gets the binaries", err)
	}
	tb.Cleanup(func() {
		if err := server.Stop(); err != nil {
			tb.Errorf("stop the API server: %v", err)
		}
	})
	return server
}

// Main runs the tests of a package while there is an API server, and ends the process. use gets it
// before they begin.
func Main(m *testing.M, use func(*envtest.Environment) error) {
	goleak.VerifyTestMain(shared{m, use}, Kept()...)
}

// shared implements goleak.TestingM.
type shared struct {
	m   *testing.M
	use func(*envtest.Environment) error
}

// Run runs the tests.
func (s shared) Run() int { return With(s.m, s.use, CRDs()) }

// With runs the tests of a package while there is an API server with the CRDs of these folders, and
// returns the exit code.
func With(m *testing.M, use func(*envtest.Environment) error, crds ...string) (code int) {
	server, err := startAPIServer(crds...)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%v; make controlplane gets the binaries\n", err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}()
	if err := use(server); err != nil {
		fmt.Fprintln(os.Stderr, "before the tests:", err)
		return 1
	}
	return m.Run()
}

// Kept are the goroutines that outlive all tests: those of connections to the API server, which are
// kept alive after the last request, of klog, of ginkgo, and of an API server that had to
// be started twice.
func Kept() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/internal/testing/process.pollURLUntilOK"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	}
}
