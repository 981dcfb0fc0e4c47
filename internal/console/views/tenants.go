// SPDX-License-Identifier: Apache-2.0

package views

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

const maxPlaces = 10

// Tenants is the page of tenants and semaphores.
type Tenants struct {
	Scope
	More       bool // there are more runs under way than are counted
	Tenants    []Tenant
	Lines      []Line
	Hidden     bool // the user may not see semaphores
	Semaphores []Semaphore
	MoreOfThem bool // there are more semaphores than are shown
}

// Tenant is how a tenant stands with one policy.
type Tenant struct {
	Name, Policy, Limit string
	Used, Waiting       int
	Full                bool
	Oldest              Moment
	Share               string // of a total that tenants share; "": there is none
	Bar                 []Segment
}

// Line is a queue.
type Line struct {
	Tenant, Policy string
	Places         []Place
	More           int
}

// Place is a run in a queue.
type Place struct {
	Number          int
	Namespace, Name string
	Priority        int32
	Since           Moment
}

// Semaphore is one of the cluster.
type Semaphore struct {
	Name, OnBusy, Order string
	Permits             int32
	Held, Queued, Keys  int32
	Busiest             []Key
	Known               bool // the operator has looked at it
}

// Key is a key of a semaphore that is held or waited for.
type Key struct {
	Name, Holder string
	Path         string // the page of the holder; "": there is none
	Held, Queued int32
	Bar          []Segment
}

// TenantsOf makes the page. policies and semaphores are nil if they may not be seen.
func TenantsOf(runs []v1alpha1.WorkflowRun, policies []v1alpha1.LockPolicy, semaphores []v1alpha1.Semaphore, now time.Time) Tenants {
	page := Tenants{Hidden: semaphores == nil}
	for _, t := range runview.Tenants(runs, policies) {
		page.Tenants = append(page.Tenants, tenantOf(t, now))
	}
	for _, l := range runview.Lines(runs, policies) {
		line := Line{Tenant: shortText(l.Tenant), Policy: l.Policy, More: max(0, len(l.Runs)-maxPlaces)}
		for i, run := range l.Runs[:min(len(l.Runs), maxPlaces)] {
			since := run.CreationTimestamp.Time
			if a := run.Status.Admission; a != nil && a.QueuedAt != nil {
				since = a.QueuedAt.Time
			}
			line.Places = append(line.Places, Place{i + 1, run.Namespace, run.Name, run.Spec.Priority, moment(&since, now)})
		}
		page.Lines = append(page.Lines, line)
	}
	for i := range semaphores {
		page.Semaphores = append(page.Semaphores, semaphoreOf(&semaphores[i]))
	}
	slices.SortStableFunc(page.Semaphores, func(a, b Semaphore) int { return cmp.Or(cmp.Compare(b.Queued, a.Queued), cmp.Compare(a.Name, b.Name)) })
	return page
}

func tenantOf(t runview.Tenant, now time.Time) Tenant {
	out := Tenant{Name: shortText(t.Tenant), Policy: t.Policy, Limit: "none", Used: t.Used, Waiting: t.Waiting, Oldest: moment(t.Oldest, now)}
	most := t.Used
	switch {
	case t.Limit != nil:
		out.Limit, out.Full, most = strconv.Itoa(*t.Limit), t.Used >= *t.Limit, max(*t.Limit, t.Used)
	case !t.LimitKnown:
		out.Limit = "not known"
	}
	if t.Total != nil {
		out.Share = fmt.Sprintf("guaranteed %d of %d, weight %d", t.Guaranteed, *t.Total, t.Weight)
		for _, l := range t.Lends {
			out.Share += fmt.Sprintf("; lends %d to %s", l.Runs, shortText(l.To))
		}
		for _, l := range t.Borrows {
			out.Share += fmt.Sprintf("; borrows %d of %s", l.Runs, shortText(l.From))
		}
	}
	out.Bar = useBar(t.Used, most, out.Full)
	return out
}

// useBar shows how much of something is used.
func useBar(used, most int, full bool) []Segment {
	if most <= 0 {
		return nil
	}
	tone := "busy"
	if full {
		tone = "warn"
	}
	w := min(barWidth, used*barWidth/most)
	all := []Segment{{0, w, tone, fmt.Sprintf("%d used", used)}}
	if w < barWidth {
		all = append(all, Segment{w, barWidth - w, "idle", fmt.Sprintf("%d free", most-used)})
	}
	return all
}

func semaphoreOf(s *v1alpha1.Semaphore) Semaphore {
	out := Semaphore{Name: s.Name, OnBusy: words(string(s.Spec.OnBusy)), Order: words(string(s.Spec.Order)), Permits: s.Spec.Permits}
	if s.Status == nil {
		return out
	}
	out.Held, out.Queued, out.Keys, out.Known = s.Status.Held, s.Status.Queued, s.Status.Keys, true
	for _, k := range s.Status.Busiest {
		key := Key{Name: cmp.Or(shortText(k.Key), "without a name"), Holder: shortText(k.Holder), Held: k.Held, Queued: k.Queued}
		if k.Holder != "" {
			key.Path = "runs/" + k.Holder
		}
		key.Bar = useBar(int(k.Held), int(max(s.Spec.Permits, k.Held)), k.Held >= s.Spec.Permits)
		out.Busiest = append(out.Busiest, key)
	}
	return out
}
