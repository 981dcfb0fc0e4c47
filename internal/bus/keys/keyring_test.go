// SPDX-License-Identifier: Apache-2.0

package keys_test

import (
	"strings"
	"testing"

	"github.com/syncopate-dev/syncopate/internal/bus/bustest"
	"github.com/syncopate-dev/syncopate/internal/bus/keys"
)

func TestATokenAnswersOneJobOnly(t *testing.T) {
	oldKey := keys.Key{ID: "k0", Secret: []byte("another secret of 32 bytes......")}
	ring := keys.Keyring{Current: bustest.Ring().Current, Previous: oldKey}
	id, other := bustest.JobID(1), bustest.JobID(1)
	other.Attempt = 2
	good := ring.Sign(id)
	for name, c := range map[string]struct {
		token string
		want  bool
	}{
		"the token of the job":                    {good, true},
		"a token of the previous key":             {keys.Keyring{Current: oldKey}.Sign(id), true},
		"the token of another attempt":            {ring.Sign(other), false},
		"a token of an unknown key":               {keys.Keyring{Current: keys.Key{ID: "k1", Secret: []byte("a secret that nobody configured")}}.Sign(id), false},
		"the right hash under another key's name": {"k0" + good[2:], false},
		"a token with something behind":           {good + "A", false},
		"half a token":                            {good[:len(good)/2], false},
		"a key id alone":                          {"k1.", false},
		"nothing":                                 {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ring.Verify(id, c.token); got != c.want {
				t.Errorf("Verify(%q) = %t", c.token, got)
			}
		})
	}
	if strings.ContainsAny(good, " \r\n/+=") || !strings.HasPrefix(good, "k1.") {
		t.Errorf("token %q does not fit in a header", good)
	}
}

// mutation: no check for an empty secret makes this fail: anybody can sign with it.
func TestAnAbsentPreviousKeyVerifiesNothing(t *testing.T) {
	forged := keys.Keyring{Current: keys.Key{}}.Sign(bustest.JobID(1))
	if (keys.Keyring{Current: bustest.Ring().Current}).Verify(bustest.JobID(1), forged) {
		t.Error("a token signed with the empty secret is accepted")
	}
}
