// SPDX-License-Identifier: Apache-2.0

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

// ClusterNamespace is a namespace that each cluster has from its first day to its last. Its UID
// stands for the cluster, and is the name of the installation there: one operator serves the
// whole of it.
const ClusterNamespace = "kube-system"

// ForeignError says that a stream belongs to another installation of operators. Both on one prefix
// would take each other's results for forged, and each other's jobs for those of deleted runs.
// Nothing is sent or taken. Retry: an administrator can change whose it is.
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

// check says whether a stream is another installation's, and remembers that. One that names none
// may be anybody's.
func (c *Conn) check(got jetstream.StreamConfig) error {
	theirs := got.Metadata[installationKey]
	if c.config.Installation == "" || theirs == "" || theirs == c.config.Installation || theirs == c.config.TakeOver {
		return nil
	}
	err := &ForeignError{Stream: got.Name, Theirs: theirs, Ours: c.config.Installation}
	c.owner.set(err, c.Clock.Now())
	return err
}

// Installation is whose the streams are, as they say; empty: they do not say it, or are not there.
func (c *Conn) Installation(ctx context.Context) (string, error) {
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	name := c.Names.JobsStream()
	s, err := c.JetStream.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return "", nil
	case err != nil:
		return "", c.Retryable("stream "+name, err)
	}
	return InstallationOf(s), nil
}

// InstallationOf is whose a stream is, as it says; empty: it does not say it.
func InstallationOf(s jetstream.Stream) string {
	return s.CachedInfo().Config.Metadata[installationKey]
}

// own makes sure that a stream is this installation's. One that names none, of an operator before
// there were names, or the one to take over from, becomes ours; its settings stay. Two who do so at
// the same time both believe it, until their next look at the stream.
func (c *Conn) own(ctx context.Context, s jetstream.Stream) (jetstream.StreamConfig, error) {
	got := s.CachedInfo().Config
	if err := c.check(got); err != nil {
		return got, err
	}
	theirs := got.Metadata[installationKey]
	if c.config.Installation == "" || theirs == c.config.Installation {
		return got, nil
	}
	named, err := edit(ctx, c, s, func(ours *jetstream.StreamConfig) {
		ours.Metadata = maps.Clone(ours.Metadata)
		if ours.Metadata == nil {
			ours.Metadata = map[string]string{}
		}
		maps.Copy(ours.Metadata, c.metadata())
	})
	if err != nil {
		return got, fmt.Errorf("name the installation in its metadata: %w", err)
	}
	c.Log.Info("Stream is this installation's from now on", "stream", got.Name, "installation", c.config.Installation, "before", theirs)
	return named, nil
}

// metadata is that of new streams.
func (c *Conn) metadata() map[string]string {
	if c.config.Installation == "" {
		return nil
	}
	return map[string]string{installationKey: c.config.Installation}
}

// IsForeign says whether an error is a *ForeignError.
func IsForeign(err error) bool {
	_, foreign := errors.AsType[*ForeignError](err)
	return foreign
}
