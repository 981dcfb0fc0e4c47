// SPDX-License-Identifier: Apache-2.0

package passes

import (
	"context"
	"errors"
	"testing"
)

// mutations: enter that lets in a second one of a namespace, or more than Most; Work that keeps a
// place when there is no desk, or after it was left.
func TestFewPassesWaitForDesks(t *testing.T) {
	t.Parallel()
	var none error
	stood := 0
	a := &Aside{Most: 2, Desk: func(context.Context, string) (func() bool, func(), error) {
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
