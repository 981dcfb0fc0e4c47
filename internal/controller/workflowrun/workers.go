// SPDX-License-Identifier: Apache-2.0

package workflowrun

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/liveness"
)

// liveWorkers says who does the jobs of topics; *liveness.Watcher does.
type liveWorkers interface {
	Watch(key types.NamespacedName, topics ...string)
	Forget(key types.NamespacedName)
	State(topic string) liveness.State
}

// newsDelay is the wait before what is known of workers is told of a run whose jobs have
// just been dispatched.
const newsDelay = 100 * time.Millisecond

// observeWorkers reads what is known of the workers that the run waits for.
func (p *pass) observeWorkers() map[string]lifecycle.Workers {
	workers := map[string]lifecycle.Workers{}
	for _, topic := range lifecycle.WaitedFor(p.run) {
		workers[topic] = workersOf(p.r.Liveness.State(topic))
	}
	return workers
}

func workersOf(s liveness.State) lifecycle.Workers {
	switch s.Kind {
	case liveness.Pulling:
		return lifecycle.Workers{State: lifecycle.WorkersPull, Since: s.Since}
	case liveness.NobodyPulls:
		return lifecycle.Workers{State: lifecycle.WorkersAbsent, Since: s.Since}
	case liveness.Stuck:
		return lifecycle.Workers{State: lifecycle.WorkersStuck, Since: s.Since}
	case liveness.NoConsumer:
		return lifecycle.Workers{State: lifecycle.WorkersBarred, Since: s.Since}
	case liveness.Full:
		return lifecycle.Workers{State: lifecycle.WorkersFull, Since: s.Since}
	default:
		return lifecycle.Workers{}
	}
}

// watchWorkers has the run woken when the workers change that it waits for now. It says when to
// look again: soon, if bad news of them is known already.
func (p *pass) watchWorkers() time.Time {
	if lifecycle.Finished(p.run) {
		p.r.Liveness.Forget(p.key)
		return time.Time{}
	}
	topics := lifecycle.WaitedFor(p.run)
	p.r.Liveness.Watch(p.key, topics...)
	for _, topic := range topics {
		now := workersOf(p.r.Liveness.State(topic))
		if p.workers[topic].State != now.State && now.State != lifecycle.WorkersPull && now.State != lifecycle.WorkersUnknown {
			return p.r.Clock.Now().Add(newsDelay)
		}
	}
	return time.Time{}
}
