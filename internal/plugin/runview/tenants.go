// SPDX-License-Identifier: Apache-2.0

package runview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/shares"
)

// Tenant is how a tenant stands with one LockPolicy.
type Tenant struct {
	Policy string `json:"policy"` // "" for the built-in defaults
	Tenant string `json:"tenant"`
	// Limit is how many runs may be under way; absent: no limit, or it is not known because
	// policies may not be read.
	Limit *int `json:"limit,omitempty"`
	// LimitKnown says whether an absent limit means that there is none.
	LimitKnown bool       `json:"limitKnown"`
	Used       int        `json:"used"`    // slots taken: runs under way, and those that keep a slot while they wait for their locks
	Waiting    int        `json:"waiting"` // runs in line
	Oldest     *time.Time `json:"oldestWaiting,omitempty"`
	// Guaranteed and Weight are the tenant's share of Total, which all tenants of the policy have
	// together; absent: it has none.
	Guaranteed int  `json:"guaranteed,omitempty"`
	Weight     int  `json:"weight,omitempty"`
	Total      *int `json:"total,omitempty"`
	// Lends and Borrows are what it is guaranteed and others use, and what it uses of that.
	Lends   []shares.Loan `json:"lends,omitempty"`
	Borrows []shares.Loan `json:"borrows,omitempty"`
}

// Tenants counts the runs of each tenant and policy. policies are all LockPolicies; nil: not known.
func Tenants(runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) []Tenant {
	all := map[account]*Tenant{}
	of := func(k account) *Tenant {
		if all[k] == nil {
			all[k] = &Tenant{Policy: k.policy, Tenant: k.tenant}
			all[k].Limit, all[k].LimitKnown = limitOf(k.policy, k.tenant, policies)
		}
		return all[k]
	}
	lineOf := linesOf(policies)
	for i := range runs {
		run := &runs[i]
		st := statusOf(run)
		switch {
		case hasSlot(run):
			of(account{slotPolicy(run, lineOf), st.Tenant}).Used++
		case queued(run):
			of(account{lineOf(run), st.Tenant}).wait(utc(queuedAt(run)))
		}
	}
	for i := range policies {
		if s := policy.Of(&policies[i]).Admission.Shares(); s != nil {
			shareOut(policies[i].Name, *s, all, of)
		}
	}
	list := make([]Tenant, 0, len(all))
	for _, t := range all {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Tenant) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy)) })
	return list
}

// account is where a tenant is counted.
type account struct{ policy, tenant string }

// shareOut says what each tenant of a policy has of its total. Who lends what it is guaranteed may
// have no run at all.
func shareOut(name string, s shares.Limits, all map[account]*Tenant, of func(account) *Tenant) {
	for tenant, share := range s.Tenants {
		if share.Guaranteed > 0 {
			of(account{name, tenant})
		}
	}
	used := map[string]int{}
	for at, t := range all {
		if at.policy == name {
			used[at.tenant] = t.Used
		}
	}
	loans := s.Loans(used)
	for tenant := range used {
		all[account{name, tenant}].share(s, loans)
	}
}

// share says what a tenant has of a total.
func (t *Tenant) share(s shares.Limits, loans []shares.Loan) {
	mine := s.Of(t.Tenant)
	t.Guaranteed, t.Weight, t.Total = mine.Guaranteed, mine.Weight, &s.Total
	for _, l := range loans {
		if l.From == t.Tenant {
			t.Lends = append(t.Lends, l)
		}
		if l.To == t.Tenant {
			t.Borrows = append(t.Borrows, l)
		}
	}
}

func (t *Tenant) wait(since *time.Time) {
	t.Waiting++
	if t.Oldest == nil || since.Before(*t.Oldest) {
		t.Oldest = since
	}
}

// hasSlot says whether a run has a slot of its own, as it is under way, or keeps one while it waits
// for its locks. A child run is in that of its root.
func hasSlot(run *v1alpha1.WorkflowRun) bool {
	st := statusOf(run)
	return st.Parent == nil && st.CompletedAt == nil && st.Admission != nil && (st.Admission.AdmittedAt != nil || idle(run))
}

// idle says whether a run keeps a slot while it waits for its locks.
func idle(run *v1alpha1.WorkflowRun) bool {
	a := statusOf(run).Admission
	return a != nil && a.AdmittedAt == nil && a.SlotExpiresAt != nil
}

// slotPolicy is the policy of a run's slot.
func slotPolicy(run *v1alpha1.WorkflowRun, lineOf func(*v1alpha1.WorkflowRun) string) string {
	if idle(run) {
		return lineOf(run)
	}
	return statusOf(run).Admission.Policy
}

// queued says whether a run waits in its tenant's line to be admitted. One that waits for locks
// across runs gave its slot back, or keeps it, and has no place there. Nor has one for which the
// gate is not asked: it lacks its Workflow or its parent, or is a child run, or says so.
func queued(run *v1alpha1.WorkflowRun) bool {
	st := statusOf(run)
	return st.Phase == v1alpha1.RunQueued && run.ClaimsParent() == nil && lockWait(st) == nil && !lacksOther(st)
}

// lacksOther says whether a run is not admitted for want of its Workflow or its parent.
func lacksOther(st *v1alpha1.WorkflowRunStatus) bool {
	c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionAdmitted)
	return c != nil && (c.Reason == v1alpha1.ReasonWaitingForWorkflow || c.Reason == v1alpha1.ReasonWaitingForParent)
}

func queuedAt(run *v1alpha1.WorkflowRun) time.Time {
	if a := statusOf(run).Admission; a != nil && a.QueuedAt != nil {
		return a.QueuedAt.Time
	}
	return run.CreationTimestamp.Time
}

// linesOf tells the policy in whose line a run stands.
func linesOf(policies []v1alpha1.LockPolicy) func(run *v1alpha1.WorkflowRun) string {
	if policies != nil {
		owners := policy.OwnersOf(policies) // once: there may be many runs, and many classes
		return func(run *v1alpha1.WorkflowRun) string { return owners.Of(run.Spec.WorkloadClass) }
	}
	return func(run *v1alpha1.WorkflowRun) string {
		if p := statusOf(run).Policy; p != nil {
			return p.Name
		}
		return ""
	}
}

func limitOf(name, tenant string, policies []v1alpha1.LockPolicy) (limit *int, known bool) {
	if name == "" {
		return nil, true
	}
	for i := range policies {
		if policies[i].Name == name {
			if n := policy.Of(&policies[i]).Admission.Limit(tenant); n != policy.NoLimit {
				return &n, true
			}
			return nil, true
		}
	}
	return nil, false
}

// TenantsText writes a table.
func TenantsText(out io.Writer, tenants []Tenant, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "TENANT\tPOLICY\tLIMIT\tUSED\tWAITING\tOLDEST")
	for _, t := range tenants {
		limit, oldest := "none", "-"
		switch {
		case t.Limit != nil:
			limit = strconv.Itoa(*t.Limit)
		case !t.LimitKnown:
			limit = "?"
		}
		if t.Oldest != nil {
			oldest = duration.HumanDuration(now.Sub(*t.Oldest))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", Printable(t.Tenant, maxTextChars), orDash(t.Policy), limit, t.Used, t.Waiting, oldest)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return sharesText(out, tenants)
}

// sharesText writes a table of those who share a total; nothing if nobody does.
func sharesText(out io.Writer, tenants []Tenant) error {
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(t Tenant) bool { return t.Total == nil })
	if len(tenants) == 0 {
		return nil
	}
	slices.SortStableFunc(tenants, func(a, b Tenant) int { return cmp.Compare(a.Policy, b.Policy) })
	used := map[string]int{}
	for _, t := range tenants {
		used[t.Policy] += t.Used
	}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "POLICY\tTOTAL\tTENANT\tUSED\tGUARANTEED\tWEIGHT\tLENDS\tBORROWS")
	for _, t := range tenants {
		fmt.Fprintf(w, "%s\t%d of %d\t%s\t%d\t%d\t%d\t%s\t%s\n", t.Policy, used[t.Policy], *t.Total, Printable(t.Tenant, maxTextChars), t.Used, t.Guaranteed,
			t.Weight, loansText(t.Lends, "to", func(l shares.Loan) string { return l.To }),
			loansText(t.Borrows, "from", func(l shares.Loan) string { return l.From }))
	}
	return w.Flush()
}

// loansText is such as "3 to beta, 1 to gamma".
func loansText(loans []shares.Loan, word string, other func(shares.Loan) string) string {
	all := make([]string, 0, len(loans))
	for _, l := range loans {
		all = append(all, fmt.Sprintf("%d %s %s", l.Runs, word, Printable(other(l), maxTextChars)))
	}
	return orDash(strings.Join(all, ", "))
}

// Place is where a run stands in its tenant's line now.
type Place struct {
	Position int    `json:"position"` // from 1
	Of       int    `json:"of"`
	Ahead    string `json:"ahead,omitempty"` // namespace/name of the run just ahead
	Used     int    `json:"used"`            // slots of the tenant that are taken
	Idle     string `json:"idle,omitempty"`  // namespace/name of a run that keeps one while it waits for its locks; "": none does
	Limit    *int   `json:"limit,omitempty"`
	AtLeast  bool   `json:"atLeast,omitempty"` // not all runs under way were seen: others may be before it, and use the limit
}

// PlaceOf finds the place of a waiting run among those that were seen; nil if it does not wait.
// whole says that these are all runs under way. Those who wait are ordered by priority, the highest
// first, then by creation, then by namespace and name.
func PlaceOf(run *v1alpha1.WorkflowRun, runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy, whole bool) *Place {
	if !queued(run) {
		return nil
	}
	lineOf := linesOf(policies)
	line, tenant := lineOf(run), statusOf(run).Tenant
	place := &Place{Position: 1, AtLeast: !whole}
	place.Limit, _ = limitOf(line, tenant, policies)
	var waiting []*v1alpha1.WorkflowRun
	for i := range runs {
		other := &runs[i]
		switch {
		case statusOf(other).Tenant != tenant:
		case hasSlot(other) && slotPolicy(other, lineOf) == line:
			place.Used++
			if idle(other) {
				place.Idle = other.Namespace + "/" + other.Name
			}
		case queued(other) && lineOf(other) == line:
			waiting = append(waiting, other)
		}
	}
	place.stand(run, waiting)
	return place
}

// stand finds the place of a run among those who wait in its line.
func (p *Place) stand(run *v1alpha1.WorkflowRun, waiting []*v1alpha1.WorkflowRun) {
	slices.SortFunc(waiting, inLine)
	for _, other := range waiting {
		if inLine(other, run) < 0 {
			p.Position++
			p.Ahead = other.Namespace + "/" + other.Name
		}
	}
	p.Of = max(len(waiting), p.Position)
}

// inLine orders those who wait, as the gate does.
func inLine(a, b *v1alpha1.WorkflowRun) int {
	return cmp.Or(
		cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name), cmp.Compare(a.UID, b.UID),
	)
}

// text says it to people.
func (p *Place) text() string {
	text, used := fmt.Sprintf("place %d of %d in line now", p.Position, p.Of), "%d of at most %d slots of the tenant are taken"
	if p.AtLeast {
		text, used = fmt.Sprintf("at least place %d in line now", p.Position), "%d slots of the tenant are taken by runs that you may see, of at most %d"
	}
	if p.Ahead != "" {
		text += ", behind " + p.Ahead
	}
	if p.Limit != nil {
		text += "; " + fmt.Sprintf(used, p.Used, *p.Limit)
	}
	if p.Idle != "" {
		text += ", one by " + p.Idle + ", which waits for its locks"
	}
	if p.AtLeast {
		text += "; not all runs could be seen: others may be before it"
	}
	return text
}

// Line is who waits in the queue of a tenant, the first one first.
type Line struct {
	Tenant, Policy string
	Runs           []*v1alpha1.WorkflowRun
}

// Lines are the queues in which somebody waits, by tenant and policy. policies are all
// LockPolicies; nil: not known.
func Lines(runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) []Line {
	all, lineOf := map[account]*Line{}, linesOf(policies)
	for i := range runs {
		if !queued(&runs[i]) {
			continue
		}
		at := account{lineOf(&runs[i]), statusOf(&runs[i]).Tenant}
		if all[at] == nil {
			all[at] = &Line{Tenant: at.tenant, Policy: at.policy}
		}
		all[at].Runs = append(all[at].Runs, &runs[i])
	}
	list := make([]Line, 0, len(all))
	for _, l := range all {
		slices.SortFunc(l.Runs, inLine)
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Line) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy)) })
	return list
}
