// SPDX-License-Identifier: Apache-2.0

package lockmgr

import (
	"context"
)

// listen starts to listen to the news for this process. Needs mu.
func (m *Manager) listen(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.tasks.Go(func() {
		<-m.stop
		cancel()
	})
	m.tasks.Go(func() {
		for ctx.Err() == nil {
			m.store.Listen(ctx, m.process, m.hear)
			select {
			case <-ctx.Done():
			case <-m.opts.Clock.After(listenPause):
			}
		}
	})
}

// hear acts on news about the lock of a run.
func (m *Manager) hear(n news, runUID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n == newsBegin {
		askAll(m)
		return
	}
	r, ok := m.runs[runUID]
	if !ok {
		return
	}
	switch h := r.hold; {
	case n == newsOffered && r.taking:
		r.offered = true
	case n == newsOffered:
		m.askNow(r)
	case n == newsWanted && h != nil:
		h.others = true
		r.contendedUntil = m.now().Add(contendedTime)
		if h.user == nil && h.offered == "" {
			h.lingerUntil = m.now() // it lingers for nobody
			m.reschedule(r)
		}
	}
}

// askAll has the scheduler ask Redis for all who wait: what they wait for may have been offered
// while nobody listened. Needs mu.
func askAll(m *Manager) {
	for _, r := range m.runs {
		if r.taking {
			r.offered = true
			continue
		}
		m.askNow(r)
	}
}
