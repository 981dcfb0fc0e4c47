// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/syncopate-dev/syncopate/internal/lockmgr/redistest"
	"github.com/syncopate-dev/syncopate/internal/testenv"
)

const (
	// patience ends a hung spec; it is no expectation about speed.
	patience = time.Minute
	polling  = 10 * time.Millisecond

	// As in the shipped manifests.
	operatorNamespace = "syncopate-system"
)

// suite is what all specs share: one control plane with the shipped CRDs and rights, one Redis for
// the specs that do not harm it.
var suite struct {
	config *rest.Config
	client client.Client
	raw    *http.Client // tries nothing twice
	redis  *redistest.Server
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, append(testenv.Kept(), redistest.Leaks()...)...)
}

func TestWebhook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission webhook")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(GinkgoLogr)
	suite.config = testenv.APIServer(GinkgoTB(), testenv.CRDs()).Config
	var err error
	suite.client, err = client.New(suite.config, client.Options{Scheme: testScheme(GinkgoTB())})
	Expect(err).NotTo(HaveOccurred())
	suite.raw, err = rest.HTTPClientFor(suite.config)
	Expect(err).NotTo(HaveOccurred())

	for _, file := range []string{
		"manager/namespace.yaml", "rbac/service_account.yaml", "rbac/role.yaml", "rbac/role_binding.yaml", "webhook/self-managed/rbac.yaml",
	} {
		for _, o := range documents(testenv.Root("config", file)) {
			Expect(suite.client.Create(ctx, o)).To(Succeed(), file)
		}
	}
	suite.redis = redistest.Start(GinkgoTB())
}, NodeTimeout(3*time.Minute))

func documents(file string) []*unstructured.Unstructured {
	GinkgoHelper()
	data, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var objects []*unstructured.Unstructured
	for {
		o := &unstructured.Unstructured{}
		err := decoder.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred(), file)
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

// reply is an answer of the API server, as it came over the wire.
type reply struct {
	code   int
	header http.Header
	status metav1.Status
}

// cause is the reason to program against.
func (r reply) cause() string {
	if r.status.Details == nil || len(r.status.Details.Causes) == 0 {
		return ""
	}
	return string(r.status.Details.Causes[0].Type)
}
