package workflowrun

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
)

const (
	// patience ends a hung spec; it is no expectation about speed.
	patience = time.Minute
	polling  = 5 * time.Millisecond
)

// suite is what all specs share: one control plane, one Redis for the specs that do not harm it, one record of all writes.
var suite struct {
	client   client.WithWatch
	statuses *statusWriter
	redis    *redistest.Server
	history  *history
}

func TestMain(m *testing.M) {
	// Connections to the API server are kept alive after the last request; nobody owns them.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

func TestWorkflowRun(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Run controller")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(GinkgoLogr)
	root := filepath.Join("..", "..", "..")
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
	Expect(err).NotTo(HaveOccurred(), "make controlplane builds the binaries")
	DeferCleanup(env.Stop)
	config.QPS = -1

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	suite.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	http, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	suite.statuses, err = newStatusWriter(config, scheme, http)
	Expect(err).NotTo(HaveOccurred())

	suite.redis = redistest.Start(GinkgoTB())
	suite.history = newHistory(context.WithoutCancel(ctx), suite.client)
	DeferCleanup(suite.history.stop)
}, NodeTimeout(2*time.Minute))
