package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// installationKey is where the metadata of a stream names the installation whose it is.
const installationKey = "syncopate.dev/installation"

// ForeignError says that a stream belongs to another installation of operators. Both on one prefix would take each other's results for
// forged, and each other's jobs for those of deleted runs. Nothing is sent or taken. Retry: an administrator can change whose it is.
type ForeignError struct {
	Stream string
	Theirs string // the installation named by the stream
	Ours   string // Config.Installation
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("stream %s belongs to installation %s, and this one is %s: give each a --nats-prefix of its own, or, if the other one "+
		"is gone for good, take over its streams with --nats-take-over=%s", e.Stream, e.Theirs, e.Ours, e.Theirs)
}

// owner is what is known of whose the streams are.
type owner struct {
	asking sync.Mutex // held while asking the server: callers wait for one answer

	mu    sync.Mutex
	found ownership
}

// ownership is what was found out about the streams; zero: nothing yet.
type ownership struct {
	ours    bool
	foreign error     // why they are not
	at      time.Time // when that was found out
}

func (o *owner) get() ownership {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found
}

func (o *owner) set(foreign error, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found = ownership{ours: foreign == nil, foreign: foreign, at: now}
}

// usable says why NATS cannot be used: it is not there, or the streams are another installation's. Before the first use it makes sure
// that they are ours. Then watchStreams finds out, within streamCheck, that somebody took them over.
func (b *Bus) usable(ctx context.Context) error {
	if !b.reachable() {
		return ErrUnreachable
	}
	if b.config.Installation == "" {
		return nil
	}
	if known, err := b.ownerKnown(); known {
		return err
	}
	b.owner.asking.Lock()
	defer b.owner.asking.Unlock()
	if known, err := b.ownerKnown(); known { // somebody else asked meanwhile
		return err
	}
	return b.repairStreams(ctx)
}

// ownerKnown says whether it need not be asked now whose the streams are, and if so, why they are not ours.
func (b *Bus) ownerKnown() (known bool, foreign error) {
	o := b.owner.get()
	return o.ours || o.foreign != nil && b.clock.Since(o.at) < streamCheck, o.foreign
}

// check says whether a stream is another installation's, and remembers that. One that names none may be anybody's.
func (b *Bus) check(got jetstream.StreamConfig) error {
	theirs := got.Metadata[installationKey]
	if b.config.Installation == "" || theirs == "" || theirs == b.config.Installation || theirs == b.config.TakeOver {
		return nil
	}
	err := &ForeignError{Stream: got.Name, Theirs: theirs, Ours: b.config.Installation}
	b.owner.set(err, b.clock.Now())
	return err
}

// own makes sure that a stream is this installation's. One that names none, of an operator before there were names, or the one to take
// over from, becomes ours; its settings stay. Two who do so at the same time both believe it, until their next look at the stream.
func (b *Bus) own(ctx context.Context, got jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	if err := b.check(got); err != nil {
		return got, err
	}
	theirs := got.Metadata[installationKey]
	if b.config.Installation == "" || theirs == b.config.Installation {
		return got, nil
	}
	got.Metadata = maps.Clone(got.Metadata)
	if got.Metadata == nil {
		got.Metadata = map[string]string{}
	}
	maps.Copy(got.Metadata, b.metadata())
	s, err := b.js.UpdateStream(ctx, got)
	if err != nil {
		return got, fmt.Errorf("name the installation in its metadata: %w", err)
	}
	b.log.Info("Stream is this installation's from now on", "stream", got.Name, "installation", b.config.Installation, "before", theirs)
	return s.CachedInfo().Config, nil
}

// metadata is that of new streams.
func (b *Bus) metadata() map[string]string {
	if b.config.Installation == "" {
		return nil
	}
	return map[string]string{installationKey: b.config.Installation}
}

func isForeign(err error) bool {
	_, foreign := errors.AsType[*ForeignError](err)
	return foreign
}
