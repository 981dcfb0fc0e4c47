// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/internal/devenv"
)

var (
	errNoKind = errors.New("no such kind of harm")
	errGone   = errors.New("the process that wants harm is gone")
)

// DoHarm is the life of a process that does harm, by the orders that it finds among its variables:
// until it is told that it is enough, or its input ends. It talks with the process that began it.
func DoHarm(ctx context.Context, in io.Reader, out io.Writer) error {
	var told orders
	if err := json.Unmarshal([]byte(os.Getenv(OrdersEnv)), &told); err != nil {
		return fmt.Errorf("read orders: %w", err)
	}
	kinds, err := told.kinds()
	if err != nil {
		return err
	}
	d := &dialogue{words: json.NewEncoder(out), changed: make(chan error), enough: make(chan struct{}), gone: make(chan struct{})}
	s := &Scene{Name: told.Scene, nats: told.NATS, redisAddr: told.Redis, change: d.change}
	if s.Client, err = clientOf(told.Kubeconfig); err != nil {
		return err
	}
	defer func() { _ = s.leave() }() // the process ends
	if err := s.connect(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		defer stop() // also while harm is not under way yet
		d.listen(in)
	}()
	if !told.Dose.Calm { // which has its own pace
		d.apart = leastApart(kinds)
	}
	found, err := d.play(ctx, s, told.Dose.Size, kinds)
	return d.say(line{Word: over, Finding: found, Error: textOf(err)})
}

func (o orders) kinds() ([]Kind, error) {
	var kinds []Kind
	all := append(Kinds(), LongSpecs(), HotRun())
	for _, name := range o.Kinds {
		i := slices.IndexFunc(all, func(k Kind) bool { return k.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q", errNoKind, name)
		}
		k := all[i]
		if o.Dose.Calm {
			k, _ = k.Calm()
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// leastApart is the time between two changes of owner beside that with which some
// kinds are compared.
func leastApart(kinds []Kind) (least time.Duration) {
	for _, k := range kinds {
		if every, changes := changesEvery[k.Name]; changes && (least == 0 || every < least) {
			least = every
		}
	}
	return least
}

func clientOf(kubeconfig string) (client.WithWatch, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1 // as the clients of the process that began it
	return devenv.Client(config)
}

// dialogue is the side of the process that does harm.
type dialogue struct {
	mu      sync.Mutex // of words
	words   *json.Encoder
	asking  sync.Mutex    // one change at a time
	apart   time.Duration // between two changes, at least
	last    time.Time     // when a change was asked for
	changed chan error
	enough  chan struct{} // no more harm
	gone    chan struct{} // nobody answers any more
}

func (d *dialogue) say(l line) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.words.Encode(l); err != nil {
		return fmt.Errorf("say %q: %w", l.Word, err)
	}
	return nil
}

// listen ends with the input.
func (d *dialogue) listen(in io.Reader) {
	defer close(d.gone)
	for words := json.NewDecoder(in); ; {
		var l line
		if err := words.Decode(&l); err != nil {
			return
		}
		switch l.Word {
		case changed:
			d.changed <- asError(l.Error)
		case enough:
			close(d.enough)
		case underWay, change, over: // not for us
		}
	}
}

// change asks for a change of owner, and returns when the owner has changed, or cannot, which the
// other process finds out in a bounded time. It waits before, so that kinds which have little to do
// in each round change the owner no more often than what they are compared with.
func (d *dialogue) change(ctx context.Context) error {
	d.asking.Lock()
	defer d.asking.Unlock()
	linger(ctx, time.Until(d.last.Add(d.apart)))
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("wait for a change of owner: %w", err)
	}
	d.last = time.Now()
	if err := d.say(line{Word: change}); err != nil {
		return err
	}
	select {
	case err := <-d.changed:
		return err
	case <-d.gone:
		return errGone
	}
}

// play does harm until it is enough.
func (d *dialogue) play(ctx context.Context, s *Scene, size Size, kinds []Kind) (found Finding, err error) {
	attacks, err := s.Attacks(ctx, size, kinds...)
	if err == nil {
		err = d.say(line{Word: underWay})
	}
	if err == nil {
		select {
		case <-d.enough:
		case <-d.gone:
		}
	}
	for _, a := range attacks {
		f, stopErr := a.Stop(ctx)
		found = found.With(f)
		err = errors.Join(err, stopErr)
	}
	return found, err
}
