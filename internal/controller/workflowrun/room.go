package workflowrun

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/controller/workflowrun/pacing"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
)

// full is what this process knows of a run whose object has no room for its status.
type full struct {
	on    string         // resourceVersion of the object: another may have room
	form  lifecycle.Form // of an end, which is to be tried next
	tries int            // of the bare form, that were refused
	until time.Time      // nothing is written before; zero: at once
}

// forms name the forms of a status in metrics.
var forms = map[lifecycle.Form]string{lifecycle.FormFull: "full", lifecycle.FormShort: "short", lifecycle.FormBare: "bare"}

// form is how much of an end a run has room for, as far as is known.
func (p *pass) form() lifecycle.Form {
	if p.mem.full == nil {
		return lifecycle.FormFull
	}
	return p.mem.full.form
}

// shrink ends a pass whose write was refused for its size, and not for one of its results: the next one ends the run, in a form that needs
// less room. The bare form fits wherever a status was written before. A run that was never written may have no room even for that:
// it is tried now and then, as somebody may take labels away, and does without its place at the gate meanwhile.
func (p *pass) shrink(ctx context.Context, cause error) reconcile.Result {
	p.metrics.tooLarge.WithLabelValues(forms[p.form()]).Inc()
	m := p.mem.full
	if m == nil {
		m = &full{on: p.run.ResourceVersion}
		p.mem.full = m
	}
	if m.form < lifecycle.FormBare {
		m.form++
		log.FromContext(ctx).Info("The object has no room for the run's status: the run ends", "form", forms[m.form], "cause", cause.Error())
		return p.again(p.mem.lastWrite.Next(0, false))
	}
	m.until = p.clock.Now().Add(pacing.NoRoom(m.tries, lookAgain))
	m.tries++
	log.FromContext(ctx).Error(cause, "The object has no room for any status of the run: it is tried again", "at", m.until)
	p.events.Eventf(p.run, nil, corev1.EventTypeWarning, v1alpha1.ReasonObjectTooLarge, "Advance",
		"The object leaves no room for any status: too many labels, or other metadata. The run cannot begin or end until there is room")
	if err := p.leaveFull(ctx); err != nil {
		return p.effectsAgain(ctx, err)
	}
	return p.again(m.until)
}

// leaveFull gives up the place at the gate of a run that cannot be let in.
func (p *pass) leaveFull(ctx context.Context) error {
	if lifecycle.Admitted(p.run) {
		return nil
	}
	return p.slots.Release(ctx, &p.mem.slot, p.run.UID)
}

// stuck is until when nothing is written, as there was no room for it; zero: it may be tried.
func (p *pass) stuck() time.Time {
	m := p.mem.full
	if m == nil || !m.until.After(p.clock.Now()) {
		return time.Time{}
	}
	return m.until
}

// roomAgain forgets that an object had no room once it is another.
func (m *memory) roomAgain(run *v1alpha1.WorkflowRun) {
	if m.full != nil && m.full.on != run.ResourceVersion {
		m.full = nil
	}
}
