package bus

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// EnsureStreams creates the streams that are absent. What exists with other settings is left as it is, logged, and returned as
// a *DriftError after all streams were looked at: somebody changed it on purpose, or the flags changed and an administrator has
// to follow. Other errors are *RetryError; a *ForeignError is in it if the streams are another installation's.
func (b *Bus) EnsureStreams(ctx context.Context) error {
	if !b.connected() {
		return b.retryable("create streams", ErrUnreachable)
	}
	var drifts []Drift
	for _, want := range b.streamConfigs() {
		got, err := b.ensureStream(ctx, want)
		if err != nil {
			return b.retryable("create stream "+want.Name, err)
		}
		drifts = append(drifts, streamDrift(want, got)...)
	}
	found, err := b.ensurePayloads(ctx)
	if err != nil {
		return b.retryable("create object store", err)
	}
	drifts = append(drifts, found...)
	b.owner.set(nil, b.clock.Now())
	if len(drifts) == 0 {
		return nil
	}
	for _, d := range drifts {
		b.log.Info("Stream differs from the configuration", "stream", d.Object, "field", d.Field, "want", d.Want, "got", d.Got)
	}
	return &DriftError{Drifts: drifts}
}

// repairStreams is EnsureStreams for the middle of an operation, where drift is no reason to fail.
func (b *Bus) repairStreams(ctx context.Context) error {
	err := b.EnsureStreams(ctx)
	if _, drift := errors.AsType[*DriftError](err); drift {
		return nil
	}
	return err
}

func (b *Bus) ensureStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.StreamConfig, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.inspect(want.Name, func() (jetstream.Stream, error) {
		s, err := b.js.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			s, err = b.js.CreateStream(ctx, want)
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another replica was faster, with other settings
			s, err = b.js.Stream(ctx, want.Name)
		}
		return s, err
	})
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return b.own(ctx, s.CachedInfo().Config)
}

func (b *Bus) streamConfigs() []jetstream.StreamConfig {
	c := b.config
	base := jetstream.StreamConfig{
		Storage:    jetstream.FileStorage,
		Replicas:   c.Replicas,
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardOld,
		Duplicates: c.DuplicateWindow,
		Metadata:   b.metadata(),
		MaxMsgSize: -1,
		// Direct gets are answered by any replica. Recovery must not ask one that lags behind.
		AllowDirect: false,
	}
	if c.MemoryStorage {
		base.Storage = jetstream.MemoryStorage
	}

	jobs := base
	jobs.Name, jobs.Subjects = b.names.JobsStream(), []string{b.names.Prefix + ".jobs.>"}
	jobs.Retention, jobs.Discard = jetstream.WorkQueuePolicy, jetstream.DiscardNew
	jobs.AllowMsgTTL = true // the deadline of the attempt
	jobs.MaxBytes = limit(c.MaxBytes.Jobs)

	results := base
	results.Name = b.names.ResultsStream()
	// One subject per partition, not one wildcard: a result for a partition that does not exist is refused to its sender
	// instead of lying where no consumer looks.
	for p := range protocol.Partitions {
		results.Subjects = append(results.Subjects, b.names.PartitionResults(p))
	}
	// A result is acknowledged when it is in its run's status; then nobody needs it any more.
	results.Retention = jetstream.WorkQueuePolicy
	results.Discard, results.MaxAge = jetstream.DiscardNew, resultsMaxAge
	results.MaxBytes, results.MaxMsgSize = limit(c.MaxBytes.Results), maxResultBytes

	dead := base
	dead.Name, dead.Subjects = b.names.DeadLettersStream(), []string{b.names.Prefix + ".deadletters.>"}
	dead.MaxAge, dead.MaxBytes, dead.Duplicates = deadLettersMaxAge, limit(c.MaxBytes.DeadLetters), deadLetterWindow

	control := base
	control.Name, control.Subjects = b.names.ControlStream(), []string{b.names.Prefix + ".control.*"}
	control.MaxAge, control.MaxBytes = controlMaxAge, limit(c.MaxBytes.Control)

	return []jetstream.StreamConfig{jobs, results, dead, control}
}

// largestResult is how many bytes a message of the stream of results may have: an administrator may have changed the stream.
func (b *Bus) largestResult(ctx context.Context) (int, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.js.Stream(ctx, b.names.ResultsStream())
	if err != nil {
		return 0, fmt.Errorf("look at the stream of results: %w", err)
	}
	if n := int(s.CachedInfo().Config.MaxMsgSize); n > 0 {
		return n, nil
	}
	return int(b.nc.MaxPayload()), nil
}

// limit gives JetStream's spelling of "unlimited".
func limit(n int64) int64 {
	if n <= 0 {
		return -1
	}
	return n
}

// streamDrift compares the settings that we chose; what the server fills in or an administrator adds is not ours to judge.
func streamDrift(want, got jetstream.StreamConfig) []Drift {
	slices.Sort(want.Subjects)
	slices.Sort(got.Subjects)
	return drift(want.Name, []setting{
		{"subjects", want.Subjects, got.Subjects},
		{"retention", want.Retention, got.Retention},
		{"discard", want.Discard, got.Discard},
		{"storage", want.Storage, got.Storage},
		{"num_replicas", want.Replicas, got.Replicas},
		{"max_age", want.MaxAge, got.MaxAge},
		{"max_bytes", want.MaxBytes, got.MaxBytes},
		{"max_msg_size", want.MaxMsgSize, got.MaxMsgSize},
		{"duplicate_window", want.Duplicates, got.Duplicates},
		{"allow_direct", want.AllowDirect, got.AllowDirect},
		{"allow_msg_ttl", want.AllowMsgTTL, got.AllowMsgTTL},
	})
}

type setting struct {
	field     string
	want, got any
}

func drift(object string, settings []setting) []Drift {
	var found []Drift
	for _, s := range settings {
		if want, got := fmt.Sprint(s.want), fmt.Sprint(s.got); want != got {
			found = append(found, Drift{Object: object, Field: s.field, Want: want, Got: got})
		}
	}
	return found
}
