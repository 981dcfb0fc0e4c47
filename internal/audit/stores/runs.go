// SPDX-License-Identifier: Apache-2.0

package stores

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/audit"
	"github.com/syncopate-dev/syncopate/internal/lifecycle"
	quota "github.com/syncopate-dev/syncopate/internal/quota/controller"
	"github.com/syncopate-dev/syncopate/internal/quota/locks"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// runs reads all runs, page by page.
func (s *Stores) runs(ctx context.Context, snap *audit.Snapshot, q quotas) error {
	seen := map[string]*seenOf{}
	of := func(uid string) *seenOf {
		if seen[uid] == nil {
			seen[uid] = &seenOf{}
		}
		return seen[uid]
	}
	for _, j := range snap.Jobs {
		of(j.UID).jobs = append(of(j.UID).jobs, j.ID)
	}
	for _, h := range slices.Concat(snap.Holds, snap.Waiters) {
		of(h.UID).tickets = append(of(h.UID).tickets, h.Ticket)
	}
	snap.Runs = map[string]audit.Run{}
	for next := ""; ; {
		page := &v1alpha1.WorkflowRunList{}
		if err := s.API.List(ctx, page, client.Limit(runsPage), client.Continue(next)); err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		for i := range page.Items {
			run := &page.Items[i]
			snap.Runs[string(run.UID)] = runOf(run, *of(string(run.UID)), q)
		}
		if next = page.Continue; next == "" {
			return nil
		}
		if int64(len(snap.Runs))+ptr.Deref(page.RemainingItemCount, 1) > maxRuns { // a page says at once how many are to come
			return fmt.Errorf("there are more than %d runs", maxRuns)
		}
	}
}

// seenOf is what other stores have of a run.
type seenOf struct {
	jobs    []string // that are queued
	tickets []string // of locks: a run does not name those of items that were not begun, or are over
}

// runOf keeps of a run what is compared.
func runOf(run *v1alpha1.WorkflowRun, seen seenOf, q quotas) audit.Run {
	r := audit.Run{Name: run.Namespace + "/" + run.Name, Newer: run.NeedsNewer() > 0}
	if run.Status == nil || r.Newer {
		return r
	}
	r.Ended, r.Refused, r.Outputs = lifecycle.Finished(run), quota.RefusedForKey(run), lifecycle.OutputNames(run)
	if policyName, tenant, ok := quota.CountedAt(run); ok && q != nil {
		r.Quota = new(q(policyName, tenant))
	}
	if run.Status.Fence != nil {
		r.Fence = *run.Status.Fence
	}
	r.Tickets, r.Children = ticketsOf(run, seen.tickets), childrenOf(run, "")
	r.Unanswered, r.Over = jobsOf(run, seen.jobs)
	return r
}

// jobsOf are the jobs of a run that have to be in NATS, and those of the queued that are over. An
// attempt is in status before its job is published, and waits there while it finds no room.
func jobsOf(run *v1alpha1.WorkflowRun, queued []string) (unanswered []string, over map[string]bool) {
	if !lifecycle.Finished(run) {
		for _, id := range lifecycle.Published(run) {
			unanswered = append(unanswered, id.String())
		}
	}
	over = map[string]bool{}
	for _, text := range queued {
		if id, err := protocol.ParseJobID(text); err == nil && lifecycle.Over(run, id) {
			over[text] = true
		}
	}
	return unanswered, over
}

// ticketsOf are the tickets that a run declares, and of those that were seen in Redis the ones that
// it may still have.
func ticketsOf(run *v1alpha1.WorkflowRun, seen []string) map[string]audit.Ticket {
	all, of := map[string]audit.Ticket{}, locks.PartsOfTickets(run)
	for _, name := range slices.Concat(locks.TicketsOf(run), seen) {
		p, declared, never := of(name)
		if !declared && never {
			continue
		}
		t := audit.Ticket{Over: p.Over}
		if p.Over {
			_, part, _ := strings.Cut(name, "/")
			t.Children = childrenOf(run, part)
		}
		for _, l := range p.Holds {
			t.Fence = max(t.Fence, l.Fence)
		}
		all[name] = t
	}
	return all
}

// childrenOf are the uids of the child runs inside of a part of a run.
func childrenOf(run *v1alpha1.WorkflowRun, part string) (all []string) {
	for _, child := range locks.ChildrenOf(run, part) {
		all = append(all, child.UID)
	}
	return all
}
