// SPDX-License-Identifier: Apache-2.0

package ahead

import (
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	"github.com/syncopate-dev/syncopate/internal/policy"
)

// State is what this process has decided about one run and not written. The zero value: nothing.
type State struct {
	kept *v1alpha1.WorkflowRun       // with the status as decided; nil: all is written
	base *v1alpha1.WorkflowRunStatus // the stored one that it was decided on
	left []lifecycle.Withdrawal      // attempts that were dropped, until status has them or the run has ended

	wroteAt time.Time // when this process wrote the run last; zero: it did not
	// Since is when the first thing was decided that is not written; zero: all is.
	Since time.Time
	// Results is how many results are not acknowledged for it.
	Results int
	// Alone says that no other process has worked on the run, so that none can have published an
	// attempt which status does not have.
	Alone bool
	// Trial is the part in a rollout of a run that was begun ahead: status pins none of a run in
	// neither arm. The zero value: it has none, or was written.
	Trial policy.Trial
	// Off says that the run is written at every step: a write of it was refused.
	Off bool
}

// Run is the run as decided; nil: all is written.
func (st *State) Run() *v1alpha1.WorkflowRun { return st.kept }

// Lags says whether something is decided and not written.
func (st *State) Lags() bool { return st.kept != nil }

// keep keeps a decision about a run that is stored like this, instead of writing it.
func (st *State) keep(stored *v1alpha1.WorkflowRun, decided *v1alpha1.WorkflowRunStatus, now time.Time) *v1alpha1.WorkflowRun {
	if st.kept == nil {
		st.base, st.Since = stored.Status, now
	}
	run := *stored
	run.Status = decided
	st.kept = &run
	return st.kept
}

// over is the run as it is read now with what is kept of it, if that stands; not ok: it does not,
// and is to be dropped.
func (st *State) over(stored *v1alpha1.WorkflowRun) (run *v1alpha1.WorkflowRun, ok bool) {
	switch {
	case st.kept == nil:
		return stored, true
	case st.kept.ResourceVersion == stored.ResourceVersion:
		return st.kept, true
	case stored.UID != st.kept.UID || !equality.Semantic.DeepEqual(st.base, stored.Status):
		return stored, false
	}
	next := *stored // somebody edited the spec, or metadata
	next.Status = st.kept.Status
	st.kept = &next
	return st.kept, true
}

func (st *State) drop() {
	if st.kept == nil {
		return
	}
	st.left = append(st.left, lifecycle.InFlightJobs(st.kept)...)
	st.kept, st.base, st.Since, st.Results, st.Alone, st.Trial = nil, nil, time.Time{}, 0, false, policy.Trial{}
}

func (st *State) written(now time.Time) {
	st.kept, st.base, st.Since, st.Results, st.wroteAt, st.Trial = nil, nil, time.Time{}, 0, now, policy.Trial{}
}

// TakeLeft gives up what was dropped, once the run has ended: it is to be withdrawn.
func (st *State) TakeLeft() []lifecycle.Withdrawal {
	left := st.left
	st.left = nil
	return left
}
