// SPDX-License-Identifier: Apache-2.0

package store

import (
	"reflect"
	"testing"
)

// What Redis has of holds is read, or an error; and what was read is written as it was.
func FuzzParseHolding(f *testing.F) {
	f.Add("00000000000000000012 7 ns/run ns/root 1 mutex:ns/m 2 gpu/a100")
	f.Add("1 x ns/run ns/root")
	f.Add("1 7 ns/run ns/root 1")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseHolding("u-1", text)
		if err != nil {
			return
		}
		written, err := h.text()
		if err != nil {
			return // it could not be asked for either
		}
		if again, err := parseHolding("u-1", written); err != nil || !reflect.DeepEqual(h, again) {
			t.Errorf("%q is %+v, and again %+v, %v", text, h, again, err)
		}
	})
}

// What Redis has of who waits is read, or an error; nothing makes the reader fail.
func FuzzParseWaiter(f *testing.F) {
	f.Add("2147483640.000001700000.00000000000000000012 ns/run ns/root - 1 1 0 mutex:ns/m")
	f.Add("2147483640.000001700000.00000000000000000012@000001700009 ns/run ns/root - 1 1 0 mutex:ns/m")
	f.Add("2147483647.9.1 ns/run ns/root LockDeadlock")
	f.Add("-1.1.1 a b - 1 1 1")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parseWaiter("u-1", text)
		if err == nil && (w.Ticket.ID != "u-1" || w.Ticket.Run == "" || w.Ticket.Tree == "") {
			t.Errorf("%q is %+v", text, w)
		}
	})
}

// A claim is read back as it was written.
func FuzzParseClaim(f *testing.F) {
	f.Add("uid ns/run hash 1700000000000")
	f.Add("uid")
	f.Add("  x")
	f.Fuzz(func(t *testing.T, text string) {
		c, _ := parseClaim(text)
		if again, until := parseClaim(c.value()); again != c || until != 0 {
			t.Errorf("%q is %+v, and again %+v", text, c, again)
		}
	})
}
