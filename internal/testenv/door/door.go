// SPDX-License-Identifier: Apache-2.0

package door

import (
	"context"
	"testing"

	"k8s.io/utils/clock"
)

// Door is a proxy of a test.
type Door struct {
	*Proxy
	t testing.TB
}

// New is a door to a server at host:port, until the test ends. It is open at first.
func New(t testing.TB, server string) *Door {
	t.Helper()
	p, err := Start(t.Context(), server, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Shut)
	return &Door{Proxy: p, t: t}
}

// Open ends Shut.
func (d *Door) Open() {
	d.t.Helper()
	if err := d.Proxy.Open(context.WithoutCancel(d.t.Context())); err != nil {
		d.t.Error(err)
	}
}
