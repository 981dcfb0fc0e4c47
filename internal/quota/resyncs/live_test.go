// SPDX-License-Identifier: Apache-2.0

package resyncs

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// mutations: Read that believes; one that doubts whatever has the name; one that takes an error of
// the cache for an absence. A Mark that reads live alone.
func TestRead(t *testing.T) {
	s := newSite(t)
	run := s.get()
	none := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("workflowruns").GroupResource(), "a")
	away := errors.New("away")
	answers := func(err error) client.WithWatch {
		return interceptor.NewClient(s.client, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return err
			},
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return err
			},
		})
	}
	for name, c := range map[string]struct {
		live, cache client.Reader
		uid         types.UID
		there       bool
		want        error
	}{
		"it is there":                       {live: s.client, cache: answers(none), uid: run.UID, there: true},
		"another is":                        {live: s.client, cache: s.client, uid: "other", there: true},
		"it is gone":                        {live: answers(none), cache: answers(none), uid: run.UID},
		"it is gone, and another was there": {live: answers(none), cache: s.client, uid: "other"},
		"the cache has it":                  {live: answers(none), cache: s.client, uid: run.UID, want: ErrDoubted},
		"the server is away":                {live: answers(away), cache: s.client, uid: run.UID, want: away},
		"the cache is":                      {live: answers(none), cache: answers(away), uid: run.UID, want: away},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Read(t.Context(), c.live, c.cache, s.name, c.uid)
			if !errors.Is(err, c.want) || (got != nil) != c.there {
				t.Errorf("%v, %v; want there: %t, %v", got, err, c.there, c.want)
			}
		})
	}
	s.marker.Live = answers(none)
	s.marker.Client = interceptor.NewClient(s.client, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return none
		},
	})
	if marked, err := s.marker.Mark(t.Context(), s.name, run.UID, "1"); marked != nil || !errors.Is(err, ErrDoubted) {
		t.Errorf("a mark: %v, %v; want a doubt", marked, err)
	}
}
