// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
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

	rows   *rest.RESTClient
	shared *shared
}

// shared is what all views of a cluster have in common. It is some hundred KiB, so that a view of
// its own for each user is small.
type shared struct {
	config *rest.Config
	http   *http.Client // nil: each view has its own
	scheme *runtime.Scheme
	mapper meta.RESTMapper
	plain  runtime.NegotiatedSerializer // for errors; rows are read as they are
	turns  *turns
}

// NewView connects with the rights of a config. base shares connections, if it is not nil.
func NewView(config *rest.Config, base *http.Client, user string) (*View, error) {
	scheme, mapper, err := reads.Kinds()
	if err != nil {
		return nil, err
	}
	errorsOnly := runtime.NewScheme()
	metav1.AddToGroupVersion(errorsOnly, schema.GroupVersion{Version: "v1"})
	s := &shared{config: config, http: base, scheme: scheme, mapper: mapper, plain: serializer.NewCodecFactory(errorsOnly).WithoutConversion(), turns: newTurns()}
	return s.view(config, user)
}

// As is the cluster as another user may see it.
func (v *View) As(who rest.ImpersonationConfig) (*View, error) {
	config := rest.CopyConfig(v.shared.config)
	config.Impersonate = who
	return v.shared.view(config, who.UserName)
}

func (s *shared) view(config *rest.Config, user string) (*View, error) {
	base := s.http
	if base == nil {
		var err error
		if base, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("API server: %w", err)
		}
	}
	c, err := client.New(config, client.Options{Scheme: s.scheme, Mapper: s.mapper, HTTPClient: base})
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	tables := rest.CopyConfig(config)
	tables.APIPath, tables.GroupVersion, tables.NegotiatedSerializer = "/apis", &v1alpha1.GroupVersion, s.plain
	rows, err := rest.RESTClientForConfigAndClient(tables, base)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	return &View{Client: c, User: user, rows: rows, shared: s}, nil
}
