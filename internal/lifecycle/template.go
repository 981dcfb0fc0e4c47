// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"time"

	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
)

// missTemplate ends a run whose Workflow, or revision, does not exist: at once if the run followed
// it before, else if it does not come in time. An end that was announced stands, as where clean-up
// fails.
func missTemplate(d *draft) {
	t := &d.in.Template
	if t.Missing == "" || t.Patient {
		return
	}
	switch {
	case d.st.Ending != nil:
		endAsAnnounced(d, report.WorkflowNotFound(t.Missing))
	case d.st.Workflow != nil, !d.now.Before(templateEnd(d)):
		endRun(d, report.WorkflowNotFound(t.Missing))
	}
}

// awaitsTemplate says whether the run waits for its Workflow.
func awaitsTemplate(d *draft) bool { return d.in.Template.Missing != "" && d.ended == nil }

// templateEnd is when a run does not wait for its Workflow any longer.
func templateEnd(d *draft) time.Time {
	return d.run.CreationTimestamp.Add(facts.TemplatePatience)
}

// templateWait adds when a run does not wait for its Workflow any longer.
func templateWait(d *draft, e *earliest) {
	if awaitsTemplate(d) && !d.in.Template.Patient {
		e.add(templateEnd(d))
	}
}

// nestOf says where the run is among those that are nested. What an operator that did not count has
// left out is as at the top.
func nestOf(d *draft) dag.Nest {
	nest := dag.Top
	if d.st.Parent == nil {
		return nest
	}
	nest.Level = max(nest.Level, int(d.st.Parent.Level))
	if below := d.st.Parent.Below; below != nil {
		nest.Below = int(*below)
	}
	return nest
}
