// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/schedule"
)

// tell publishes what became of slots that got no run, and that no more get one.
func (r *Reconciler) tell(s *v1alpha1.Schedule, d *schedule.Decision) {
	switch d.Begun {
	case v1alpha1.SlotPaused, v1alpha1.SlotInvalidSpec, v1alpha1.SlotTemplateRefused:
		if ready := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
			r.Events.Eventf(s, nil, corev1.EventTypeWarning, ready.Reason, "Decide", "%s", ready.Message)
		}
	default: // users asked for it
	}
	for _, skipped := range d.Skipped {
		r.Metrics.skipped(skipped.Reason, skipped.Count)
		kind := corev1.EventTypeWarning
		switch skipped.Reason {
		case v1alpha1.SlotSuspended, v1alpha1.SlotPaused, v1alpha1.SlotStopped: // their begin is told by the condition
			continue
		case v1alpha1.SlotOverlap, v1alpha1.SlotBufferFull, v1alpha1.SlotSuperseded:
			kind = corev1.EventTypeNormal
		default:
		}
		r.Events.Eventf(s, nil, kind, "Slot"+string(skipped.Reason), "Decide", "%s", said(&skipped))
	}
	if d.ClockSetBack {
		r.Events.Eventf(s, nil, corev1.EventTypeWarning, "ClockSetBack", "Decide", "the clock was far ahead: slots that have no run are decided again")
	}
}

// said is a range of slots as an event has it.
func said(s *v1alpha1.SkippedSlots) string {
	text := fmt.Sprintf("no run at %s", s.From.UTC().Format(time.RFC3339))
	if s.Count > 1 {
		text = fmt.Sprintf("no runs at %d slots from %s to %s", s.Count, s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339))
	}
	if s.Message != "" {
		text += ": " + s.Message
	}
	return text
}
