// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// FieldSubjectLimit is the setting of which drift does no harm to what may be applied.
const FieldSubjectLimit = "max_msgs_per_subject"

// Drift is one setting of a stream or consumer that is not as Config says.
type Drift struct {
	Object string // name of the stream or consumer
	Field  string // name of the setting
	Want   string // as configured
	Got    string // as found on the server
}

// DriftError lists all drift that EnsureStreams found. The streams exist and work; somebody has to
// decide which side is right.
type DriftError struct{ Drifts []Drift }

func (e *DriftError) Error() string {
	parts := make([]string, 0, len(e.Drifts))
	for _, d := range e.Drifts {
		parts = append(parts, fmt.Sprintf("%s: %s is %s, configured is %s", d.Object, d.Field, d.Got, d.Want))
	}
	return "configuration drift: " + strings.Join(parts, "; ")
}

// streamDrift compares the settings that we chose; what the server fills in or an administrator
// adds is not ours to judge.
func streamDrift(want, got jetstream.StreamConfig) []Drift {
	slices.Sort(want.Subjects)
	slices.Sort(got.Subjects)
	return append(drift(want.Name, []setting{
		{"subjects", want.Subjects, got.Subjects},
		{"retention", want.Retention, got.Retention},
		{"discard", want.Discard, got.Discard},
		{"storage", want.Storage, got.Storage},
		{"num_replicas", want.Replicas, got.Replicas},
		{"max_age", want.MaxAge, got.MaxAge},
		{"max_msg_size", want.MaxMsgSize, got.MaxMsgSize},
		{"duplicate_window", want.Duplicates, got.Duplicates},
		{"allow_direct", want.AllowDirect, got.AllowDirect},
		{"allow_msg_ttl", want.AllowMsgTTL, got.AllowMsgTTL},
	}), slices.Concat(
		limitDrift(want.Name, "max_bytes", want.MaxBytes, got.MaxBytes),
		subjectDrift(want, got),
	)...)
}

// subjectDrift judges the limit of messages on one subject. An administrator's lower one does no
// harm: what it loses can never be applied.
func subjectDrift(want, got jetstream.StreamConfig) []Drift {
	due := dueOnSubject(want, got)
	if has := got.MaxMsgsPerSubject; 0 < has && has < due {
		return nil
	}
	return limitDrift(want.Name, FieldSubjectLimit, due, got.MaxMsgsPerSubject)
}

// limitDrift judges a limit where we have one: else it is an administrator's own.
func limitDrift(object, field string, want, got int64) []Drift {
	if want <= 0 {
		return nil
	}
	return drift(object, []setting{{field, want, got}})
}

type setting struct {
	field     string
	want, got any
}

func drift(object string, settings []setting) []Drift {
	var found []Drift
	for _, s := range settings {
		if want, got := fmt.Sprint(s.want), fmt.Sprint(s.got); want != got {
			found = append(found, Drift{Object: object, Field: s.field, Want: want, Got: got})
		}
	}
	return found
}

func consumerDrift(want, got jetstream.ConsumerConfig) []Drift {
	return drift(want.Durable, []setting{
		{"filter_subject", want.FilterSubject, got.FilterSubject},
		{"filter_subjects", want.FilterSubjects, got.FilterSubjects},
		{"deliver_policy", want.DeliverPolicy, got.DeliverPolicy},
		{"ack_policy", want.AckPolicy, got.AckPolicy},
		{"ack_wait", want.AckWait, got.AckWait},
		{"max_deliver", want.MaxDeliver, got.MaxDeliver},
		{"max_ack_pending", want.MaxAckPending, got.MaxAckPending},
		{"backoff", want.BackOff, got.BackOff},
		{"inactive_threshold", want.InactiveThreshold, got.InactiveThreshold},
	})
}
