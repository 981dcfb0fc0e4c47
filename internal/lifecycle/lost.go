// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
)

// endLost ends attempts in flight whose jobs are nowhere and cannot be rendered any more. Another
// attempt would be made of the same, so their steps, or items, fail for good.
func endLost(d *draft) {
	if len(d.in.Lost) == 0 {
		return
	}
	for k := range d.in.Lost {
		lost := &d.in.Lost[k]
		i, verdict := facts.Judge(d.run, d.st.Steps, d.plan.Index, lost.ID)
		e := v1alpha1.StepError{Code: facts.CodeExpressionError, Message: lost.Cause}
		switch {
		case d.answers.waiting[lost.ID]: // its answer came since
		case verdict == Applied:
			withdraw(d, i)
			failAttempt(d, i, e, true)
		case verdict == Duplicate && d.items[i] != nil:
			endLostItem(d, i, lost, e)
		}
	}
	for _, it := range d.items {
		if it != nil {
			settleItems(d, it)
		}
	}
	endIfDone(d)
}

func endLostItem(d *draft, i int, lost *LostJob, e v1alpha1.StepError) {
	it := d.items[i]
	item, verdict := it.Judge(&d.st.Steps[i], lost.ID)
	if verdict != Applied {
		return
	}
	d.out.Withdraw = append(d.out.Withdraw, Withdrawal{ID: lost.ID, Topic: d.plan.Steps[i].Job.Topic})
	failItem(d, it, item, e, true)
}
