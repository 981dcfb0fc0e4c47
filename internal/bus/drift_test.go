// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// wantDrift fails the test unless just one setting differs.
func wantDrift(t *testing.T, field string, got []Drift) {
	t.Helper()
	if len(got) != 1 || got[0].Field != field || got[0].Want == got[0].Got {
		t.Errorf("%s: %v", field, got)
	}
}

// Whoever asks which settings are not as Config says relies on all of them: in memory all is lost
// at a restart, and a direct get may be answered by a replica that lags behind.
//
// mutation: a streamDrift without any one of its rows.
func TestDriftOfEachSettingOfAStreamIsReported(t *testing.T) {
	for field, change := range map[string]func(*jetstream.StreamConfig){
		"subjects":         func(c *jetstream.StreamConfig) { c.Subjects = []string{"else.>"} },
		"retention":        func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"discard":          func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld },
		"storage":          func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"num_replicas":     func(c *jetstream.StreamConfig) { c.Replicas = 3 },
		"max_age":          func(c *jetstream.StreamConfig) { c.MaxAge = time.Minute },
		"max_msg_size":     func(c *jetstream.StreamConfig) { c.MaxMsgSize = 7 },
		"duplicate_window": func(c *jetstream.StreamConfig) { c.Duplicates = time.Second },
		"allow_direct":     func(c *jetstream.StreamConfig) { c.AllowDirect = true },
		"allow_msg_ttl":    func(c *jetstream.StreamConfig) { c.AllowMsgTTL = !c.AllowMsgTTL },
		"max_bytes":        func(c *jetstream.StreamConfig) { c.MaxBytes = 7 },
	} {
		config, err := Config{MaxBytes: MaxBytes{Jobs: 1 << 20}}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		want := newConn(config).streamConfigs()[0]
		got := newConn(config).streamConfigs()[0]
		change(&got)
		wantDrift(t, field, streamDrift(want, got))
	}
}

// With a max_deliver of somebody's a result that comes often, as its run is busy, is
// never delivered again.
//
// mutation: a consumerDrift without any one of its rows.
func TestDriftOfEachSettingOfAConsumerIsReported(t *testing.T) {
	for field, change := range map[string]func(*jetstream.ConsumerConfig){
		"filter_subject":     func(c *jetstream.ConsumerConfig) { c.FilterSubject = "else" },
		"filter_subjects":    func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{"else"} },
		"deliver_policy":     func(c *jetstream.ConsumerConfig) { c.DeliverPolicy = jetstream.DeliverNewPolicy },
		"ack_policy":         func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckNonePolicy },
		"ack_wait":           func(c *jetstream.ConsumerConfig) { c.AckWait = time.Second },
		"max_deliver":        func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 3 },
		"max_ack_pending":    func(c *jetstream.ConsumerConfig) { c.MaxAckPending = 3 },
		"backoff":            func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second} },
		"inactive_threshold": func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Second },
	} {
		var want, got jetstream.ConsumerConfig
		change(&got)
		wantDrift(t, field, consumerDrift(want, got))
	}
}

// A library that gives up has to be restarted with its process, and one that keeps what it cannot
// send sends it when its caller has given up.
//
// mutations: connectOptions without MaxReconnects, IgnoreAuthErrorAbort, RetryOnFailedConnect or
// ReconnectBufSize; PingInterval, or Timeout, of a minute.
func TestAConnectionIsNeverGivenUpAndKeepsNothingBack(t *testing.T) {
	got := nats.GetDefaultOptions()
	for _, o := range (Config{}).connectOptions() {
		if err := o(&got); err != nil {
			t.Fatal(err)
		}
	}
	if got.MaxReconnect >= 0 || !got.IgnoreAuthErrorAbort || !got.RetryOnFailedConnect {
		t.Errorf("gives up: %d tries, ends when refused twice: %t, tries on at first: %t", got.MaxReconnect, !got.IgnoreAuthErrorAbort, got.RetryOnFailedConnect)
	}
	if got.ReconnectBufSize != -1 {
		t.Errorf("keeps %d bytes to send them later", got.ReconnectBufSize)
	}
	if silence := got.PingInterval * time.Duration(got.MaxPingsOut+1); silence > 15*time.Second || got.Timeout > 2*time.Second {
		t.Errorf("notices silence after %s, and waits %s for a server", silence, got.Timeout)
	}
}
