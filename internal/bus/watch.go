package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// look asks for a look at the streams soon; it does not block.
func (l *losses) look() {
	select {
	case l.recheck <- struct{}{}:
	default:
	}
}

// watchStreams looks at the streams now and then, and after each reconnect until it has seen them: JetStream answers later than the
// server. It returns nil when ctx ends, and a *ForeignError when somebody took the streams over.
func (b *Bus) watchStreams(ctx context.Context) error {
	ticker := b.clock.NewTicker(streamCheck)
	defer ticker.Stop()
	for {
		again := false
		select {
		case <-ctx.Done():
			return nil
		case <-b.losses.recheck:
			again = true
		case <-ticker.C():
		}
		if err := b.lookUntilSeen(ctx, again); isForeign(err) {
			return err
		}
	}
}

// lookUntilSeen looks at the streams; if that fails and it is to be done again, then after pauses that grow, until it succeeds or ctx
// ends. It gives the error of the last look.
func (b *Bus) lookUntilSeen(ctx context.Context, again bool) error {
	for pause := rebuildDelay; ; pause = min(2*pause, streamCheck) {
		err := b.checkStreams(ctx)
		if err == nil || ctx.Err() != nil || isForeign(err) {
			return err
		}
		b.log.V(1).Info("Streams could not be looked at", "cause", err.Error())
		if again && pause == streamCheck {
			b.log.Info("Streams cannot be looked at since the connection to NATS is back", "cause", err.Error())
		}
		if !again || !b.wait(ctx, b.jittered(pause)) {
			return err
		}
	}
}

// checkStreams looks whether the streams are what they were, and makes those that are gone.
func (b *Bus) checkStreams(ctx context.Context) error {
	if !b.connected() {
		return ErrUnreachable
	}
	for _, name := range b.losses.watched {
		err := b.checkStream(ctx, name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = b.repairStreams(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Bus) checkStream(ctx context.Context, name string) error {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.inspect(name, func() (jetstream.Stream, error) { return b.js.Stream(ctx, name) })
	if err != nil {
		return err
	}
	return b.check(s.CachedInfo().Config)
}

// leaderless says whether a cluster answered that has no leader for the stream at the moment: then any server does, also one that lags
// behind, and nothing follows from what it lacks. The next look tells.
func leaderless(info *jetstream.StreamInfo) bool {
	return info.Cluster != nil && info.Cluster.Leader == ""
}

// inspect has ask get a stream from the server, and judges what it is.
func (b *Bus) inspect(name string, ask func() (jetstream.Stream, error)) (jetstream.Stream, error) {
	l := b.losses
	if l.marks[name] == nil { // the keys of the map never change
		return ask()
	}
	l.requests.Lock()
	defer l.requests.Unlock()
	before := l.before(name)
	s, err := ask()
	if err == nil && !leaderless(s.CachedInfo()) {
		l.judge(before, s.CachedInfo())
	}
	return s, err
}
