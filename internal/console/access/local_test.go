// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// mutation: Admit that compares only as many characters as are given makes this fail.
func TestTheTokenOfTheAddressIsAllOfIt(t *testing.T) {
	t.Parallel()
	l := NewLocal(nil)
	for path, want := range map[string]bool{l.Base() + "/runs": true, l.Base(): true, "/": false, "/runs": false, l.Base()[:10] + "/runs": false, l.Base() + "X/runs": false} {
		if _, err := l.Admit(httptest.NewRequest(http.MethodGet, path, nil)); (err == nil) != want {
			t.Errorf("%s: %v", path, err)
		}
	}
}
