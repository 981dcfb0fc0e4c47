// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// maxEventText is what is kept of a text of an event, in bytes. Who makes events bounds none.
const maxEventText = 2 << 10

// errFilled says that no more items were wanted.
var errFilled = errors.New("no more items are wanted")

// stream reads a page of a list, and says where the next one begins. An item may be more than a
// MiB, so that no more than one is there as a whole at a time. keep says whether more are wanted.
func stream[T any](ctx context.Context, of *rest.Request, keep func(*T) bool) (next string, err error) {
	answer, err := of.Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Close() }()
	var metadata metav1.ListMeta
	d := json.NewDecoder(answer)
	err = eachOf(d, '{', func() error { return field(d, &metadata, keep) })
	return metadata.Continue, err
}

// field reads one of a list.
func field[T any](d *json.Decoder, metadata *metav1.ListMeta, keep func(*T) bool) error {
	switch name, err := d.Token(); {
	case err != nil:
		return err
	case name == "metadata":
		return d.Decode(metadata)
	case name == "items":
		return eachOf(d, '[', func() error { return keepOne(d, keep) })
	default:
		return d.Decode(&json.RawMessage{}) // nothing is kept of it
	}
}

func keepOne[T any](d *json.Decoder, keep func(*T) bool) error {
	var o T
	if err := d.Decode(&o); err != nil {
		return err
	}
	if !keep(&o) {
		return errFilled
	}
	return nil
}

// eachOf reads an object, or an array, part by part.
func eachOf(d *json.Decoder, opening json.Delim, part func() error) error {
	switch token, err := d.Token(); {
	case err != nil:
		return err
	case token == nil: // an array may be null
		return nil
	case token != opening:
		return fmt.Errorf("the answer has %v in the place of %v", token, opening)
	}
	for d.More() {
		if err := part(); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// scheduleOutline is what is kept of a schedule: its template is skipped as it is read.
type scheduleOutline struct {
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Cron     []string               `json:"cron"`
		TimeZone string                 `json:"timeZone"`
		Overlap  v1alpha1.OverlapPolicy `json:"overlap"`
	} `json:"spec"`
	Status *v1alpha1.ScheduleStatus `json:"status"`
}

func (o *scheduleOutline) schedule() v1alpha1.Schedule {
	s := v1alpha1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}, Status: o.Status}
	s.Spec.Cron, s.Spec.TimeZone, s.Spec.Overlap = o.Spec.Cron, o.Spec.TimeZone, o.Spec.Overlap
	return s
}

// briefEvent is what is kept of an event.
func briefEvent(e *corev1.Event) corev1.Event {
	brief := corev1.Event{
		Type: eventText(e.Type), Reason: eventText(e.Reason), Message: eventText(e.Message), ReportingInstance: eventText(e.ReportingInstance),
		Source: corev1.EventSource{Component: eventText(e.Source.Component)}, Count: e.Count,
		LastTimestamp: e.LastTimestamp, EventTime: e.EventTime, Series: e.Series,
	}
	brief.CreationTimestamp = e.CreationTimestamp
	return brief
}

// eventText is the beginning of a text. The rest of it is not kept.
func eventText(s string) string { return strings.Clone(s[:min(len(s), maxEventText)]) }
