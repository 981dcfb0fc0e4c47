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
// server. It returns when ctx ends.
func (b *Bus) watchStreams(ctx context.Context) {
	ticker := b.clock.NewTicker(streamCheck)
	defer ticker.Stop()
	for {
		again := false
		select {
		case <-ctx.Done():
			return
		case <-b.losses.recheck:
			again = true
		case <-ticker.C():
		}
		for err := b.checkStreams(ctx); err != nil; err = b.checkStreams(ctx) {
			b.log.V(1).Info("Streams could not be looked at", "cause", err.Error())
			if !again || !b.wait(ctx, b.jittered(rebuildDelay)) {
				break
			}
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
	_, err := b.inspect(name, func() (jetstream.Stream, error) { return b.js.Stream(ctx, name) })
	return err
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
	if err == nil {
		l.judge(before, s.CachedInfo())
	}
	return s, err
}
