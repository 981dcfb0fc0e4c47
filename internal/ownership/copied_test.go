// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/ownership/rules"
)

// copied puts the object of another cluster in the place of what stands, as a restore of its
// namespace does.
func (w *world) copied(e rules.Effective) {
	w.t.Helper()
	theirs, err := encode(w.ns, scope{"there", "syncopate"}, e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually("the copy is there", func() bool {
		err := w.client.Delete(w.t.Context(), &corev1.ConfigMap{ObjectMeta: theirs.ObjectMeta})
		if client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
		return w.client.Create(w.t.Context(), theirs.DeepCopy()) == nil
	})
}

// scopeNow is whose the object is; empty: there is none.
func (w *world) scopeNow() string {
	var o corev1.ConfigMap
	if err := w.client.Get(w.t.Context(), client.ObjectKey{Namespace: w.ns, Name: ObjectName}, &o); err != nil {
		return ""
	}
	d, err := parse(&o)
	if err != nil {
		w.t.Error(err)
	}
	return d.Installation
}

// No process of another cluster writes here, so an object that names one was copied.
// mutation: look that refuses what another installation wrote makes this fail.
func TestTheOwnersOfAnotherClusterThatWereCopiedAreWrittenAnew(t *testing.T) {
	w := newWorld(t)
	w.copied(someOwners())
	a := w.newFellow("a", func(o *Options) {
		o.InstallationNow = func(context.Context) (string, error) { return "here", nil }
	})
	a.run()
	w.eventually("it owns all", owned(a))
	w.copied(someOwners()) // a restore, while it works
	w.eventually("they are written anew", func() bool { return w.scopeNow() == "here" })
	w.eventually("it owns all again", owned(a))
}

// The API server of a process may have become that of another cluster: then what it
// believes to be its installation is wrong.
// mutations: look that takes each object of another installation for a copy, and one that ends
// where the question has no answer, make this fail.
func TestWhoIsOfAnotherClusterByNowEnds(t *testing.T) {
	w := newWorld(t)
	w.copied(someOwners())
	var asked atomic.Int64
	a := w.newFellow("a", func(o *Options) {
		o.InstallationNow = func(context.Context) (string, error) {
			if asked.Add(1) < 3 {
				return "", errors.New("no answer")
			}
			return "there", nil
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := a.Start(ctx)
	if !errors.Is(err, ErrOtherInstallation) || asked.Load() != 3 {
		t.Errorf("it ended after %d questions: %v", asked.Load(), err)
	}
	if is := w.scopeNow(); is != "there" {
		t.Errorf("the owners are those of %q", is)
	}
}

// mutation: decode with the same words for both makes this fail.
func TestWhoIsRefusedIsToldWhatToDo(t *testing.T) {
	o, err := encode("ns", scope{"cluster", "old"}, someOwners())
	if err != nil {
		t.Fatal(err)
	}
	_, err = decode(o, here)
	page, pageErr := os.ReadFile(filepath.Join("..", "..", "docs", "install.md"))
	if pageErr != nil || !strings.Contains(string(page), "\n## Another prefix, or another NATS\n") {
		t.Errorf("the page that it names has no such heading (error %v)", pageErr)
	}
	for _, want := range []string{`"old"`, `"syncopate"`, "ConfigMap ns/syncopate-ownership", "give all replicas", "docs/install.md, Another prefix, or another NATS"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
}
