// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The metadata of a stream names whose it is: the installation, and the namespace of its operators.
// Versions from before the second know the first alone.
const (
	installationKey = "syncopate.dev/installation"
	homeKey         = "syncopate.dev/namespace"
)

// ClusterNamespace is a namespace that each cluster has from its first day to its last. Its UID
// stands for the cluster, and is the name of the installation there: one operator serves the
// whole of it.
const ClusterNamespace = "kube-system"

// claimAfter is for how long who was refused leaves streams that name nobody to the one before,
// which looks at them every streamCheck.
const claimAfter = time.Minute

// ForeignError says that a stream belongs to other operators: of another installation, or of
// another namespace of this one. Both on one prefix would take each other's results for forged, and
// those of two installations each other's jobs for those of deleted runs. Nothing is sent or taken.
// Retry: an administrator can change whose it is.
type ForeignError struct {
	Stream    string
	Neighbour bool   // Theirs and Ours are namespaces of one installation
	Theirs    string // the installation named by the stream
	Ours      string // Config.Installation
}

func (e *ForeignError) Error() string {
	if e.Neighbour {
		return fmt.Sprintf("stream %s belongs to the operator in namespace %s, and this one is in %s: one operator serves a cluster. Stop that one and delete "+
			"its namespace, or, if the namespace is to stay, take over with --nats-take-over=%s once it is stopped", e.Stream, e.Theirs, e.Ours, e.Theirs)
	}
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
	// nameless is since when no stream names anybody, of those that were foreign; zero: one does.
	nameless time.Time
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

// waits says why streams that name nobody are not to be taken yet: they were another's, who looks
// after them.
func (o *owner) waits(now time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.found.foreign == nil {
		return nil
	}
	if o.found.nameless.IsZero() {
		o.found.nameless = now
	}
	if now.Sub(o.found.nameless) >= claimAfter {
		return nil
	}
	o.found.at = now
	return o.found.foreign
}

// check says whether a stream is of other operators, and remembers that. One that names none may be
// anybody's.
func (c *Conn) check(ctx context.Context, got jetstream.StreamConfig) error {
	theirs, home := got.Metadata[installationKey], got.Metadata[homeKey]
	err := &ForeignError{Stream: got.Name, Theirs: theirs, Ours: c.config.Installation}
	switch {
	case c.config.Installation == "" || theirs == "":
		return nil
	case theirs == c.config.Installation:
		if atHome(c, home) || home == "" || home == c.config.TakeOver || c.config.HomeGone(ctx, home) {
			return nil
		}
		err = &ForeignError{Stream: got.Name, Neighbour: true, Theirs: home, Ours: c.config.Home}
	case theirs == c.config.TakeOver:
		return nil
	}
	c.owner.set(err, c.Clock.Now())
	return err
}

// atHome says whether a namespace is that of this operator.
func atHome(c *Conn, namespace string) bool {
	return c.config.Home == "" || namespace == c.config.Home
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

// HomeOf is the namespace of the operators whose a stream is, as it says; empty: it does not say
// it, or is not there.
func HomeOf(s *jetstream.StreamInfo) string {
	if s == nil {
		return ""
	}
	return s.Config.Metadata[homeKey]
}

// named says whether a stream that is not of others has our names.
func named(c *Conn, got jetstream.StreamConfig) bool {
	return c.config.Installation == "" || got.Metadata[installationKey] == c.config.Installation && atHome(c, got.Metadata[homeKey])
}

// metadata is that of new streams.
func (c *Conn) metadata() map[string]string {
	if c.config.Installation == "" {
		return nil
	}
	all := map[string]string{installationKey: c.config.Installation}
	if c.config.Home != "" {
		all[homeKey] = c.config.Home
	}
	return all
}

// IsForeign says whether an error is a *ForeignError.
func IsForeign(err error) bool {
	_, foreign := errors.AsType[*ForeignError](err)
	return foreign
}
