// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"context"
	"sync"
)

// mostRoom bounds the memory of the questions that are due: MaxTopics may be any number.
const mostRoom = 100_000

// Run asks and wakes until ctx ends, and until all its goroutines have ended. It is called once.
func (c *Watcher[K]) Run(ctx context.Context) {
	// Each topic is in it once at most, so that sending blocks only where they are
	// more than mostRoom.
	questions := make(chan string, min(int(c.places.Limit()), mostRoom))
	var askers sync.WaitGroup
	for range c.options.Width {
		askers.Go(func() {
			for name := range questions {
				c.question(ctx, name)
			}
		})
	}
	ticker := c.options.Clock.NewTicker(tick)
	for ctx.Err() == nil {
		select {
		case <-ticker.C():
			for _, name := range c.takeDue() {
				questions <- name
			}
			c.wakeSome()
		case <-ctx.Done():
		}
	}
	ticker.Stop()
	close(questions)
	askers.Wait()
}

// takeDue takes the topics out of the queue that are to be asked about now. It forgets those which
// nobody watches any more: not sooner, so that a run that comes a moment after the last one left
// does not cause a question.
func (c *Watcher[K]) takeDue() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Clock.Now()
	var due []string
	for len(c.queue) > 0 && !c.topics[c.queue[0]].due.After(now) {
		name := c.queue[0]
		c.queue = c.queue[1:]
		if t := c.topics[name]; len(t.keys) == 0 {
			c.places.Free(t.owner, name, 1)
			delete(c.topics, name)
			continue
		}
		due = append(due, name)
	}
	return due
}

// question asks about a topic, and puts it into the queue for the next time.
func (c *Watcher[K]) question(ctx context.Context, name string) {
	if ctx.Err() != nil {
		return
	}
	asked := c.options.Clock.Now()
	bounded, cancel := context.WithTimeout(ctx, c.options.AskTimeout)
	w, err := c.ask(bounded, name)
	cancel()
	if ctx.Err() != nil {
		return // what failed may have failed for that
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	v := verdict{Unknown, asked}
	if err != nil {
		t.memory = memory{}
	} else {
		v = t.memory.judge(w, asked, c.options.StuckAfter)
	}
	if t.hear(v, w) {
		log := c.options.Log.WithValues("topic", name, "state", t.told.Kind.String(), "queued", t.told.Queued, "busy", t.told.Busy)
		if err != nil {
			log = log.WithValues("cause", err.Error())
		}
		log.Info("Workers of a topic")
		c.wakeLater(t)
	}
	c.enqueue(name, asked.Add(c.options.Every))
}

func (c *Watcher[K]) wakeLater(t *topic[K]) {
	for _, key := range t.oldestFirst() {
		if w := c.watches[key]; !w.waking {
			w.waking = true
			owner := c.owner(key)
			if len(c.waking[owner]) == 0 {
				c.turns = append(c.turns, owner)
			}
			c.waking[owner] = append(c.waking[owner], key)
		}
	}
}

// wakeSome wakes as many as may be woken in one tick, outside the mutex.
func (c *Watcher[K]) wakeSome() {
	for _, key := range c.takeWaking() {
		c.wake(key)
	}
}

// takeWaking takes one run of each owner in turn: who has thousands that wait for one topic keeps
// back nobody's but his own.
func (c *Watcher[K]) takeWaking() []K {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []K
	for len(c.turns) > 0 && len(keys) < c.options.WakeBatch {
		owner := c.turns[0]
		key := c.waking[owner][0]
		c.turns, c.waking[owner] = c.turns[1:], c.waking[owner][1:]
		if len(c.waking[owner]) > 0 {
			c.turns = append(c.turns, owner)
		} else {
			delete(c.waking, owner)
		}
		if w := c.watches[key]; w != nil && w.waking { // else it watches no more, or was woken as one that came again
			w.waking = false
			keys = append(keys, key)
		}
	}
	return keys
}
