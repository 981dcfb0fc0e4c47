// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// minSecretBytes is the least length of a secret: that of the hash's output is what RFC 2104
// recommends, half of it is still out of reach of guessing.
const minSecretBytes = 16

// idPattern keeps out of a token what a header cannot carry, and the dot that ends the id.
var idPattern = regexp.MustCompile(`^[!-\-/-~]{1,64}$`)

// tokenPattern is what a token looks like, whatever its key.
var tokenPattern = regexp.MustCompile(`^[!-\-/-~]{1,64}\.[A-Za-z0-9_-]{43}$`)

// Key signs job ids.
type Key struct {
	ID     string // 1 to 64 printable ASCII characters without space and dot; public
	Secret []byte // at least 16 bytes
}

// Keyring signs with Current and accepts Current and Previous, so that the key can be rotated while
// jobs are under way.
type Keyring struct{ Current, Previous Key }

// Sign makes the token of a job: "<key id>.<base64url(HMAC-SHA256(secret, job id))>". Only who got
// the job can answer it.
func (k Keyring) Sign(id protocol.JobID) string { return k.Current.sign(id) }

// Verify tells whether token was made for id by the current or the previous key, in time that does
// not depend on the secrets.
func (k Keyring) Verify(id protocol.JobID, token string) bool {
	current := k.Current.verify(id, token)
	previous := k.Previous.verify(id, token)
	return current || previous
}

// Check says why the keys cannot be used: bus.ErrConfig. There need not be a previous key, but half
// of one is a mistake.
func (k Keyring) Check() error {
	if err := k.Current.check(); err != nil {
		return fmt.Errorf("current key: %w", err)
	}
	if k.Previous.ID == "" && len(k.Previous.Secret) == 0 {
		return nil
	}
	if err := k.Previous.check(); err != nil {
		return fmt.Errorf("previous key: %w", err)
	}
	return nil
}

func (k Key) check() error {
	if !idPattern.MatchString(k.ID) {
		return fmt.Errorf("%w: key id %q must be 1 to 64 printable characters without spaces, line ends and dots", bus.ErrConfig, k.ID)
	}
	if len(k.Secret) < minSecretBytes {
		return fmt.Errorf("%w: secret of key %q has %d bytes, need %d", bus.ErrConfig, k.ID, len(k.Secret), minSecretBytes)
	}
	return nil
}

func (k Key) sign(id protocol.JobID) string {
	mac := hmac.New(sha256.New, k.Secret)
	_, _ = mac.Write([]byte(id.String())) // a hash never fails
	return k.ID + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// verify compares the whole text, so that a second spelling of the same base64 is no second token.
func (k Key) verify(id protocol.JobID, token string) bool {
	// An absent key must not verify what anybody could sign with an empty secret.
	return len(k.Secret) > 0 && hmac.Equal([]byte(k.sign(id)), []byte(token))
}
