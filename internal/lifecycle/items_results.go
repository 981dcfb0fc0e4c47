// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/fanout"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/report"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// succeedItem notes that an item succeeds. Its verdict is final only if succeedItems finds a place
// for the output.
func succeedItem(d *draft, k int, it *fanout.Items, item int) Verdict {
	raw, lacking, problem := d.store.ofItem(&d.in.Results[k], int(bounds.MaxItemsOutput-it.St.OutputBytes))
	switch {
	case lacking:
		return Waiting
	case problem != nil && problem.Code == facts.CodeResultRejected:
		rejectItem(d, k, it, item, problem.Message)
	case problem != nil:
		itemFailed(d, it, item, *problem)
	default:
		it.Succeeds(item, k, raw)
	}
	return Applied
}

// rejectItem counts an unusable result as a failed attempt of an item.
func rejectItem(d *draft, k int, it *fanout.Items, item int, why string) {
	why = d.out.rejectResult(k, why)
	deadLettered(d, report.RejectedItem(d.st.Steps[it.Step].Name, item, why))
	failItem(d, it, item, v1alpha1.StepError{Code: facts.CodeResultRejected, Message: why}, false)
}

// applyItem applies what a worker said about an item of step i. A success takes effect with all
// others of the decision, in succeedItems.
func applyItem(d *draft, k, i int) Verdict {
	r, it := &d.in.Results[k], d.items[i]
	item, verdict := it.Judge(&d.st.Steps[i], r.ID)
	switch {
	case verdict != Applied:
		return d.out.unapplied(k, r, d.st.Steps, i, verdict)
	case it.SucceedsAlready(item, k):
		return Duplicate
	case r.Rejected != "":
		rejectItem(d, k, it, item, r.Rejected)
		return Applied
	}
	switch r.Result.Status {
	case protocol.StatusStarted:
		return it.Start(item, r.PublishedAt, d.now)
	case protocol.StatusSucceeded:
		return succeedItem(d, k, it, item)
	case protocol.StatusFailed:
		failItem(d, it, item, workerError(r.Result.Error), r.Result.Final)
	case protocol.StatusRetry:
		postponeItem(d, it, item, r.Result)
	default:
		rejectItem(d, k, it, item, fmt.Sprintf("status %q", bounds.Cut(string(r.Result.Status), bounds.MaxCodeChars)))
	}
	return Applied
}

// postponeItem honours a worker's wish to be asked later about an item. A wish is no failure: it
// does not take the place of why items failed for good.
func postponeItem(d *draft, it *fanout.Items, item int, r protocol.Result) {
	wait := grantWait(d, r)
	wish := report.RetryWish(r, wait)
	if it.St.Failed == 0 {
		e := report.OfItem(item, postponedBy(r, wish))
		d.texts.setError(&d.st.Steps[it.Step], &e)
	}
	it.AskLater(item, d.now.Add(wait), report.WishOfItem(item, wish))
}
