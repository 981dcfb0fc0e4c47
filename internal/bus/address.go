// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"net/url"
	"strings"
)

// unreadable stands for an address that is not understood, so that it may have a secret anywhere.
const unreadable = "(unreadable)"

// WithoutUser is the URLs of servers, as Config has them, for people to read: without users, since
// one that has no password is a token.
func WithoutUser(urls string) string {
	all := strings.Split(urls, ",")
	for i, one := range all {
		all[i] = withoutUser(strings.TrimSpace(one))
	}
	return strings.Join(all, ",")
}

func withoutUser(address string) string {
	if !strings.Contains(address, "://") { // the library takes it for NATS, and url.Parse a user for a scheme
		address = "nats://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return unreadable
	}
	u.User = nil
	if shown := u.String(); !strings.Contains(shown, "@") {
		return shown
	}
	return unreadable // a password with a slash ends the host for url.Parse
}
