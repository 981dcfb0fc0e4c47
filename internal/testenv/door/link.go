// SPDX-License-Identifier: Apache-2.0

package door

import (
	"net"
	"sync"
	"time"
)

const (
	maxChunks = 1024
	maxBytes  = 32 << 10 // of a chunk
)

// chunk is what was read at once.
type chunk struct {
	data []byte
	at   time.Time
}

// link is one connection through the door.
type link struct {
	proxy *Proxy
	ends  [2]net.Conn // of the client and of the server: Up flows from the first to the second
	once  sync.Once
	over  chan struct{} // closed by end
}

// run passes bytes on until either side or the door ends the link.
func (l *link) run() {
	var running sync.WaitGroup
	for _, way := range []Direction{Up, Down} {
		read := make(chan chunk, maxChunks)
		running.Go(func() { l.read(way, read) })
		running.Go(func() {
			defer l.end()
			l.write(way, read)
		})
	}
	running.Wait()
}

// end closes both sides.
func (l *link) end() {
	l.once.Do(func() {
		close(l.over)
		for _, c := range l.ends {
			_ = c.Close()
		}
	})
}

// reset is end with RST in place of FIN.
func (l *link) reset() {
	for _, c := range l.ends {
		if tcp, is := c.(*net.TCPConn); is {
			_ = tcp.SetLinger(0)
		}
	}
	l.end()
}

// read takes what one side sends; it closes into when that has ended.
func (l *link) read(way Direction, into chan<- chunk) {
	defer close(into)
	for l.mayRead(way) {
		data := make([]byte, maxBytes)
		n, err := l.ends[way].Read(data)
		if n > 0 {
			select {
			case into <- chunk{data: data[:n], at: l.proxy.clock.Now()}:
			case <-l.over:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// mayRead waits while nothing is to be read; false: the link has ended.
func (l *link) mayRead(way Direction) bool {
	for f := l.proxy.fault(way); f.Unread; f = l.proxy.fault(way) {
		select {
		case <-f.over:
		case <-l.over:
			return false
		}
	}
	return true
}

// write passes on what was read, as the faults will have it.
func (l *link) write(way Direction, from <-chan chunk) {
	var counted *setting // what sent is about
	sent := 0
	for c := range from {
		f := l.await(way, c.at)
		if f != counted {
			counted, sent = f, 0
		}
		switch {
		case f.Silent:
			continue
		case f.Reset:
			l.reset()
			return
		case f.Bytes > 0:
			c.data = c.data[:min(len(c.data), f.Bytes-sent)]
		}
		n, err := l.ends[1-way].Write(c.data)
		if sent += n; err != nil || f.Bytes > 0 && sent == f.Bytes {
			return
		}
	}
}

// await lets the time pass that bytes which were read at a time are under way, and returns the
// fault in force at the end. A fault that another replaces is waited for no longer.
func (l *link) await(way Direction, since time.Time) *setting {
	f := l.proxy.fault(way)
	for f.Wait > 0 {
		left := f.delay() - l.proxy.clock.Since(since)
		if left <= 0 {
			return f
		}
		timer := l.proxy.clock.NewTimer(left)
		select {
		case <-timer.C():
			return f
		case <-l.over:
			timer.Stop()
			return f
		case <-f.over:
			timer.Stop()
			f = l.proxy.fault(way)
		}
	}
	return f
}
