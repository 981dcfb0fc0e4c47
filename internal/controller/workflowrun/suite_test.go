// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const (
	// patience ends a hung spec; it is no expectation about speed.
	patience = time.Minute
	polling  = 5 * time.Millisecond
)

// matrix marks specs that go one way of the code many times: at each moment of a crash or of a
// wish of the user, or with each of a thousand results. The race detector has little to find
// there that the other specs do not show it, and makes each some times as long: hack/test.sh runs
// them without it.
var matrix = Label("matrix")

// suite is what all specs share: one control plane, one Redis for the specs that do not harm it,
// one record of all writes.
var suite struct {
	client   client.WithWatch
	statuses *StatusWriter
	redis    *redistest.Server
	history  *history
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, slices.Concat(testenv.Kept(), natstest.Leaks(), redistest.Leaks())...)
}

func TestWorkflowRun(t *testing.T) {
	RegisterFailHandler(Fail)
	config, reporter := GinkgoConfiguration()
	if labels := os.Getenv("SPEC_LABELS"); labels != "" { // packages without specs know no flags of Ginkgo
		config.LabelFilter = labels
	}
	RunSpecs(t, "Run controller", config, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(GinkgoLogr)
	config := testenv.APIServer(GinkgoTB(), testenv.CRDs()).Config
	scheme, err := testenv.Scheme()
	Expect(err).NotTo(HaveOccurred())
	suite.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	http, err := rest.HTTPClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	suite.statuses, err = NewStatusWriter(config, scheme, http)
	Expect(err).NotTo(HaveOccurred())

	suite.redis = redistest.Start(GinkgoTB())
	suite.history = newHistory(context.WithoutCancel(ctx), suite.client)
	DeferCleanup(suite.history.stop)
}, NodeTimeout(2*time.Minute))
