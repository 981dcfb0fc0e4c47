// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// mutations: enter that lets in a second one of a namespace, or more than Most; Work that keeps a
// place when there is no desk, or after it was left.
func TestFewPassesWaitForDesks(t *testing.T) {
	t.Parallel()
	var none error
	stood := 0
	a := &Aside{Most: 2, Clock: clock.RealClock{}, Desk: func(context.Context, string) (func() bool, func(), error) {
		return func() bool { return true }, func() { stood++ }, none
	}}
	work := func(namespace string) (leave func(), err error) {
		_, leave, err = a.Work(t.Context(), namespace)
		return leave, err
	}
	none = errors.New("the operator stops")
	if _, err := work("a"); !errors.Is(err, ErrLater) || !errors.Is(err, none) {
		t.Errorf("without a desk: %v", err)
	}
	none = nil
	leave, err := work("a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := work("a"); !errors.Is(err, ErrLater) {
		t.Errorf("a second one of a namespace: %v", err)
	}
	if _, err := work("b"); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := work("c"); !errors.Is(err, ErrLater) {
		t.Errorf("one too many: %v", err)
	}
	leave()
	if _, err := work("c"); err != nil || stood != 1 {
		t.Errorf("after one left: %v, %d stood up", err, stood)
	}
}

// A namespace has hundreds of long templates, and a pass over one of them comes all the time.
//
// mutations: next that has no line, or that forgets nobody; enter that leaves in line who
// has a place.
func TestNamespacesWaitForDesksInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &Aside{Most: 1, Clock: clock.RealClock{}, Desk: func(context.Context, string) (func() bool, func(), error) {
			return func() bool { return true }, func() {}, nil
		}}
		work := func(namespace string) func() {
			_, leave, err := a.Work(t.Context(), namespace)
			if err != nil {
				return nil
			}
			return leave
		}
		leave := work("many")
		if leave == nil || work("one") != nil || a.Free("one") {
			t.Fatal("both, or none, have the only place")
		}
		leave()
		if a.Free("many") || work("many") != nil {
			t.Error("it has the place again, before one that waits")
		}
		if leave = work("one"); leave == nil {
			t.Fatal("who waited has no place")
		}
		leave()
		work("gone") // is in line behind many, and does not come again
		time.Sleep(2 * forgotten)
		if leave = work("new"); leave == nil {
			t.Error("who does not come again is in the way")
		}
	})
}
