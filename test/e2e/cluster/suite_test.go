// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

var (
	config  settings
	restCfg *rest.Config
	k8s     client.WithWatch
	core    kubernetes.Interface // for logs, which client has not
	logs    *logBook
)

func TestCluster(t *testing.T) {
	var err error
	if config, err = readSettings(); err != nil {
		t.Fatal(err)
	}
	if config.kubeconfig == "" {
		t.Skip("needs a cluster: make test-e2e, or E2E_KUBECONFIG")
	}
	RegisterFailHandler(Fail)
	EnforceDefaultTimeoutsWhenUsingContexts()
	SetDefaultEventuallyTimeout(eventTimeout)
	suite, report := GinkgoConfiguration()
	suite.LabelFilter = "!" + production
	if config.production {
		suite.LabelFilter = production
	}
	RunSpecs(t, "Syncopate on a cluster", suite, report)
}

var _ = BeforeSuite(func(ctx context.Context) {
	begin := time.Now()
	Expect(os.MkdirAll(filepath.Join(config.artifacts, "logs"), 0o755)).To(Succeed())
	var err error
	restCfg, err = clientcmd.BuildConfigFromFlags("", config.kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	restCfg.QPS = -1
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	k8s, err = client.NewWithWatch(restCfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	core, err = kubernetes.NewForConfig(restCfg)
	Expect(err).NotTo(HaveOccurred())

	refuseForeign(ctx)
	if !config.keep {
		DeferCleanup(uninstallAll, NodeTimeout(installTimeout))
	}
	logs = newLogBook(context.WithoutCancel(ctx), filepath.Join(config.artifacts, "logs"),
		operatorNS, helmNS, natsNS, redisNS, ledgerNS, workersNS)
	DeferCleanup(func() { logs.close() })
	if config.production {
		installProduction(ctx)
	} else {
		installDependencies(ctx)
		installOperator(ctx, config.operator)
	}
	AddReportEntry("installed in", since(begin))
}, NodeTimeout(installTimeout))

// In this order: from what a user does on the first day to taking everything away.
var _ = Describe("Syncopate", Ordered, ContinueOnFailure, func() {
	JustAfterEach(func(ctx context.Context) {
		if CurrentSpecReport().Failed() {
			dump(ctx)
		}
	}, NodeTimeout(specTimeout))

	Context("for its users", func() {
		userStories()
		approvalStories()
	})
	Context("for platform teams", func() {
		policyStories()
		permissionStories()
	})
	Context("when pods die", faultStories)
	Context("in its life on a cluster", func() {
		lifeStories()
		uninstallStories()
		helmStories()
	})
})

// One line for each spec; the rest of what it had to say is in junit.xml.
var _ = ReportAfterEach(func(r SpecReport) {
	fmt.Printf("%-8s %7s  %s\n", r.State, r.RunTime.Round(100*time.Millisecond), r.LeafNodeText)
	for _, e := range r.ReportEntries {
		fmt.Printf("%18s%s: %s\n", "", e.Name, e.StringRepresentation())
	}
})

// since is for figures that specs print.
func since(begin time.Time) string { return time.Since(begin).Round(100 * time.Millisecond).String() }
