// SPDX-License-Identifier: Apache-2.0

package payloads

import (
	"context"
	"encoding/base64"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/internal/bus"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Drop removes objects; that one is not there is success. Errors: *bus.RetryError.
//
// Both of an object's subjects are purged: the library's own way leaves a mark of each object
// behind, for ever.
func (s *Store) Drop(ctx context.Context, names []string) error {
	if len(names) == 0 {
		return nil
	}
	if err := s.conn.Usable(ctx); err != nil {
		return s.conn.Retryable("drop outputs", err)
	}
	stream, err := s.stream(ctx)
	if err != nil {
		return s.conn.Retryable("drop outputs", err)
	}
	for _, name := range names {
		if err := s.dropOne(ctx, stream, name); err != nil {
			return s.conn.Retryable("drop output", err)
		}
	}
	return nil
}

func (s *Store) dropOne(ctx context.Context, stream jetstream.Stream, name string) error {
	e, err := s.entry(ctx, name)
	if err != nil && !errors.Is(err, ErrUnusable) {
		return err
	}
	subjects := []string{s.conn.Names.PayloadEntry(name)}
	if err == nil && ownParts(name, e.NUID) { // first: while the object has its name, somebody will come back to it
		subjects = []string{s.conn.Names.PayloadChunks(e.NUID), s.conn.Names.PayloadEntry(name)}
	}
	for _, subject := range subjects {
		if err := s.purge(ctx, stream, subject); err != nil {
			return err
		}
	}
	return nil
}

// ownParts says whether parts are of the run of an object. Whoever may write in the store can make
// an entry that names those of another run, whose output would go with it. Parts that stay are
// loose, or not his.
func ownParts(name, nuid string) bool {
	run, ok := protocol.PayloadRun(name)
	return ok && strings.HasPrefix(nuid, protocol.PayloadNUID(run, ""))
}

// stream is that of the object store; nil: there is none. It costs a question.
func (s *Store) stream(ctx context.Context) (jetstream.Stream, error) {
	ctx, cancel := s.conn.Bounded(ctx)
	defer cancel()
	stream, err := s.conn.JetStream.Stream(ctx, s.conn.Names.PayloadsStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	return stream, err
}

// purge empties one subject of the object store. Nobody consumes from it, so nothing that waits is
// disturbed (ADR 0007).
func (s *Store) purge(ctx context.Context, stream jetstream.Stream, subject string) error {
	if stream == nil {
		return nil
	}
	ctx, cancel := s.conn.Bounded(ctx)
	defer cancel()
	err := stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// List lists the names of all objects, for whoever drops those of deleted runs. It reads the list
// of all subjects, so it is for now and then. Errors: *bus.RetryError.
func (s *Store) List(ctx context.Context) ([]string, error) {
	entries := s.conn.Names.PayloadEntry("")
	subjects, _, err := s.subjects(ctx, entries)
	if err != nil {
		return nil, s.conn.Retryable("list outputs", err)
	}
	s.entries.doubt(subjects)
	var names []string
	for _, subject := range subjects {
		// What is no object's is not ours to drop.
		if name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, entries)); err == nil {
			names = append(names, string(name))
		}
	}
	return names, nil
}

// Strays lists, as subjects, entries whose name is no run's, and that are at least so old by the
// server's clock: nobody reads them, and no run that ends takes them along. It looks at most at so
// many, which are others each time: each costs a question. Errors: *bus.RetryError.
func (s *Store) Strays(ctx context.Context, old time.Duration, most int) ([]string, error) {
	subjects, at, err := s.subjects(ctx, s.conn.Names.PayloadEntry(""))
	if err != nil {
		return nil, s.conn.Retryable("list stray outputs", err)
	}
	subjects = slices.DeleteFunc(subjects, s.ofRun)
	rand.Shuffle(len(subjects), func(i, j int) { subjects[i], subjects[j] = subjects[j], subjects[i] })
	var strays []string
	for _, subject := range subjects[:min(len(subjects), most)] {
		m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{LastFor: subject})
		if err != nil {
			return nil, s.conn.Retryable("look at a stray output", err)
		}
		if m != nil && at.Sub(m.Time) >= old {
			strays = append(strays, subject)
		}
	}
	return strays, nil
}

// ofRun says whether the subject of an entry is that of a run's output, whether there is such a run
// or not.
func (s *Store) ofRun(subject string) bool {
	name, err := base64.URLEncoding.DecodeString(strings.TrimPrefix(subject, s.conn.Names.PayloadEntry("")))
	if err != nil || s.conn.Names.PayloadEntry(string(name)) != subject { // else nobody finds it by its name
		return false
	}
	_, ok := protocol.PayloadRun(string(name))
	return ok
}

// DropStrays removes what Strays listed, and leaves alone what is a run's. An entry may name the
// parts of any object, so these stay: those that belong to no other are loose then. Errors:
// *bus.RetryError.
func (s *Store) DropStrays(ctx context.Context, strays []string) error {
	strays = slices.DeleteFunc(slices.Clone(strays), s.ofRun)
	return s.dropSubjects(ctx, "drop stray outputs", s.conn.Names.PayloadEntry(""), strays)
}

// subjects lists the subjects with a prefix that have messages, and says when that was by
// the server's clock. One that has a wildcard is left out: NATS takes messages under such names,
// and to purge one would purge all that match it.
func (s *Store) subjects(ctx context.Context, prefix string) (subjects []string, at time.Time, err error) {
	if err := s.conn.Usable(ctx); err != nil {
		return nil, at, err
	}
	ctx, cancel := s.conn.Bounded(ctx)
	defer cancel()
	stream, err := s.stream(ctx)
	if err != nil || stream == nil {
		return nil, at, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, at, err
	}
	subjects = make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		if literal(subject) {
			subjects = append(subjects, subject)
		}
	}
	return subjects, info.TimeStamp, nil
}

// LooseParts lists, as subjects, what is in the object store without belonging to an object,
// and has got no part for at least a time (0: any): uploads that were broken off, or that
// another upload of the same output overtook. Whether an upload is under way is told by the
// last of its parts: a slow one takes long, but not long between two parts. Both times are the
// server's. Parts may be left out for that time once more, and for a day if List is not called
// after their object went. Errors: *bus.RetryError.
func (s *Store) LooseParts(ctx context.Context, silent time.Duration) ([]string, error) {
	parts, err := s.looseParts(ctx, silent)
	if err != nil {
		return nil, s.conn.Retryable("list parts of outputs", err)
	}
	slices.Sort(parts)
	return parts, nil
}

// looseParts goes by what is remembered for whether there are any. Before parts go all entries are
// read. One such reading does for all parts that get old enough until the next one.
func (s *Store) looseParts(ctx context.Context, silent time.Duration) ([]string, error) {
	parts, at, err := s.subjects(ctx, s.conn.Names.PayloadChunks(""))
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	parts, known, err := s.unowned(ctx, parts, at, false) // after the parts: what has got its entry meanwhile is not loose
	if err != nil || len(parts) == 0 || known.tooSoon(at, silent) {
		return nil, err
	}
	parts, err = s.silent(ctx, parts, at, silent)
	if err != nil || len(parts) == 0 || known.serves(at, silent) {
		return parts, err
	}
	if parts, _, err = s.unowned(ctx, parts, at, true); err != nil {
		return nil, err
	}
	return s.silent(ctx, parts, at, silent) // the reading may take minutes, in which an upload may go on
}

// silent are those of the subjects of parts that, at a time of the server, had got no part for so
// long.
func (s *Store) silent(ctx context.Context, parts []string, at time.Time, long time.Duration) (silent []string, err error) {
	for _, p := range parts {
		m, err := s.conn.Read(ctx, s.conn.Names.PayloadsStream(), bus.Query{LastFor: p})
		if err != nil {
			return nil, err
		}
		if m != nil && at.Sub(m.Time) >= long {
			silent = append(silent, p)
		}
	}
	return silent, nil
}

// DropParts removes what LooseParts listed. Errors: *bus.RetryError.
func (s *Store) DropParts(ctx context.Context, parts []string) error {
	return s.dropSubjects(ctx, "drop parts of outputs", s.conn.Names.PayloadChunks(""), parts)
}

// dropSubjects purges those of some subjects that have a prefix, and no wildcard.
func (s *Store) dropSubjects(ctx context.Context, what, prefix string, subjects []string) error {
	if len(subjects) == 0 {
		return nil
	}
	if err := s.conn.Usable(ctx); err != nil {
		return s.conn.Retryable(what, err)
	}
	stream, err := s.stream(ctx)
	if err != nil {
		return s.conn.Retryable(what, err)
	}
	for _, subject := range subjects {
		if !strings.HasPrefix(subject, prefix) || !literal(subject) {
			continue
		}
		if err := s.purge(ctx, stream, subject); err != nil {
			return s.conn.Retryable(what, err)
		}
	}
	return nil
}

// literal says whether a subject stands for itself only.
func literal(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "*" || token == ">" {
			return false
		}
	}
	return true
}
