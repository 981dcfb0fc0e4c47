// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/syncopate-dev/syncopate/internal/share"
)

// Kind is what can be said of the workers of a topic; the package's documentation says
// when each is.
type Kind int

// The kinds.
const (
	Unknown Kind = iota
	Pulling
	NobodyPulls
	NoConsumer
	Stuck
	Full
)

func (k Kind) String() string {
	switch k {
	case Pulling:
		return "Pulling"
	case NobodyPulls:
		return "NobodyPulls"
	case NoConsumer:
		return "NoConsumer"
	case Stuck:
		return "Stuck"
	case Full:
		return "Full"
	default:
		return "Unknown"
	}
}

// State is what is told of a topic.
type State struct {
	Kind Kind
	// Since is when the first of the questions was asked that Kind rests on, for Stuck and Full
	// when jobs last moved or began to wait. Zero if nothing was told yet.
	Since time.Time
	// Queued is how many jobs no worker got yet, Busy how many were given to workers and are
	// not done; both by the last answer, so they change without a wake. They are 0 while
	// Kind is Unknown.
	Queued, Busy int
}

// Options of a Watcher. Zero values mean the defaults given.
type Options struct {
	// Every is the time between two questions about a topic, at least. Default 3.1 s, which is no
	// multiple of the time that pull requests usually wait: question after question could meet the
	// moment between two of them.
	Every time.Duration
	// StuckAfter is how long nothing may move while jobs wait behind busy workers. Default 30 s.
	StuckAfter time.Duration
	// AskTimeout bounds one question. Default 2 s.
	AskTimeout time.Duration
	// Width is how many questions may be under way. Default 16.
	Width int
	// WakeBatch is how many runs are woken per tick of 100 ms. Default 50.
	WakeBatch int
	// MaxTopics bounds the topics that are watched, or those of one owner. Default 1,000. The log
	// names one that finds no place, once a minute at most.
	MaxTopics int

	Clock clock.WithTicker // default: the real one
	Log   logr.Logger      // gets one line for each change of a topic's state
}

// fullPause is the time between two lines of the log that say that a topic found no place.
const fullPause = time.Minute

// tick is when due questions are asked and runs are woken.
const tick = 100 * time.Millisecond

func (o Options) withDefaults() Options {
	setDefault(&o.Every, 3100*time.Millisecond)
	setDefault(&o.StuckAfter, 30*time.Second)
	setDefault(&o.AskTimeout, 2*time.Second)
	setDefault(&o.Width, 16)
	setDefault(&o.WakeBatch, 50)
	setDefault(&o.MaxTopics, 1000)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Watcher watches topics for runs, each of which has a key. Its methods may be called concurrently.
type Watcher[K comparable] struct {
	options Options
	ask     func(context.Context, string) (Workers, error)
	wake    func(K)
	owner   func(K) string

	mu      sync.Mutex
	places  *share.Room // of topics
	topics  map[string]*topic[K]
	queue   []string // topics by the time when they are due; those that are just being asked about are not in it
	watches map[K]*watch
	waking  map[string][]K // keys to wake, in order, by owner
	turns   []string       // owners that have keys to wake: whose turn is next
	next    uint64
	full    time.Time // when the log said last that a topic found no place
}

// watch is what one key watches.
type watch struct {
	topics []string
	waking bool // it is in the queue of those to wake
}

// New makes a Watcher. ask says what is known of a topic's workers; it must end with its ctx. wake
// has a run look at its topics again; it must not block. Both are called by Run only.
func New[K comparable](ask func(ctx context.Context, topic string) (Workers, error), wake func(K), options Options) *Watcher[K] {
	options = options.withDefaults()
	return &Watcher[K]{
		options: options, ask: ask, wake: wake, owner: func(K) string { return "" }, places: share.NewRoom(int64(options.MaxTopics)),
		topics: map[string]*topic[K]{}, watches: map[K]*watch{}, waking: map[string][]K{},
	}
}

// Among has topics and wakes divided among owners of keys, say namespaces. Each may begin as many
// topics as one alone could without it, so that there are places for twice as many. It is called
// before all else.
func (c *Watcher[K]) Among(owner func(K) string) *Watcher[K] {
	c.owner, c.places = owner, share.NewRoom(2*int64(c.options.MaxTopics))
	return c
}

// Watch says in which topics jobs of a run wait now; it replaces what was said before, and keeps
// the place of what stays. No topics: the same as Forget. To miss nothing, call State after it.
func (c *Watcher[K]) Watch(key K, topics ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.watches[key]
	if w == nil {
		w = &watch{}
		c.watches[key] = w
	}
	for _, name := range w.topics {
		if t := c.topics[name]; t != nil && !slices.Contains(topics, name) {
			delete(t.keys, key)
		}
	}
	w.topics = slices.Clone(topics)
	for _, name := range topics {
		c.join(name, key)
	}
	if len(topics) == 0 {
		delete(c.watches, key)
	}
}

// Forget ends all that a run watches. A wake that is on its way may still come.
func (c *Watcher[K]) Forget(key K) { c.Watch(key) }

// State is what is told of a topic now. Of one that is not watched, or was not for Every, that
// is nothing: Unknown.
func (c *Watcher[K]) State(name string) State {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[name]; t != nil {
		return t.told
	}
	return State{}
}

func (c *Watcher[K]) join(name string, key K) {
	t := c.topics[name]
	if t == nil {
		owner := c.owner(key)
		if !c.places.Take(owner, name, 1) {
			c.noPlace(name)
			return
		}
		t = &topic[K]{keys: map[K]uint64{}, owner: owner}
		c.topics[name] = t
		c.enqueue(name, c.options.Clock.Now())
	}
	if _, there := t.keys[key]; !there {
		c.next++
		t.keys[key] = c.next
	}
}

// noPlace has the log say that a topic is not watched.
func (c *Watcher[K]) noPlace(name string) {
	if now := c.options.Clock.Now(); c.full.IsZero() || now.Sub(c.full) >= fullPause {
		c.full = now
		c.options.Log.Info("A topic is not watched, as there are too many, or its namespace has its share: runs do not say that its workers are away",
			"topic", name, "most", c.options.MaxTopics)
	}
}

// enqueue puts a topic into the queue, behind all that are due before it or at the same time.
func (c *Watcher[K]) enqueue(name string, due time.Time) {
	c.topics[name].due = due
	at, _ := slices.BinarySearchFunc(c.queue, due, func(other string, due time.Time) int {
		if c.topics[other].due.After(due) {
			return 1
		}
		return -1
	})
	c.queue = slices.Insert(c.queue, at, name)
}
