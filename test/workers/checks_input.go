// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

func unchanged(*nats.Msg) {}

// checkUnknown adds to a job, and says to the worker, what a later version of the protocol may.
func checkUnknown(ctx context.Context, k *kit) error {
	id := newJob("unknown")
	body := fmt.Appendf(nil, `{"do":"sleep","millis":%d,"later":{"a":[null]}}`, 2*k.config.AckWait.Milliseconds())
	j, err := k.forge(ctx, id, body, func(m *nats.Msg) {
		m.Header.Add("Syncopate-Later", "a")
		m.Header.Add("Syncopate-Later", "b: c")
		m.Header.Add("x-lower", "")
	})
	if err != nil {
		return err
	}
	if err := k.working(ctx, j); err != nil {
		return err
	}
	for _, said := range []string{`{"action":"Pause","jobs":["` + id.String() + `"],"later":1}`, `no JSON`, `[]`, ``} {
		if _, err := k.js.Publish(ctx, k.names.Control(id.RunUID), []byte(said)); err != nil {
			return err
		}
	}
	return k.unmoved(ctx, j)
}

// unmoved wants a job that goes on to its end, whatever was just said to the worker.
func (k *kit) unmoved(ctx context.Context, j job) error {
	if k.answered([]job{j}) {
		return fmt.Errorf("%w whether a message ends a job: it was done before", errInconclusive)
	}
	return k.succeeds(ctx, j)
}

// succeeds wants a job that goes on to its end.
func (k *kit) succeeds(ctx context.Context, j job) error {
	if _, err := k.settled(ctx, j); err != nil {
		return err
	}
	es, err := k.finish(ctx, j)
	if err != nil {
		return err
	}
	if es[first(es, answer)].result.Status != protocol.StatusSucceeded {
		return k.saw(j, "Succeeded")
	}
	return nil
}

// checkLockFences sends jobs that no lock protects, and that one and several do. The name of a lock
// may have an "=" in it.
func checkLockFences(ctx context.Context, k *kit) error {
	for _, fences := range []map[string]int64{
		{}, {"gpu-pool/": 17}, {"gpu-pool/eu": 1795360000123, "mutex:team-a/db=orders": 1795360000124, "mutex:team-a/last": 9007199254740991},
	} {
		j, err := k.forge(ctx, newJob("fences"), input{Do: "fences"}.bytes(), func(m *nats.Msg) {
			for _, lock := range slices.Sorted(maps.Keys(fences)) {
				m.Header.Add(protocol.HeaderLockFence, fmt.Sprintf("%s=%d", lock, fences[lock]))
			}
		})
		if err != nil {
			return err
		}
		es, err := k.finish(ctx, j)
		if err != nil {
			return err
		}
		want, err := json.Marshal(fences)
		if err != nil {
			return fmt.Errorf("encode fences: %w", err)
		}
		if got := es[first(es, answer)]; got.result.Status != protocol.StatusSucceeded || !sameJSON(want, got.result.Output) {
			return &Failure{Expected: "Succeeded with the output " + string(want), Saw: got.String()}
		}
	}
	return nil
}

// checkTrace sends a job that has a place in a trace, and one that has none.
func checkTrace(ctx context.Context, k *kit) error {
	for _, place := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"} {
		j, err := k.forge(ctx, newJob("trace"), input{Do: "trace"}.bytes(), func(m *nats.Msg) {
			if place != "" {
				m.Header.Set(protocol.HeaderTraceParent, place)
			}
		})
		if err != nil {
			return err
		}
		es, err := k.finish(ctx, j)
		if err != nil {
			return err
		}
		want := strconv.Quote(place)
		if got := es[first(es, answer)]; got.result.Status != protocol.StatusSucceeded || !sameJSON([]byte(want), got.result.Output) {
			return &Failure{Expected: "Succeeded with the output " + want, Saw: got.String()}
		}
	}
	return nil
}

// checkForged sends messages that are no jobs: with headers that would have a trusting worker
// publish in another place, or that cannot be read.
func checkForged(ctx context.Context, k *kit) error {
	other := newJob("other")
	for name, edit := range map[string]func(id protocol.JobID) func(*nats.Msg){
		"a reply that is no result's": func(id protocol.JobID) func(*nats.Msg) {
			return func(m *nats.Msg) { m.Header.Set(protocol.HeaderReply, k.names.Control(id.RunUID)) }
		},
		"another job's reply": func(protocol.JobID) func(*nats.Msg) {
			return func(m *nats.Msg) { m.Header.Set(protocol.HeaderReply, k.names.Result(other)) }
		},
		"another job's id, reply and token": func(protocol.JobID) func(*nats.Msg) {
			return func(m *nats.Msg) {
				m.Header.Set(protocol.HeaderMsgID, other.String())
				m.Header.Set(protocol.HeaderReply, k.names.Result(other))
				m.Header.Set(protocol.HeaderToken, k.keys.Sign(other))
			}
		},
		"a fence that cannot be read": func(protocol.JobID) func(*nats.Msg) {
			return func(m *nats.Msg) { m.Header.Set(protocol.HeaderFence, "x") }
		},
		"no headers at all": func(protocol.JobID) func(*nats.Msg) { return func(m *nats.Msg) { m.Header = nil } },
	} {
		id := newJob("forged")
		j, err := k.forge(ctx, id, quick.bytes(), edit(id))
		if err != nil {
			return err
		}
		if err := k.refuses(ctx, name, j, k.names.Control(id.RunUID), k.names.Result(other), k.names.Result(id)); err != nil {
			return err
		}
	}
	return nil
}

// refuses wants a message settled without a word on any of the subjects.
func (k *kit) refuses(ctx context.Context, name string, j job, subjects ...string) error {
	spoke := func() error {
		for _, s := range subjects {
			if es := k.tap.on(s); len(es) > 0 {
				return &Failure{Expected: "a message with " + name + " refused", Saw: "on " + s + ": " + story(es)}
			}
		}
		return nil
	}
	err := k.await(ctx, "the message is terminated", func() (bool, error) {
		es := k.tap.of(j)
		if count(es, returned) > maxReturns {
			return false, k.saw(j, "a message with "+name+" terminated")
		}
		return count(es, acked, ended) > 0, spoke()
	})
	if err == nil {
		return spoke()
	}
	return &Failure{Expected: "a message with " + name + " terminated", Saw: story(k.tap.of(j)) + " (" + err.Error() + ")"}
}

func checkNotJSON(ctx context.Context, k *kit) error {
	for _, body := range []string{`{"do":`, ``, `[1,2]`, `"do"`} {
		j, err := k.forge(ctx, newJob("not-json"), []byte(body), unchanged)
		if err != nil {
			return err
		}
		if _, err := k.settled(ctx, j); err != nil {
			return err
		}
		es, err := k.finish(ctx, j)
		if err != nil {
			return err
		}
		if r := es[first(es, answer)].result; r.Status != protocol.StatusFailed || !r.Final {
			return k.saw(j, "Failed, final, for the body `"+body+"`")
		}
	}
	return nil
}

func withDeadline(at time.Time) func(*nats.Msg) {
	return func(m *nats.Msg) { m.Header.Set(protocol.HeaderDeadline, at.UTC().Format(time.RFC3339Nano)) }
}

func checkDeadlinePassed(ctx context.Context, k *kit) error {
	j, err := k.forge(ctx, newJob("late"), quick.bytes(), withDeadline(time.Now().Add(-time.Second)))
	if err != nil {
		return err
	}
	es, err := k.settled(ctx, j)
	if err == nil && (count(es, acked) != 1 || count(es, started, answer) > 0) {
		return k.saw(j, "an ack and nothing else")
	}
	return err
}

func checkDeadlinePasses(ctx context.Context, k *kit) error {
	j, err := k.forge(ctx, newJob("slow"), sleep(2*k.config.AckWait).bytes(), withDeadline(time.Now().Add(k.config.AckWait/2)))
	if err != nil {
		return err
	}
	if err := k.givesUp(ctx, j); err != nil {
		return err
	}
	es := k.tap.of(j)
	switch {
	case count(es, started, ping) == 0:
		return fmt.Errorf("%w what becomes of a job at its deadline: it came too late", errInconclusive)
	case slices.ContainsFunc(es, func(e event) bool { return e.delivered > 1 }):
		// The one that came again after the deadline is what was acknowledged. The first may
		// still be answered.
		return fmt.Errorf("%w what becomes of a job at its deadline: it was delivered again", errInconclusive)
	}
	return nil
}

// givesUp wants a job that ends without a result.
func (k *kit) givesUp(ctx context.Context, j job) error {
	es, err := k.settled(ctx, j)
	if err == nil && (count(es, acked) == 0 || count(es, answer) > 0) {
		return k.saw(j, "an ack without a result")
	}
	return err
}

// checkCancel cancels a whole run; then a job by its id, which it takes out of the queue before, as
// the operator does.
func checkCancel(ctx context.Context, k *kit) error {
	for _, named := range []bool{false, true} {
		j, err := k.dispatch(ctx, newJob("cancel"), sleep(k.long()))
		if err != nil {
			return err
		}
		if err := k.working(ctx, j); err != nil {
			return err
		}
		var ids []protocol.JobID
		if named {
			ids = []protocol.JobID{newJob("gone"), j.id}
			if err := k.jobs.Withdraw(ctx, k.config.Topic, j.id); err != nil {
				return err
			}
		}
		if k.answered([]job{j}) {
			return fmt.Errorf("%w whether a job can be cancelled: it was done before", errInconclusive)
		}
		if err := k.jobs.Cancel(ctx, j.id.RunUID, ids); err != nil {
			return err
		}
		if err := k.givesUp(ctx, j); err != nil {
			return err
		}
	}
	return nil
}

// checkCancelOthers cancels another run, and another job of the same run.
func checkCancelOthers(ctx context.Context, k *kit) error {
	j, err := k.dispatch(ctx, newJob("stays"), sleep(2*k.config.AckWait))
	if err != nil {
		return err
	}
	if err := k.working(ctx, j); err != nil {
		return err
	}
	sibling := j.id
	sibling.Attempt++
	if err := k.jobs.Cancel(ctx, newJob("other").RunUID, nil); err != nil {
		return err
	}
	if err := k.jobs.Cancel(ctx, j.id.RunUID, []protocol.JobID{sibling}); err != nil {
		return err
	}
	return k.unmoved(ctx, j)
}
