package bus

import (
	"context"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// DropPayloads removes objects; that one is not there is success. Errors: *RetryError.
//
// Both of an object's subjects are purged: the library's own way leaves a mark of each object behind, for ever.
func (b *Bus) DropPayloads(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := b.usable(ctx); err != nil {
		return b.retryable("drop outputs", err)
	}
	for _, name := range names {
		e, err := b.payloadEntry(ctx, name)
		if err != nil && !errors.Is(err, ErrPayloadUnusable) {
			return b.retryable("drop output", err)
		}
		subjects := []string{b.names.PayloadEntry(name)}
		if err == nil { // its parts first: while the object has its name, somebody will come back to it
			subjects = []string{b.names.PayloadChunks(e.NUID), b.names.PayloadEntry(name)}
		}
		for _, s := range subjects {
			if err := b.purgePayload(ctx, s); err != nil {
				return b.retryable("drop output", err)
			}
		}
	}
	return nil
}

// purgePayload empties one subject of the object store. Nobody consumes from it, so nothing that waits is disturbed (ADR 0007).
func (b *Bus) purgePayload(ctx context.Context, subject string) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// Payloads lists the names of all objects, for whoever drops those of deleted runs. It reads the list of all subjects, so it is
// for now and then. Errors: *RetryError.
func (b *Bus) Payloads(ctx context.Context) ([]string, error) {
	entries := b.names.PayloadEntry("")
	subjects, _, err := b.payloadSubjects(ctx, entries)
	if err != nil {
		return nil, b.retryable("list outputs", err)
	}
	var names []string
	for _, s := range subjects {
		// What is no object's is nobody's to drop.
		if name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(s, entries)); err == nil {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// payloadSubjects lists the subjects with a prefix that have messages, and says when that was by the server's clock.
func (b *Bus) payloadSubjects(ctx context.Context, prefix string) (subjects []string, at time.Time, err error) {
	if err := b.usable(ctx); err != nil {
		return nil, at, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, at, nil
	}
	if err != nil {
		return nil, at, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, at, err
	}
	subjects = make([]string, 0, len(info.State.Subjects))
	for s := range info.State.Subjects {
		subjects = append(subjects, s)
	}
	return subjects, info.TimeStamp, nil
}

// LooseParts lists, as subjects, what is in the object store without belonging to an object, and has got no part for at least a time
// (0: any): uploads that were broken off, or that another upload of the same output overtook. Whether an upload is under way is told by
// the last of its parts: a slow one takes long, but not long between two parts. Both times are the server's. Errors: *RetryError.
func (b *Bus) LooseParts(ctx context.Context, silent time.Duration) ([]string, error) {
	loose, at, err := b.looseParts(ctx)
	if err != nil {
		return nil, b.retryable("list parts of outputs", err)
	}
	var parts []string
	for subject, last := range loose {
		if at.Sub(last) >= silent {
			parts = append(parts, subject)
		}
	}
	slices.Sort(parts)
	return parts, nil
}

// looseParts are the subjects of parts that belong to no object, with when the last part came, and when the server was asked.
func (b *Bus) looseParts(ctx context.Context) (loose map[string]time.Time, at time.Time, err error) {
	parts, at, err := b.payloadSubjects(ctx, b.names.PayloadChunks(""))
	if err != nil || len(parts) == 0 {
		return nil, at, err
	}
	owned, err := b.ownedParts(ctx) // after the parts: what has got its entry meanwhile is not loose
	if err != nil {
		return nil, at, err
	}
	loose = map[string]time.Time{}
	for _, p := range parts {
		if owned[p] {
			continue
		}
		m, err := b.leaderGet(ctx, b.names.PayloadsStream(), getRequest{LastFor: p})
		switch {
		case err != nil:
			return nil, at, err
		case m != nil:
			loose[p] = m.Time
		}
	}
	return loose, at, nil
}

// ownedParts are the subjects of the parts of objects.
func (b *Bus) ownedParts(ctx context.Context) (map[string]bool, error) {
	names, err := b.Payloads(ctx)
	if err != nil {
		return nil, err
	}
	owned := make(map[string]bool, len(names))
	for _, name := range names {
		e, err := b.payloadEntry(ctx, name)
		switch {
		case err == nil:
			owned[b.names.PayloadChunks(e.NUID)] = true
		case !errors.Is(err, ErrPayloadUnusable):
			return nil, err
		}
	}
	return owned, nil
}

// DropParts removes what LooseParts listed. Errors: *RetryError.
func (b *Bus) DropParts(ctx context.Context, parts []string) error {
	if len(parts) == 0 {
		return nil
	}
	if err := b.usable(ctx); err != nil {
		return b.retryable("drop parts of outputs", err)
	}
	for _, p := range parts {
		if !strings.HasPrefix(p, b.names.PayloadChunks("")) {
			continue // only what LooseParts lists
		}
		if err := b.purgePayload(ctx, p); err != nil {
			return b.retryable("drop parts of outputs", err)
		}
	}
	return nil
}
