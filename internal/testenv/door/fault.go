// SPDX-License-Identifier: Apache-2.0

package door

import (
	"math/rand/v2"
	"time"
)

// Direction is that of the bytes that a fault is about.
type Direction int

// Up is to the server; Down are its answers.
const (
	Up Direction = iota
	Down
)

// Fault is what happens to the bytes of one direction.
type Fault struct {
	// Silent loses all, and the connection stays. Heal ends connections that were silent: they lack
	// bytes, so they are of no use.
	Silent bool
	// Unread has the door read nothing, so the sender's buffers fill, and its writes wait. What a
	// read that was under way brings is passed on.
	Unread bool
	// Wait is how long a byte is under way beyond what the network takes.
	Wait time.Duration
	// Jitter is by how much Wait is less or more, at random. It is no larger than Wait.
	Jitter time.Duration
	// Bytes is after how many a connection ends; 0: after none. It counts from the fault on, so a
	// message may end in its middle.
	Bytes int
	// Reset ends a connection by RST at its next bytes, which are lost.
	Reset bool
}

// delay is one by chance within the jitter.
func (f Fault) delay() time.Duration {
	if f.Jitter <= 0 {
		return f.Wait
	}
	return f.Wait - f.Jitter + time.Duration(rand.Int64N(int64(2*f.Jitter)))
}

// setting is a fault in force. A new one is made for each change, so its address says which one.
type setting struct {
	Fault
	over chan struct{} // closed when another is in force
}
