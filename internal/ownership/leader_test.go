// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// leads is a Lease of leader election that somebody holds.
func leads(namespace string, seconds int32) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "leader"}}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new("old"), &seconds
	return l
}

// asks has a member look at the Lease of leader election.
func asks(o *Options) { o.LeaderLease = "leader" }

// A leader that died holds its Lease for good: each replica that starts would take it for one that
// lives, for the whole of its duration.
// mutation: chores without freeLead makes this fail.
func TestTheLeadOfALeaderThatDiedIsGivenUpForIt(t *testing.T) {
	w := newWorld(t)
	if err := w.client.Create(t.Context(), leads(w.ns, 1)); err != nil {
		t.Fatal(err)
	}
	a := w.newFellow("a", asks)
	a.run()
	w.eventually("the lead is free", func() bool {
		var stands coordinationv1.Lease
		err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: "leader"}, &stands)
		return err == nil && *stands.Spec.HolderIdentity == ""
	})
}

// Between the look at the Lease and the write a leader may have come back, or another one come.
// mutations: freeLead that names no version, and that does not ask whether this member owns the
// singletons, or for how long the Lease was seen unchanged, make this fail.
func TestTheLeadOfALeaderThatLivesIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		looks    []time.Duration // when it is looked at the Lease
		owner    bool
		back     bool // a leader renews the Lease after the last look
		wantFree bool
	}{
		"dead":                {looks: []time.Duration{0, time.Minute}, owner: true, wantFree: true},
		"seen once":           {looks: []time.Duration{time.Minute}, owner: true},
		"seen too short":      {looks: []time.Duration{0, time.Minute - 1}, owner: true},
		"back":                {looks: []time.Duration{0, time.Minute}, owner: true, back: true},
		"seen by another":     {looks: []time.Duration{0, time.Minute}},
		"looked at once more": {looks: []time.Duration{0, time.Minute, 2 * time.Minute}, owner: true, wantFree: true},
	} {
		held := leads("ns", 60)
		under, l := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(held).Build(), &leader{name: "leader"}
		for _, at := range c.looks {
			if _, err := l.holds(t.Context(), under, "ns", at); err != nil {
				t.Fatal(err)
			}
		}
		stands, key := &coordinationv1.Lease{}, client.ObjectKey{Namespace: "ns", Name: "leader"}
		if err := under.Get(t.Context(), key, stands); err != nil {
			t.Fatal(err)
		}
		if stands.Spec.RenewTime = new(metav1.NowMicro()); c.back && under.Update(t.Context(), stands) != nil {
			t.Fatal("it does not come back")
		}
		if err := l.free(t.Context(), under, c.owner); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := under.Get(t.Context(), key, stands); err != nil {
			t.Fatal(err)
		}
		if free := *stands.Spec.HolderIdentity == ""; free != c.wantFree {
			t.Errorf("%s: free: %t, want %t", name, free, c.wantFree)
		}
	}
}

// Others would give it partitions that it does not accept.
// mutation: cause without blocked makes this fail.
func TestWhoIsBlockedIsGivenNothing(t *testing.T) {
	w := newWorld(t)
	w.unowned()
	a := w.join("a")
	w.eventually("it owns all", owned(a))
	b := w.newFellow("b", func(o *Options) {
		asks(o)
		o.Client = interceptor.NewClient(o.Client, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if key.Name == "leader" {
					return errors.New("forbidden")
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
	})
	b.run()
	w.there(b)
	if moved := w.moves(func() bool { return a.count() == Partitions && b.Joined() }, a, b); moved != "" {
		t.Errorf("partitions moved to a member that is blocked: %s", moved)
	}
	var lease coordinationv1.Lease
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: LeasePrefix + "b"}, &lease); err != nil || lease.Annotations[UnfitAnnotation] != UnfitBlocked {
		t.Errorf("its Lease says %v (error %v)", lease.Annotations, err)
	}
}

// What a member has when it is blocked nobody works on, though its Lease lives. Where only
// it is blocked, others get it.
// mutations: publish that does not ask whether this member is blocked, and ownerOf that gives
// nothing away while it is, make this fail.
func TestWhatABlockedMemberHasIsUnownedUntilOthersHaveIt(t *testing.T) {
	w := newWorld(t)
	w.unowned()
	a := w.newFellow("a", asks)
	a.run()
	w.eventually("it owns all", owned(a))
	held := leads(w.ns, 60)
	if err := w.client.Create(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	w.eventually("it says that nobody works", func() bool { return a.count() == 0 && a.unowned() == Partitions })
	b := w.join("b") // does not know of the leader
	w.eventually("the other has all", owned(b))
	w.eventually("it says that all have an owner", func() bool { return a.unowned() == 0 })
	held.Spec.HolderIdentity = new("")
	if err := w.client.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	w.eventually("both have a part", divided(a, b))
}
