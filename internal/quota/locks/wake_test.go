// SPDX-License-Identifier: Apache-2.0

package locks

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// options is a cache that notes how it is read.
type options struct {
	client.Client // none: nothing else may be asked
	of            []client.GetOption
}

func (o *options) Get(_ context.Context, _ client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	into.SetUID("u")
	o.of = opts
	return nil
}

// A run may have 1.5 MiB, and each that is woken is read from the cache.
//
// mutation: a read of the cache with a copy makes this fail.
func TestWhoIsWokenIsReadWithoutACopy(t *testing.T) {
	cache := &options{}
	c := &Controller{client: cache}
	there, err := c.there(t.Context(), types.NamespacedName{Namespace: "default", Name: "a"}, "u")
	if err != nil || !there || !slices.Contains(cache.of, client.GetOption(client.UnsafeDisableDeepCopy)) {
		t.Errorf("there: %t, %v; read with %v", there, err, cache.of)
	}
}
