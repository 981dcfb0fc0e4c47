// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/bus/natstest"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// consumerOf is the consumer that has the results of a run.
func (s *site) consumerOf(runUID string) *jetstream.ConsumerInfo {
	s.t.Helper()
	name := fmt.Sprintf("%s-results-p%02d", s.names.Prefix, protocol.Partition(runUID))
	c, err := s.js.Consumer(s.t.Context(), s.names.ResultsStream(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return c.CachedInfo()
}

// A result that waits in the inbox for a busy lock goes back to NATS when the operator is asked to
// stop: the server tells of a NAK.
// mutation: Consume that ends without its drain, or acknowledges there, makes this fail; so does an
// operator that closes the connection first (stop before the end of mgr.Start).
func TestAnOperatorThatIsAskedToStopGivesBackWhatWaits(t *testing.T) {
	s := newSite(t)
	const class, lockTTL = "patient", 0
	budget, linger := int64(60_000), int64(0)
	policy := &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: v1alpha1.LockPolicySpec{
			WorkloadClasses: []string{class},
			RunLock:         v1alpha1.RunLockPolicy{LingerMillis: &linger, Wait: v1alpha1.LockWait{BudgetMillis: &budget}},
		},
	}
	if err := s.k8s.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	locks := redis.NewClient(&redis.Options{Addr: s.env.Redis.Addr})
	defer func() { _ = locks.Close() }()
	nc, err := nats.Connect(s.env.NATS.URL(), natstest.Patient())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	naks, err := nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED." + s.names.ResultsStream() + ".>")
	if err != nil {
		t.Fatal(err)
	}

	first := s.operator("first")
	j := s.dispatch(func(spec *v1alpha1.WorkflowRunSpec) { spec.WorkloadClass = class })
	key := "{run:" + j.id.RunUID + "}:lock"
	s.eventually("somebody else has the lock", func() bool {
		return locks.SetArgs(t.Context(), key, "somebody-else", redis.SetArgs{Mode: "NX", TTL: lockTTL}).Err() == nil
	})
	s.answer(j, j.token)
	s.eventually("the result waits for the lock", func() bool {
		busy := false
		for _, m := range s.scrape(first, "syncopate_run_lock_acquisitions_total").GetMetric() {
			for _, l := range m.GetLabel() {
				busy = busy || l.GetValue() == "busy" && m.GetCounter().GetValue() > 0
			}
		}
		return busy && s.consumerOf(j.id.RunUID).NumAckPending == 1
	})
	if n, _, err := naks.Pending(); err != nil || n != 0 {
		t.Fatalf("%d NAKs before the end (%v): the result does not wait", n, err)
	}
	if err := first.Terminate(t.Context()); err != nil {
		t.Errorf("it ends with %v", err)
	}
	m, err := naks.NextMsg(watchPatience)
	if err != nil {
		t.Fatalf("no NAK: %v", err)
	}
	var nak struct {
		Sequence uint64 `json:"stream_seq"`
	}
	if err := json.Unmarshal(m.Data, &nak); err != nil || nak.Sequence != 1 {
		t.Errorf("the NAK is of message %d (%v)", nak.Sequence, err)
	}
	if floor := s.consumerOf(j.id.RunUID).AckFloor.Stream; floor != 0 {
		t.Errorf("message %d was acknowledged", floor)
	}
	if err := locks.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	s.operator("second")
	s.eventually("the run succeeds", func() bool { return s.phase(j) == v1alpha1.RunSucceeded })
}
