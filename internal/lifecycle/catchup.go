// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"maps"
	"slices"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/dag"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// catchUp applies answers to attempts that began ahead of this status: they are as good as those to
// attempts that it has. For example, a succeeded and b began, b succeeded, and the operator died
// before it wrote that. Whoever has both results has b succeed in the decision that has a succeed:
// if the run were to end first, say at its deadline, work that is done would be thrown away.
func catchUp(d *draft) {
	if !mayBeBehind(d) || !slices.Contains(d.out.Verdicts, Ahead) {
		return
	}
	ahead := answersAhead(d)
	if len(ahead) == 0 {
		return
	}
	leadsThere := make([]bool, len(d.st.Steps))
	for i := range ahead {
		for _, j := range d.plan.Ancestors(i) {
			leadsThere[j] = true
		}
	}
	schedule := d.plan.Schedule(d.st.Steps, false, d.now)
	for i, ok := schedule.Next(); ok; i, ok = schedule.Next() {
		switch {
		case len(ahead[i]) > 0:
			catchUpStep(d, i, ahead[i])
		case leadsThere[i] && d.st.Steps[i].Phase == v1alpha1.StepPending: // and not one that is tried again
			skipAgain(d, i)
		}
		schedule.Release(i)
	}
}

// mayBeBehind says whether attempts may have begun of which this status does not know.
func mayBeBehind(d *draft) bool {
	coalesced := d.in.Checkpoint.Coalesced || d.st.Checkpoint != nil
	return coalesced && d.initialized && status.Admitted(&d.st) && !d.run.HasLocks()
}

// mayHaveBegun says whether the first attempt of a step may have begun ahead of this status.
func mayHaveBegun(d *draft, i int) bool {
	step := &d.plan.Steps[i]
	return d.st.Steps[i].Phase == v1alpha1.StepPending && step.Job != nil && !dag.FansOut(step) && !d.plan.IsFinally(i)
}

// anyAnswerable says whether the stream may have an answer that counts.
func anyAnswerable(d *draft) bool {
	if anyInFlight(d) {
		return true
	}
	for i := range d.st.Steps {
		if mayBeBehind(d) && mayHaveBegun(d, i) {
			return true
		}
	}
	return false
}

// answersAhead are, by step, the results at hand of attempts that this status does not have. When
// the run's deadline is over, only those count that were stored by then: nothing begins after it,
// and all that says that an attempt began before is when its answer was stored.
func answersAhead(d *draft) map[int][]int {
	end := status.ActiveDeadline(d.run, &d.st)
	if d.now.Before(end) {
		end = time.Time{}
	}
	all := map[int][]int{}
	for k, v := range d.out.Verdicts {
		r := &d.in.Results[k]
		i, known := d.plan.Index[r.ID.Step]
		if v != Ahead || !known || !mayHaveBegun(d, i) || !end.IsZero() && r.PublishedAt.After(end) {
			continue
		}
		all[i] = append(all[i], k)
	}
	maps.DeleteFunc(all, func(_ int, results []int) bool {
		return !slices.ContainsFunc(results, func(k int) bool { return endsFirst(&d.in.Results[k]) })
	})
	return all
}

// endsFirst says whether a result ends the first attempt of its step. One that has only started is
// not worth rendering its input.
func endsFirst(r *Result) bool {
	return r.ID.Item == protocol.NoItem && r.ID.Attempt == 1 && (r.Rejected != "" || r.Result.Status != protocol.StatusStarted)
}

// catchUpStep has a step begin as it began for somebody else, and applies what was answered. Where
// that cannot be done yet, because the object store is to be asked first, the step is left as it
// is, and deadlines wait as for any answer that waits for the store. It is left as it is, too,
// where nothing ends its attempt: what would has to wait.
func catchUpStep(d *draft, i int, results []int) {
	switch is := prepare(d, i); {
	case is.lacking:
		d.answers.await(status.JobID(d.run, d.st.Steps[i].Name, 1))
		return
	case is.skipped:
		skipStep(d, i)
		d.progressed++
		return
	case is.problem != nil:
		return // whoever began it read other outputs than these: it begins anew
	}
	was, begun := d.st.Steps[i], d.st.StartedAt
	events := len(d.out.Events)
	beginAttempt(d, i)
	for _, k := range results {
		d.out.Verdicts[k] = applyResult(d, k)
		d.store.rest()
	}
	if !status.WithWorker(&d.st.Steps[i]) {
		d.progressed++
		return
	}
	d.st.Steps[i], d.st.StartedAt, d.out.Events = was, begun, d.out.Events[:events]
	for _, k := range results {
		if d.out.Verdicts[k] != Waiting {
			d.out.Verdicts[k] = Ahead
		}
	}
}

// skipAgain skips a step on the way to one that was answered, if it was skipped for whoever began
// that one.
func skipAgain(d *draft, i int) {
	wanted, err := d.view.Wanted(i)
	switch {
	case err == nil && !wanted:
		skipStep(d, i)
		d.progressed++
	case err != nil && unprepared(d, err).lacking:
		d.answers.await(status.JobID(d.run, d.st.Steps[i].Name, 1))
	}
}
