// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"fmt"
	"testing"
	"time"
)

// mutations: join that takes no place for an owner, or one for nobody; Among that makes no more
// places; a topic that is forgotten and keeps its place.
func TestNobodyTakesThePlacesOfAllTopics(t *testing.T) {
	inWorld(t, Options{MaxTopics: 100}, func(w *world) {
		w.watcher.Among(ownerOf)
		watched := func(topic string) bool {
			w.watcher.mu.Lock()
			defer w.watcher.mu.Unlock()
			return w.watcher.topics[topic] != nil
		}
		flood := func() {
			for i := range 200 {
				w.watcher.Watch(fmt.Sprint("flood/", i), fmt.Sprint("flood.", i))
			}
		}
		flood()
		w.watcher.Watch("good/1", "good")
		if !watched("good") || !watched("flood.99") || watched("flood.100") {
			t.Errorf("good: %t, the hundredth of a flood, and one more: %t, %t", watched("good"), watched("flood.99"), watched("flood.100"))
		}
		for i := range 200 {
			w.watcher.Forget(fmt.Sprint("flood/", i))
		}
		w.until(10 * time.Second)
		flood()
		if !watched("good") || !watched("flood.0") {
			t.Error("a place is not given back")
		}
	})
}

// mutations: one queue for all owners, an owner that keeps its turn, or one that loses it though
// more of its runs wait.
func TestRunsOfOneOwnerDoNotWaitForThoseOfAnother(t *testing.T) {
	inWorld(t, Options{WakeBatch: 2}, func(w *world) {
		w.watcher.Among(ownerOf)
		for i := range 100 {
			w.watcher.Watch(fmt.Sprint("flood/", i), "flood")
		}
		w.until(time.Second) // so the flood is told a second earlier, and waits for five
		w.watcher.Watch("good/1", "good")
		w.watcher.Watch("good/2", "good")
		w.until(15 * time.Second)
		woken := w.wakes()
		if len(woken) != 102 {
			t.Fatalf("%d are woken", len(woken))
		}
		for _, e := range woken {
			if late := e.At - woken[0].At; ownerOf(e.What) == "good" && late > 1500*time.Millisecond {
				t.Errorf("%s is woken %s after the first one", e.What, late)
			}
		}
	})
}
