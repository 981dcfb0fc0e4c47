// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"container/list"
	"sync"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/share"
	"github.com/syncopate-dev/syncopate/internal/template"
)

// MaxBytes bounds the parsed revisions that are kept, by decodedFactor times their text.
const MaxBytes = 64 << 20

// decodedFactor is how many bytes of memory a byte of a revision takes, at most.
const decodedFactor = 8

// key names a revision in all namespaces.
type key struct {
	namespace string
	v1alpha1.WorkflowRevision
}

func (k key) String() string { return k.namespace + "/" + k.Name + "/" + k.Revision }

// cache keeps the revisions that were used last. Revisions never change, so none is ever stale.
type cache struct {
	mu    sync.Mutex
	room  *share.Room
	known map[key]*list.Element // of entry
	used  *list.List            // the one that was used last is in front
}

type entry struct {
	key     key
	content *template.Content
	bytes   int64
}

func newCache(limit int64) *cache {
	return &cache{room: share.NewRoom(limit), known: map[key]*list.Element{}, used: list.New()}
}

func (c *cache) get(k key) *template.Content {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.known[k]
	if !ok {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*entry).content //nolint:errcheck,forcetypeassert // all are
}

// put keeps a revision, in place of those of its namespace that were used the longest ago; only a
// namespace that has none takes the place of others.
func (c *cache) put(k key, content *template.Content, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[k]; ok {
		return
	}
	bytes := int64(size) * decodedFactor
	if bytes > c.room.Limit() {
		return
	}
	for !c.room.Take(k.namespace, k.String(), bytes) {
		if !c.dropOne(k.namespace) {
			return
		}
	}
	c.known[k] = c.used.PushFront(&entry{key: k, content: content, bytes: bytes})
}

// dropOne drops an entry of a namespace, else of any; false: there is none.
func (c *cache) dropOne(namespace string) bool {
	victim := c.used.Back()
	for e := victim; e != nil; e = e.Prev() {
		if e.Value.(*entry).key.namespace == namespace { //nolint:errcheck,forcetypeassert // all are
			victim = e
			break
		}
	}
	if victim == nil {
		return false
	}
	gone := c.used.Remove(victim).(*entry) //nolint:errcheck,forcetypeassert // all are
	delete(c.known, gone.key)
	c.room.Free(gone.key.namespace, gone.key.String(), gone.bytes)
	return true
}
