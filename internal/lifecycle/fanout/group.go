// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/itemset"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/bounds"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/facts"
	"github.com/syncopate-dev/syncopate/internal/lifecycle/status"
	"github.com/syncopate-dev/syncopate/pkg/protocol"
)

// Group is v1alpha1.ItemGroup with its items read.
type Group struct {
	Set                                    itemset.Set
	Phase                                  v1alpha1.StepPhase
	Attempt, Failures                      int32
	DispatchedAt, StartedAt, NextAttemptAt *metav1.MicroTime
	DeadLetter                             v1alpha1.DeadLetterReason
}

// history is what makes items different for good.
func (g *Group) history() [2]int32 { return [2]int32{g.Attempt, g.Failures} }

// since is the moment from which a group counts its time-out, or its next attempt.
func (g *Group) since() time.Time {
	for _, at := range []*metav1.MicroTime{g.NextAttemptAt, g.StartedAt, g.DispatchedAt} {
		if at != nil {
			return at.Time
		}
	}
	return time.Time{}
}

// Groups reads the groups of a step; what cannot be read was not written by Decide, and
// is left out.
func Groups(st *v1alpha1.ForEachStatus) []Group {
	groups := make([]Group, 0, len(st.Groups))
	for i := range st.Groups {
		g := &st.Groups[i]
		set, err := itemset.Parse(g.Items)
		if err != nil {
			continue
		}
		groups = append(groups, Group{
			Set: set, Phase: g.Phase, Attempt: g.Attempt, Failures: g.Failures,
			DispatchedAt: g.DispatchedAt, StartedAt: g.StartedAt, NextAttemptAt: g.NextAttemptAt, DeadLetter: g.DeadLetter,
		})
	}
	return groups
}

func same(a, b *Group) bool {
	return a.Phase == b.Phase && a.history() == b.history() && a.DeadLetter == b.DeadLetter &&
		a.DispatchedAt.Equal(b.DispatchedAt) && a.StartedAt.Equal(b.StartedAt) && a.NextAttemptAt.Equal(b.NextAttemptAt)
}

// Judge compares an attempt of an item with the persisted state of its step.
func Judge(s *v1alpha1.StepStatus, groups []Group, id protocol.JobID) (item int, v facts.Verdict) {
	item, err := strconv.Atoi(id.Item)
	if err != nil || !status.IsForEach(s) || item >= int(s.ForEach.Begun) {
		return 0, facts.Ahead
	}
	k := slices.IndexFunc(groups, func(g Group) bool { return g.Set.Contains(item) })
	switch {
	case k < 0 || status.Ended(s.Phase):
		return item, facts.Duplicate
	case id.Attempt > groups[k].Attempt:
		return item, facts.Ahead
	case id.Attempt < groups[k].Attempt:
		return item, facts.Stale
	case status.InFlight(groups[k].Phase):
		return item, facts.Applied
	default:
		return item, facts.Duplicate
	}
}

func compareGroups(a, b Group) int {
	first, _ := a.Set.First()
	second, _ := b.Set.First()
	return cmp.Or(
		cmp.Compare(phaseOrder(a.Phase), phaseOrder(b.Phase)), cmp.Compare(a.Attempt, b.Attempt), cmp.Compare(a.Failures, b.Failures),
		cmp.Compare(a.DeadLetter, b.DeadLetter), a.since().Compare(b.since()), cmp.Compare(first, second),
	)
}

func phaseOrder(p v1alpha1.StepPhase) int {
	return slices.Index([]v1alpha1.StepPhase{v1alpha1.StepRunning, v1alpha1.StepDispatched, v1alpha1.StepBackingOff, v1alpha1.StepPending}, p)
}

// Share is what each of some steps may have of what a run may have.
func Share(all, steps int) int { return share(all, steps, bounds.MinShare) }

func share(all, steps, least int) int { return max(all/max(1, steps), least) }

// waiting is a group as it waits for its next attempt.
func waiting(g Group, until time.Time) Group {
	return Group{Phase: v1alpha1.StepBackingOff, Attempt: g.Attempt, Failures: g.Failures, NextAttemptAt: bounds.Micro(until)}
}
