// SPDX-License-Identifier: Apache-2.0

package views

import (
	"cmp"
	"fmt"
	"time"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/ownership"
	"github.com/syncopate-dev/syncopate/internal/plugin/runview"
)

// Replicas is the page of partitions and replicas.
type Replicas struct {
	Scope             // of the runs that are counted
	Why        string // why there is nothing to show; "": there is
	Replicas   []Replica
	Partitions []Partition
	Unowned    int
	More       bool // there are runs under way that are not counted
}

// Replica is a process of the operator.
type Replica struct {
	Name             string
	Renewed          Moment
	Partitions, Runs int
	Remarks          string
	Bad              bool
}

// Partition is one of the 64 with runs, or the one of what is done once.
type Partition struct {
	Label, Title, Tone string
}

// ReplicasOf makes the page.
func ReplicasOf(o facts.Owners, runs []v1alpha1.WorkflowRun, now time.Time) Replicas {
	if leader := runview.Leader(o.Leader, now); leader != "" {
		return Replicas{Why: "The operator has a leader: " + shortText(leader) + " drives all runs."}
	}
	shards := runview.ShardsOf(o.Claims, o.Leases, runs, now)
	page := Replicas{Unowned: len(shards.Unowned)}
	trouble := map[string]string{}
	for i := range shards.Replicas {
		r := &shards.Replicas[i]
		trouble[r.Name] = r.Trouble
		page.Replicas = append(page.Replicas, replicaOf(r, now))
	}
	for n, p := range shards.Partitions {
		cell := Partition{Label: fmt.Sprint(p.Runs), Tone: "good", Title: fmt.Sprintf("partition %d: owned by %s, term %d, %d runs", n, shortText(p.Owner), p.Term, p.Runs)}
		if n == ownership.Singletons {
			cell.Label, cell.Title = "once", fmt.Sprintf("what is done once: by %s, term %d", cmp.Or(shortText(p.Owner), "nobody"), p.Term)
		}
		if why := trouble[p.Owner]; why != "" {
			cell.Tone, cell.Title = "bad", cell.Title+": its owner "+why
		}
		if p.Owner == "" {
			cell.Tone, cell.Title = "bad", fmt.Sprintf("partition %d has no owner: its runs stand still, %d of those that are counted", n, p.Runs)
		}
		page.Partitions = append(page.Partitions, cell)
	}
	return page
}

func replicaOf(r *runview.Replica, now time.Time) Replica {
	out := Replica{Name: shortText(r.Name), Renewed: moment(r.Renewed, now), Partitions: r.Partitions, Runs: r.Runs}
	add := func(text string, bad bool) {
		if out.Remarks != "" {
			out.Remarks += ", "
		}
		out.Remarks, out.Bad = out.Remarks+text, out.Bad || bad
	}
	if r.Once {
		add("does what is done once", false)
	}
	if r.Leaving {
		add("hands its runs on", false)
	}
	if r.Unfit {
		add(r.Ailment(), r.UnfitCause != ownership.UnfitStarting)
	}
	if r.Trouble != "" {
		add(r.Trouble, true)
	}
	return out
}
