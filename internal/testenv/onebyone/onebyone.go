// SPDX-License-Identifier: Apache-2.0

// Package onebyone shows tests what an API server does with long lists: it gives them in pages, and
// who does not ask for the next page misses the rest.
package onebyone

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reader gives lists in pages of one item each, whatever page is asked for. All else is as what it
// reads from says.
type Reader struct{ client.Reader }

// From is a reader of pages of what another reader has.
func From(r client.Reader) Reader { return Reader{r} }

// List gives one item, and the place of the next one as the token of the next page.
func (r Reader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	at := 0
	if o.Continue != "" {
		var err error
		if at, err = strconv.Atoi(o.Continue); err != nil {
			return fmt.Errorf("token of a page: %w", err)
		}
	}
	o.Limit, o.Continue = 0, ""
	list.SetContinue("") // some have it from the page before
	if err := r.Reader.List(ctx, list, &o); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	if at+1 < len(all) {
		list.SetContinue(strconv.Itoa(at + 1))
	}
	return meta.SetList(list, all[min(at, len(all)):min(at+1, len(all))])
}
