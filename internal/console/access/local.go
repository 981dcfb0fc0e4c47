// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/syncopate-dev/syncopate/internal/console/cluster"
)

// Local is a console for the one user who has started it. Its address begins with a token: other
// users of the machine can reach the port, and get nothing. There is no cookie, as browsers send
// these to every port of a machine.
type Local struct {
	view  *cluster.View
	token string
}

// NewLocal draws a token.
func NewLocal(view *cluster.View) *Local { return &Local{view, rand.Text()} }

// Base is what the addresses of the console begin with.
func (l *Local) Base() string { return "/" + l.token }

// Admit wants the token.
func (l *Local) Admit(r *http.Request) (*cluster.View, error) {
	given, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if subtle.ConstantTimeCompare([]byte(given), []byte(l.token)) != 1 {
		return nil, ErrUnknown
	}
	return l.view, nil
}
