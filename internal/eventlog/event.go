// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
)

var errType = errors.New("an event is Normal or a Warning")

// newEvent makes an event that has no name and no time yet.
func (w *Writer) newEvent(regarding, related runtime.Object, kind, reason, action, note string) (*eventsv1.Event, error) {
	if !util.ValidateEventType(kind) {
		return nil, fmt.Errorf("%w, not %q", errType, kind)
	}
	about, err := w.refer(regarding)
	if err != nil {
		return nil, err
	}
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault)},
		ReportingController: w.o.Controller, ReportingInstance: w.o.Instance,
		Type: kind, Reason: reason, Action: action, Note: cut(note), Regarding: *about,
	}
	if related != nil {
		e.Related, err = w.refer(related)
	}
	return e, err
}

func (w *Writer) refer(to runtime.Object) (*corev1.ObjectReference, error) {
	ref, err := reference.GetReference(w.o.Scheme, to)
	if err != nil {
		return nil, fmt.Errorf("refer to an object: %w", err)
	}
	return ref.DeepCopy(), nil // of what is a reference itself it is the same one
}

// name gives an event its time, and a name that no other event of this process has.
func (w *Writer) name(e *eventsv1.Event, now time.Time) {
	if !now.After(w.named) {
		now = w.named.Add(1)
	}
	w.named = now
	e.EventTime = metav1.NewMicroTime(now)
	e.Name = util.GenerateEventName(e.Regarding.Name, now.UnixNano())
}

// cut bounds a note to what the API server takes. It keeps nothing of a text that was longer.
func cut(note string) string {
	note = strings.ToValidUTF8(note, "?")
	if len(note) <= bounds.MaxEventBytes {
		return note
	}
	end := bounds.MaxEventBytes
	for !utf8.RuneStart(note[end]) {
		end--
	}
	return strings.Clone(note[:end])
}

// ownerOf says whose room and whose turn an event takes. What is in no namespace has a line of its
// own, though its events are in that of others.
func ownerOf(about *corev1.ObjectReference) (namespace, run string) {
	return about.Namespace, cmp.Or(string(about.UID), about.Namespace+"/"+about.Name)
}
