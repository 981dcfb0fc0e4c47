// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const (
	// MaxInlineOutputBytes is the largest output that a result may carry itself; a larger one goes
	// to the object store.
	MaxInlineOutputBytes = 64 << 10
	// MaxPayloadBytes is the largest output at all. The operator reads each one once, to check it.
	MaxPayloadBytes = 8 << 20

	digestPrefix = "sha256:"
)

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// ErrOutputRef is returned for a reference that does not name an output of its job. Not
// worth a retry.
var ErrOutputRef = errors.New("not a reference to an output of the job")

// OutputRef refers to an output in the object store Names.PayloadsBucket (a claim check): the JSON
// text of the output.
type OutputRef struct {
	Name   string `json:"name"`   // of the object: PayloadName
	Digest string `json:"digest"` // "sha256:" and 64 hexadecimal digits, of the object's bytes
	Size   int64  `json:"size"`   // of the object in bytes, at most MaxPayloadBytes
}

// NewOutputRef is the reference to an output of a job, given the output's bytes.
func NewOutputRef(id JobID, output []byte) OutputRef {
	digest := Digest(output)
	return OutputRef{Name: PayloadName(id, digest), Digest: digest, Size: int64(len(output))}
}

// PayloadName is the name of the object with an output: "<job id>/<hexadecimal digest>". The digest
// is in the name because a job may be done twice with different outputs, and the second one must
// not take the place of the first.
func PayloadName(id JobID, digest string) string {
	return id.String() + "/" + strings.TrimPrefix(digest, digestPrefix)
}

// PayloadRun returns the UID of the run to which an object of the store belongs.
func PayloadRun(name string) (runUID string, ok bool) {
	uid, _, ok := strings.Cut(name, "/")
	return uid, ok && uidPattern.MatchString(uid)
}

// Check says whether the reference may stand in a result of the job; its error wraps ErrOutputRef.
// Whether the object is there is another matter.
func (r OutputRef) Check(id JobID) error {
	switch {
	case !digestPattern.MatchString(r.Digest):
		return fmt.Errorf("%w: digest %.80q", ErrOutputRef, r.Digest)
	case r.Name != PayloadName(id, r.Digest):
		return fmt.Errorf("%w: name %.200q, expected %q", ErrOutputRef, r.Name, PayloadName(id, r.Digest))
	case r.Size < 0 || r.Size > MaxPayloadBytes:
		return fmt.Errorf("%w: size %d is not in 0..%d", ErrOutputRef, r.Size, MaxPayloadBytes)
	default:
		return nil
	}
}

// Digest is the digest of an output as references have it.
func Digest(output []byte) string {
	sum := sha256.Sum256(output)
	return digestPrefix + hex.EncodeToString(sum[:])
}

// PayloadsBucket is the name of the object store of large outputs.
func (n Names) PayloadsBucket() string { return n.Prefix + "-payloads" }
