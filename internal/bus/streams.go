// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// EnsureStreams creates the streams that are absent. What exists with other settings is left as it
// is, logged, and returned as a *DriftError after all streams were looked at: somebody changed it
// on purpose, or the flags changed and an administrator has to follow. Only limits are
// given, and raised, and so are replicas, where that can be done; else that is drift, too. Other
// errors are *RetryError; a *ForeignError is in it if the streams are another installation's.
func (c *Conn) EnsureStreams(ctx context.Context) error {
	if !c.connected() {
		return c.Retryable("create streams", ErrUnreachable)
	}
	configs := c.streamConfigs()
	if err := survey(ctx, c, configs); err != nil {
		return err
	}
	// The larger ones first: once a server has promised all of its room, it makes no stream at all,
	// also none without a limit.
	drifts, err := ensureAll(ctx, c, configs[:2])
	if err != nil {
		return err
	}
	ofPayloads, err := c.ensurePayloads(ctx)
	if errors.Is(err, errRemoved) {
		ofPayloads, err = c.ensurePayloads(ctx) // after a wait
	}
	if err != nil {
		return c.Retryable("create object store", err)
	}
	ofOthers, err := ensureAll(ctx, c, configs[2:])
	if err != nil {
		return err
	}
	drifts = append(drifts, append(ofPayloads, ofOthers...)...)
	c.owner.set(nil, c.Clock.Now())
	if len(drifts) == 0 {
		return nil
	}
	for _, d := range drifts {
		c.Log.Info("Stream differs from the configuration", "stream", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
	return &DriftError{Drifts: drifts}
}

// RepairStreams is EnsureStreams for the middle of an operation, where drift is no reason to fail.
func (c *Conn) RepairStreams(ctx context.Context) error {
	err := c.EnsureStreams(ctx)
	if _, drift := errors.AsType[*DriftError](err); drift {
		return nil
	}
	return err
}

// ensureAll creates those of some streams that are absent.
func ensureAll(ctx context.Context, c *Conn, configs []jetstream.StreamConfig) (drifts []Drift, err error) {
	for _, want := range configs {
		got, err := c.ensureStream(ctx, want)
		if errors.Is(err, errRemoved) {
			got, err = c.ensureStream(ctx, want) // after a wait
		}
		if err != nil {
			return nil, c.Retryable("create stream "+want.Name, err)
		}
		drifts = append(drifts, streamDrift(want, got)...)
	}
	return drifts, nil
}

func (c *Conn) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	if err := awaitRemoval(ctx, c, want.Name); err != nil {
		return jetstream.StreamConfig{}, err
	}
	ctx, cancel := c.Bounded(ctx)
	defer cancel()
	s, err := c.inspect(want.Name, func() (jetstream.Stream, error) {
		s, err := askFor(ctx, c, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = c.JetStream.CreateStream(ctx, want)
			err = unbounded(want.MaxBytes, err, func() (err error) {
				without := want
				without.MaxBytes = limit(0)
				s, err = c.JetStream.CreateStream(ctx, without)
				return err
			})
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster, with other settings
			s, err = c.JetStream.Stream(ctx, want.Name)
		}
		return s, err
	})
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	c.removals.sawThere(want.Name)
	got, err := own(ctx, c, s)
	if err != nil {
		return got, err
	}
	got = enlarge(ctx, c, s, got, want)
	sawJobs(c, s.CachedInfo(), got.MaxBytes)
	return got, nil
}

func (c *Conn) streamConfigs() []jetstream.StreamConfig {
	config := c.config
	base := jetstream.StreamConfig{
		Storage:    jetstream.FileStorage,
		Replicas:   config.Replicas,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardOld,
		Duplicates: config.DuplicateWindow,
		Metadata:   c.metadata(),
		MaxMsgSize: -1,
		// Direct gets are answered by any replica. Recovery must not ask one that lags behind.
		AllowDirect: false,
	}
	if config.MemoryStorage {
		base.Storage = jetstream.MemoryStorage
	}

	jobs := base
	jobs.Name, jobs.Subjects = c.Names.JobsStream(), []string{c.Names.Prefix + ".jobs.>"}
	jobs.Retention, jobs.Discard = jetstream.WorkQueuePolicy, jetstream.DiscardNew
	jobs.AllowMsgTTL = true // the deadline of the attempt
	jobs.MaxBytes = limit(config.MaxBytes.Jobs)

	results := base
	results.Name = c.Names.ResultsStream()
	// One subject per partition, not one wildcard: a result for a partition that does not exist is
	// refused to its sender instead of lying where no consumer looks.
	for p := range protocol.Partitions {
		results.Subjects = append(results.Subjects, c.Names.PartitionResults(p))
	}
	// A result is acknowledged when it is in its run's status; then nobody needs it any more.
	results.Retention = jetstream.WorkQueuePolicy
	results.Discard, results.MaxAge = jetstream.DiscardNew, resultsMaxAge
	results.MaxBytes, results.MaxMsgSize = limit(config.MaxBytes.Results), maxResultBytes

	dead := base
	dead.Name, dead.Subjects = c.Names.DeadLettersStream(), []string{c.Names.Prefix + ".deadletters.>"}
	dead.MaxAge, dead.MaxBytes, dead.Duplicates = deadLettersMaxAge, limit(config.MaxBytes.DeadLetters), deadLetterWindow
	dead.MaxMsgsPerSubject = lettersPerSubject(config.MaxBytes.DeadLetters)

	control := base
	control.Name, control.Subjects = c.Names.ControlStream(), []string{c.Names.Prefix + ".control.*"}
	control.MaxAge, control.MaxBytes = controlMaxAge, limit(config.MaxBytes.Control)

	return []jetstream.StreamConfig{jobs, results, dead, control}
}

// limit gives JetStream's spelling of "unlimited".
func limit(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}
