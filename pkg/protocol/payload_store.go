// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// The object store of large outputs has the format of JetStream's object stores: an object is some
// chunks on one subject of a stream, and then an entry, which tells where they are, on the subject
// of its name.
//
// Invariant: an entry is published when the stream has all of its chunks. Who finds an entry can
// read the object.

// HeaderRollup with RollupSubject makes an entry take the place of the one before.
const (
	HeaderRollup  = "Nats-Rollup"
	RollupSubject = "sub"
)

// storeDigestPrefix stands before the digest of an entry, which is base64url with padding.
const storeDigestPrefix = "SHA-256="

// ErrPayloadEntry is returned for text that is no entry of the object store.
var ErrPayloadEntry = errors.New("not an entry of the object store")

// PayloadEntry says where the chunks of an object are. Entries that other programs write may
// have more members.
type PayloadEntry struct {
	Name    string `json:"name"`
	Bucket  string `json:"bucket"`
	NUID    string `json:"nuid"` // of the chunks' subject
	Size    int64  `json:"size"` // of all chunks, in bytes
	Chunks  uint64 `json:"chunks"`
	Digest  string `json:"digest,omitempty"`  // "SHA-256=" and the base64url of the digest, with padding
	Deleted bool   `json:"deleted,omitempty"` // the object was deleted, and its chunks are gone
}

// NewPayloadEntry is the entry of the object of a reference. The reference's digest has to
// be one: OutputRef.Check.
func (n Names) NewPayloadEntry(ref OutputRef, nuid string, chunks uint64) PayloadEntry {
	return PayloadEntry{
		Name: ref.Name, Bucket: n.PayloadsBucket(), NUID: nuid, Size: ref.Size, Chunks: chunks, Digest: storeDigest(ref.Digest),
	}
}

// DecodePayloadEntry reads an entry. Its error wraps ErrPayloadEntry.
func DecodePayloadEntry(body []byte) (PayloadEntry, error) {
	var e PayloadEntry
	var chunks wholeNumber
	err := readMembers(body,
		member{"name", &e.Name}, member{"bucket", &e.Bucket}, member{"nuid", &e.NUID}, member{"size", (*wholeNumber)(&e.Size)},
		member{"chunks", &chunks}, member{"digest", &e.Digest}, member{"deleted", &e.Deleted},
	)
	e.Chunks = uint64(max(0, chunks))
	switch {
	case err != nil:
		return PayloadEntry{}, fmt.Errorf("%w: %w", ErrPayloadEntry, err)
	case chunks < 0:
		return PayloadEntry{}, fmt.Errorf("%w: %d chunks", ErrPayloadEntry, chunks)
	case e.NUID == "" || strings.ContainsAny(e.NUID, "*> \t\r\n"): // a wildcard would stand for the chunks of others
		return PayloadEntry{}, fmt.Errorf("%w: nuid %.80q", ErrPayloadEntry, e.NUID)
	}
	return e, nil
}

// Is says whether the object is what the reference promises, as far as an entry tells.
func (e PayloadEntry) Is(ref OutputRef) bool {
	return !e.Deleted && e.Size == ref.Size && e.Digest == storeDigest(ref.Digest)
}

func storeDigest(digest string) string {
	sum, err := hex.DecodeString(strings.TrimPrefix(digest, digestPrefix))
	if err != nil {
		return "" // nothing has this digest
	}
	return storeDigestPrefix + base64.URLEncoding.EncodeToString(sum)
}

// PayloadsStream is the name of the stream of the object store.
func (n Names) PayloadsStream() string { return "OBJ_" + n.PayloadsBucket() }

// PayloadChunks is the subject of the chunks of one object.
func (n Names) PayloadChunks(nuid string) string { return "$O." + n.PayloadsBucket() + ".C." + nuid }

// PayloadNUID is the nuid of an object of a run: what is unique, a token, comes behind the run's
// UID. So what is left of an upload that never came to its entry can still be found by its run.
func PayloadNUID(runUID, unique string) string { return runUID + "." + unique }

// PayloadEntry is the subject of the entry of an object.
func (n Names) PayloadEntry(name string) string {
	return "$O." + n.PayloadsBucket() + ".M." + base64.URLEncoding.EncodeToString([]byte(name))
}

// CheckBytes says why data is not what the reference promises; its error wraps ErrOutputRef.
func (r OutputRef) CheckBytes(data []byte) error {
	if int64(len(data)) != r.Size {
		return fmt.Errorf("%w: the object has %d bytes, the reference says %d", ErrOutputRef, len(data), r.Size)
	}
	if digest := Digest(data); digest != r.Digest {
		return fmt.Errorf("%w: the object has digest %s, the reference says %.80q", ErrOutputRef, digest, r.Digest)
	}
	return nil
}

// CheckForm says whether the reference is one to an output of any job; its error
// wraps ErrOutputRef.
func (r OutputRef) CheckForm() error {
	id, err := ParseJobID(r.Name[:max(0, strings.LastIndexByte(r.Name, '/'))])
	if err != nil {
		return fmt.Errorf("%w: name %.200q: %w", ErrOutputRef, r.Name, err)
	}
	return r.Check(id)
}
