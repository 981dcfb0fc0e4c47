// SPDX-License-Identifier: Apache-2.0

package resyncs

// Kicks ask for a resync before it is due. For example, a semaphore got more permits while Redis
// was away, and the next try is due in 30 s: that is news, and a resync is tried at once, but not
// within a second of the last one. A drop that failed because Redis is away is none: all runs that
// end meanwhile would have Redis asked each second.
type Kicks struct{ asked, news chan struct{} }

// NewKicks are none yet.
func NewKicks() Kicks { return Kicks{make(chan struct{}, 1), make(chan struct{}, 1)} }

// Kick has the next resync begin, a second after the last one at the earliest. It does not hasten
// one that is due after others failed. It does not block.
func (k Kicks) Kick() { put(k.asked) }

// Tell is Kick for what no resync can know yet: something changed, or somebody was not woken. It
// hastens also a resync that is due after others failed.
func (k Kicks) Tell() {
	put(k.asked)
	put(k.news)
}

// After is for what could not be done, and is left to the resync: Kick if Redis cannot be used,
// which the resync finds, too; else Tell.
func (k Kicks) After(unusable bool) {
	if unusable {
		k.Kick()
		return
	}
	k.Tell()
}

// Begin is called before a resync: it finds all news of until now.
func (k Kicks) Begin() {
	select {
	case <-k.news:
	default:
	}
}

// Asked is what Rest listens to after a resync, and News after one that failed.
func (k Kicks) Asked() <-chan struct{} { return k.asked }

// News is what Rest listens to after a resync that failed.
func (k Kicks) News() <-chan struct{} { return k.news }

func put(into chan struct{}) {
	select {
	case into <- struct{}{}:
	default:
	}
}
