// SPDX-License-Identifier: Apache-2.0

// Package likecache shows tests what a list from the cache of controller-runtime costs: it copies
// each object, or with UnsafeDisableDeepCopy none.
package likecache

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Client lists what it has. It does nothing else.
type Client struct {
	client.Client

	Objects []runtime.Object
}

// List gives all that it has.
func (c Client) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	all := make([]runtime.Object, 0, len(c.Objects))
	for _, one := range c.Objects {
		if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
			one = one.DeepCopyObject()
		}
		all = append(all, one)
	}
	return meta.SetList(list, all)
}
