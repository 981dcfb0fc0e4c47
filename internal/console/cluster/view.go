// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/reads"
)

// View is a cluster as one user may see it.
type View struct {
	// Client reads and writes whole objects.
	Client client.Client
	// User says whose rights these are; "": those of the kubeconfig.
	User string
	// Identity is the user with all groups; two views of one identity have the same rights.
	Identity string

	rows *rest.RESTClient
}

// NewView connects with the rights of a config. base shares connections, if it is not nil.
func NewView(config *rest.Config, base *http.Client, user string) (*View, error) {
	scheme, mapper, err := reads.Kinds()
	if err != nil {
		return nil, err
	}
	if base == nil {
		if base, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("API server: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: base})
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	tables := rest.CopyConfig(config)
	tables.APIPath, tables.GroupVersion = "/apis", &v1alpha1.GroupVersion
	errorsOnly := runtime.NewScheme()
	metav1.AddToGroupVersion(errorsOnly, schema.GroupVersion{Version: "v1"})
	tables.NegotiatedSerializer = serializer.NewCodecFactory(errorsOnly).WithoutConversion()
	rows, err := rest.RESTClientForConfigAndClient(tables, base)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &View{Client: c, User: user, rows: rows}, nil
}
