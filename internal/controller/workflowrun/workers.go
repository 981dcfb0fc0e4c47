package workflowrun

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/syncopate-dev/syncopate/internal/bus/jobs"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/liveness"
)

// crews know what the workers of topics do; *liveness.Crew does.
type crews interface {
	Watch(key types.NamespacedName, topics ...string)
	Forget(key types.NamespacedName)
	State(topic string) liveness.State
}

// newsDelay is the wait before what is known of workers is told of a run whose jobs have just been dispatched.
const newsDelay = 100 * time.Millisecond

// newCrew watches the topics for whose workers runs wait.
func newCrew(q *jobs.Queue, wake func(types.NamespacedName), o liveness.Options) *liveness.Watcher[types.NamespacedName] {
	return liveness.New(func(ctx context.Context, topic string) (liveness.Workers, error) {
		w, err := q.Workers(ctx, topic)
		return liveness.Workers(w), err
	}, wake, o)
}

// observeWorkers reads what is known of the workers that the run waits for.
func (p *pass) observeWorkers() {
	p.workers = map[string]lifecycle.Workers{}
	for _, topic := range lifecycle.WaitedFor(p.run) {
		p.workers[topic] = p.workersOf(topic)
	}
}

func (p *pass) workersOf(topic string) lifecycle.Workers {
	s := p.crews.State(topic)
	switch s.Kind {
	case liveness.Pulling:
		return lifecycle.Workers{State: lifecycle.WorkersPull, Since: s.Since}
	case liveness.NobodyPulls:
		return lifecycle.Workers{State: lifecycle.WorkersAbsent, Since: s.Since}
	case liveness.Stuck:
		return lifecycle.Workers{State: lifecycle.WorkersStuck, Since: s.Since}
	default:
		return lifecycle.Workers{}
	}
}

// watchWorkers has the run woken when the workers change that it waits for now. It says when to look again: soon, if bad news of them
// is known already.
func (p *pass) watchWorkers() time.Time {
	if lifecycle.Finished(p.run) {
		p.crews.Forget(p.key)
		return time.Time{}
	}
	topics := lifecycle.WaitedFor(p.run)
	p.crews.Watch(p.key, topics...)
	for _, topic := range topics {
		now := p.workersOf(topic)
		if p.workers[topic].State != now.State && now.State != lifecycle.WorkersPull && now.State != lifecycle.WorkersUnknown {
			return p.clock.Now().Add(newsDelay)
		}
	}
	return time.Time{}
}
