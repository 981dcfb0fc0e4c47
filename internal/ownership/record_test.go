// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// mutations: Since that writes where its own name is noted, that does not where another one is, or
// that writes without the version that it read, make this fail.
func TestTheRecordSaysSinceWhenARedisIsTheOneInUse(t *testing.T) {
	c, ns := server.Namespace(t, "own-")
	r := &Record{Reader: c, Writer: c, Namespace: ns, Log: logr.Discard()}
	note := func(name string, now, want int64) {
		t.Helper()
		if got, err := r.Since(t.Context(), name, now); err != nil || got != want {
			t.Errorf("%s at %d: since %d, %v; want %d", name, now, got, err, want)
		}
	}
	note("A", 100, 100)
	note("A", 200, 100)
	note("B", 50, 50) // of another clock
	note("A", 90, 90) // its clock was set back
	var l coordinationv1.Lease
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: RecordName}, &l); err != nil {
		t.Fatal(err)
	}
	if all, _, err := listLeases(t.Context(), c, ns); err != nil || len(all) != 0 || l.Spec.HolderIdentity != nil {
		t.Errorf("it is taken for a member: %v, %v", all, err)
	}
	l.Annotations[RedisSinceAnnotation] = "soon"
	if err := c.Update(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	note("A", 300, 300)
	if err := c.Delete(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	note("A", 400, 400)

	var all sync.WaitGroup
	got := make([]int64, 3)
	for i := range got { // all begin at once to use the same
		all.Go(func() {
			var err error
			if got[i], err = r.Since(t.Context(), "C", int64(500+i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got[0] != got[1] || got[1] != got[2] || got[0] < 500 {
		t.Errorf("they use it since %v", got)
	}
}

// mutation: Since that takes no answer for none makes this fail.
func TestWhatCannotBeNotedIsAnError(t *testing.T) {
	c, ns := server.Namespace(t, "own-")
	refused := errors.New("forbidden")
	for name, broken := range map[string]client.Client{
		"reads": interceptor.NewClient(c, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return refused
		}}),
		"writes": interceptor.NewClient(c, interceptor.Funcs{Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return refused }}),
	} {
		r := &Record{Reader: broken, Writer: broken, Namespace: ns, Log: logr.Discard()}
		if since, err := r.Since(t.Context(), "A", 100); since != 0 || !errors.Is(err, refused) || !strings.Contains(err.Error(), RecordName) {
			t.Errorf("%s: %d, %v", name, since, err)
		}
	}
}

// A session that ended may have had others use another Redis: each one begins a use of its own.
// mutation: decide that counts no use makes this fail.
func TestEachSessionBeginsAnotherUse(t *testing.T) {
	r := NewRedis("fresh")
	agreed(r, "first", "a")
	first, err := r.Named("first")
	r.heardOf(3, 0, "a", []saying{{member: "a"}}, func(string) bool { return false })
	if same, _ := r.Named("first"); err != nil || first == 0 || same != first {
		t.Errorf("use %d, then %d in the same session: %v", first, same, err)
	}
	r.lapsed()
	if same, err := r.Named("first"); same != first || err != nil {
		t.Errorf("use %d, %v before it is known whether others use another one", same, err)
	}
	r.wrote(r.saying(), 4)
	r.heardOf(5, 0, "a", []saying{{member: "a"}}, func(string) bool { return false })
	if next, err := r.Named("first"); next == first || err != nil {
		t.Errorf("use %d, %v in the next session, as before", next, err)
	}
}
