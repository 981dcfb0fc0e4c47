// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/testenv"
)

// A file is objects of our kinds, or an error; never more objects than are judged.
func FuzzManifests(f *testing.F) {
	for _, name := range []string{"lockpolicy-strict.yaml", "diamond.yaml"} {
		data, err := os.ReadFile(testenv.Root("config", "samples", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	f.Add("apiVersion: syncopate.dev/v1alpha1\nkind: LockPolicy\nmetadata: {name: a}\nspec: {workloadClasses: [x], nothing: 1}\n")
	f.Add("---\n---\n{}\n")
	f.Add("&a [*a]")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Manifests(strings.NewReader(text))
		if len(all) > maxManifests {
			t.Errorf("%d objects, %v", len(all), err)
		}
		for _, o := range all {
			if o.GetObjectKind().GroupVersionKind().Kind == "" && err == nil {
				t.Errorf("an object of no kind: %T", o)
			}
		}
		if err != nil && errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
}

// INFO of a server that is something else is read as far as it makes sense.
func FuzzNodeOf(f *testing.F) {
	f.Add("redis_version:7.0.15\r\nrole:master\r\nconnected_slaves:1\r\nmaxmemory_policy:noeviction\r\n")
	f.Add("connected_slaves:x\naof_last_write_status:err")
	f.Fuzz(func(t *testing.T, text string) {
		if n := nodeOf("addr", text); n.Addr != "addr" || strings.ContainsAny(n.Version, "\n") {
			t.Errorf("%+v", n)
		}
	})
}
