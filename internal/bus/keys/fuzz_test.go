// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"testing"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Of all tokens only the one that was made for a job is its token; and keys that can be used make
// tokens that a header can carry.
func FuzzVerify(f *testing.F) {
	f.Add("k1", []byte("0123456789abcdef"), "k1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add("", []byte{}, ".")
	f.Add("a b", []byte("0123456789abcdef"), "")
	f.Add("k\n", []byte("0123456789abcdef"), "\x00")
	id := protocol.JobID{RunUID: "11111111-2222-3333-4444-555555555555", Step: "a", Item: protocol.NoItem, Attempt: 1}
	f.Fuzz(func(t *testing.T, name string, secret []byte, token string) {
		ring := Keyring{Current: Key{ID: name, Secret: secret}}
		if ring.Verify(id, token) && token != ring.Sign(id) {
			t.Errorf("%q is taken", token)
		}
		if ring.Check() == nil && !tokenPattern.MatchString(ring.Sign(id)) {
			t.Errorf("%q is no token", ring.Sign(id))
		}
	})
}
