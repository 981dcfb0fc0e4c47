package runview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/policy"
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
	Used       int        `json:"used"`    // runs under way
	Waiting    int        `json:"waiting"` // runs in line
	Oldest     *time.Time `json:"oldestWaiting,omitempty"`
}

// Tenants counts the runs of each tenant and policy. policies are all LockPolicies; nil: not known.
func Tenants(runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) []Tenant {
	type key struct{ policy, tenant string }
	all := map[key]*Tenant{}
	of := func(k key) *Tenant {
		if all[k] == nil {
			all[k] = &Tenant{Policy: k.policy, Tenant: k.tenant}
			all[k].Limit, all[k].LimitKnown = limitOf(k.policy, k.tenant, policies)
		}
		return all[k]
	}
	for i := range runs {
		run := &runs[i]
		st := statusOf(run)
		switch {
		case hasSlot(run):
			of(key{st.Admission.Policy, st.Tenant}).Used++
		case queued(run):
			of(key{lineOf(run, policies), st.Tenant}).wait(utc(queuedAt(run)))
		}
	}
	list := make([]Tenant, 0, len(all))
	for _, t := range all {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b Tenant) int { return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Policy, b.Policy)) })
	return list
}

func (t *Tenant) wait(since *time.Time) {
	t.Waiting++
	if t.Oldest == nil || since.Before(*t.Oldest) {
		t.Oldest = since
	}
}

// hasSlot says whether a run is under way in a slot of its own: a child run is in that of its root.
func hasSlot(run *v1alpha1.WorkflowRun) bool {
	st := statusOf(run)
	return st.Parent == nil && st.CompletedAt == nil && st.Admission != nil && st.Admission.AdmittedAt != nil
}

// queued says whether a run waits in its tenant's line to be admitted.
func queued(run *v1alpha1.WorkflowRun) bool {
	return statusOf(run).Phase == v1alpha1.RunQueued && statusOf(run).Parent == nil
}

func queuedAt(run *v1alpha1.WorkflowRun) time.Time {
	if a := statusOf(run).Admission; a != nil && a.QueuedAt != nil {
		return a.QueuedAt.Time
	}
	return run.CreationTimestamp.Time
}

// lineOf is the policy in whose line a run stands.
func lineOf(run *v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) string {
	if policies != nil {
		return policy.Resolve(run.Spec.WorkloadClass, policies).Name
	}
	if p := statusOf(run).Policy; p != nil {
		return p.Name
	}
	return ""
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
	return w.Flush()
}

// Place is where a run stands in its tenant's line now.
type Place struct {
	Position int    `json:"position"` // from 1
	Of       int    `json:"of"`
	Ahead    string `json:"ahead,omitempty"` // namespace/name of the run just ahead
	Used     int    `json:"used"`
	Limit    *int   `json:"limit,omitempty"`
}

// PlaceOf finds the place of a waiting run among all runs; nil if it does not wait. Those who wait
// are ordered by priority, the highest first, then by creation, then by namespace and name.
func PlaceOf(run *v1alpha1.WorkflowRun, runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy) *Place {
	if !queued(run) {
		return nil
	}
	line, tenant := lineOf(run, policies), statusOf(run).Tenant
	place := &Place{Position: 1}
	place.Limit, _ = limitOf(line, tenant, policies)
	var waiting []*v1alpha1.WorkflowRun
	for i := range runs {
		other := &runs[i]
		switch {
		case statusOf(other).Tenant != tenant:
		case hasSlot(other) && statusOf(other).Admission.Policy == line:
			place.Used++
		case queued(other) && lineOf(other, policies) == line:
			waiting = append(waiting, other)
		}
	}
	slices.SortFunc(waiting, inLine)
	for _, other := range waiting {
		if inLine(other, run) < 0 {
			place.Position++
			place.Ahead = other.Namespace + "/" + other.Name
		}
	}
	place.Of = max(len(waiting), place.Position)
	return place
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
	text := fmt.Sprintf("place %d of %d in line now", p.Position, p.Of)
	if p.Ahead != "" {
		text += ", behind " + p.Ahead
	}
	if p.Limit != nil {
		text += fmt.Sprintf("; %d of at most %d runs of the tenant are under way", p.Used, *p.Limit)
	}
	return text
}
