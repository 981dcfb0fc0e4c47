// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	maxRequests     = 64
	maxUserRequests = 8
	maxForm         = 64 << 10
	pageTime        = 20 * time.Second
	// policy lets a page use what the console serves itself, and nothing else.
	policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
	// fieldCSRF is the field of a form that says that the console made it.
	fieldCSRF = "csrf"
)

// guard refuses what must not be looked at, and says to browsers what pages may do.
func (s *Server) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // the address may have a token
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		live := strings.HasPrefix(r.URL.Path, s.Base+"/live/")
		switch {
		case !live:
			s.hurry(w, r)
		case r.ContentLength != 0: // nothing bounds how long it may come
			h.Set("Connection", "close")
			http.Error(w, "a stream takes no body", http.StatusBadRequest)
			return
		}
		if !s.known(r.Host) {
			http.Error(w, fmt.Sprintf("the console is not to be asked as %q", r.Host), http.StatusMisdirectedRequest)
			return
		}
		if err := origin.Check(r); err != nil {
			http.Error(w, "this form was not sent by the console", http.StatusForbidden)
			return
		}
		if live {
			next.ServeHTTP(w, r) // these have bounds of their own
			return
		}
		select {
		case s.places <- struct{}{}:
			defer func() { <-s.places }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests at a time", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hurry bounds how long a request may come, and its answer go. A body has to be there when the page
// has to be. What nobody has read of it is not waited for before the answer is written, as the
// connection is closed after it: else whoever sends half a form has a place for as long.
func (s *Server) hurry(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(s.Clock.Now().Add(2 * s.PageTime)) // not every writer has one
	if r.ContentLength == 0 {
		return // nothing is read but the end of the connection, which a deadline would be taken for
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	_ = c.SetReadDeadline(s.Clock.Now().Add(s.PageTime))
	w.Header().Set("Connection", "close")
}

// known says whether the console may be asked under a name.
func (s *Server) known(host string) bool {
	return slices.ContainsFunc(s.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
}

// errManyAsked is returned for a request of a user who has others under way.
var errManyAsked = errors.New("too many requests of one user at a time")

// errLate is returned for a form of which a part has not come for as long as a page may take.
var errLate = errors.New("the form has not come as a whole")

// errForged is returned for a form that the console did not make for this user.
var errForged = errors.New("the form is not of this console, or of one that was started anew since: go back, reload the page, and try again")

// genuine says whether the form of a POST is one that the user was given.
func (s *Server) genuine(v visit) error {
	switch err := v.ParseForm(); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errLate
	case err != nil:
		return fmt.Errorf("form: %w", err)
	}
	if !hmac.Equal([]byte(v.PostFormValue(fieldCSRF)), []byte(s.csrf(v.view.User))) {
		return errForged
	}
	return nil
}

// csrf is what the forms of a user have.
func (s *Server) csrf(user string) string {
	m := hmac.New(sha256.New, s.secret)
	m.Write([]byte(user))
	return hex.EncodeToString(m.Sum(nil))
}
