// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/book"
)

const (
	// bound is how far two effects may be apart once all is healed: the longer of a run lock and
	// the AckWait of jobs, and five seconds.
	bound = 35 * time.Second
	// limit of runs that are under way.
	limit    = 6
	patience = 4 * time.Minute
)

// redisSet is what the three kinds of Redis have in common.
type redisSet interface {
	SetPassword(user, password string)
	KillClients(user string)
}

func (g *rig) redis() redisSet {
	switch {
	case g.sentinel != nil:
		return g.sentinel
	case g.cluster != nil:
		return g.cluster
	default:
		return g.one
	}
}

// outcome is that of a round.
type outcome struct {
	results int
	stall   time.Duration
	under   int // effects when the fault began; a fault without load proves nothing
	wrong   []string
	counted string          // by the operators
	shown   map[string]bool // by the names of the faults; nil: not all is known that they counted
}

// play is one round.
func (g *rig) play(ctx context.Context, seed uint64, faults ...fault) outcome {
	g.tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	namespace := fmt.Sprintf("faults-%s-%d", g.part, seed)
	if err := site.k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		g.tb.Fatal(err)
	}
	size := book.Size{Runs: 12, Steps: 8, Workers: 12, Patience: patience, Slow: time.Second, Late: 2 * time.Second}
	p, ledger := book.MakePlan(seed, size), book.New()
	w := book.NewWatcher(ledger, limit)
	h, stop, err := book.Follow(ctx, site.k8s, namespace, w.See)
	if err != nil {
		g.tb.Fatal(err)
	}
	defer stop()
	clerks := book.Hire(ctx, g.job, g.names, namespace, p, ledger)
	for _, run := range p.Objects() {
		run.Namespace, run.Spec.WorkloadClass = namespace, g.part
		unhurried(run)
		if err := site.k8s.Create(ctx, run); err != nil {
			g.tb.Fatal(err)
		}
	}
	begin := 1 + r.IntN(size.Results()/2)
	await(ctx, g.tb, patience, "the load is under way", func() string { return less(ledger.Applied(), begin) })
	out := outcome{results: size.Results(), under: ledger.Applied()}
	defer g.tellUnfinished(context.WithoutCancel(ctx), namespace)
	before := g.accounts(ctx)
	healed := g.strike(ctx, r, faults)
	await(ctx, g.tb, patience, "all runs end", func() string {
		g.revive(ctx, faults)
		n, broken := h.Finished()
		return cmp.Or(broken, less(n, size.Runs))
	})
	out.stall = w.Stall(healed)
	clerks.Close()
	g.settled(ctx)
	finals := g.finals(ctx, namespace)
	await(ctx, g.tb, patience, "the watch tells of the last writes", func() string { return h.Has(finals) })
	wrong, now := g.uncounted(ctx, before, faults)
	if !slices.ContainsFunc(faults, fault.losesCounts) {
		out.shown = map[string]bool{}
		for _, f := range faults {
			out.shown[f.name] = f.shown(before, now)
		}
	}
	out.wrong, out.counted = slices.Concat(w.Wrong(), ledger.Verdict(p, finals), wrong), moved(before, now)
	if most := bound + late(faults); out.stall > most {
		out.wrong = append(out.wrong, fmt.Sprintf("I5: no effect for %s after healing, more than %s", out.stall, most))
	}
	return out
}

// late is how much later than usual effects may come after faults.
func late(faults []fault) (longest time.Duration) {
	for _, f := range faults {
		longest = max(longest, f.late)
	}
	return longest
}

// unhurried gives steps more time than any clock is wrong by: time-outs are measured by the wall
// clock, since another replica may be the one that looks.
func unhurried(run *v1alpha1.WorkflowRun) {
	for i := range run.Spec.Steps {
		s := &run.Spec.Steps[i]
		s.TimeoutSeconds, s.StartTimeoutSeconds = int32((4 * time.Hour).Seconds()), int32((4 * time.Hour).Seconds())
	}
}

// strike has faults happen, and returns when all are healed.
func (g *rig) strike(ctx context.Context, r *rand.Rand, faults []fault) time.Time {
	g.tb.Helper()
	var heal []func()
	longest := time.Duration(0)
	for i, f := range faults {
		if i > 0 {
			hold(ctx, time.Duration(r.IntN(1000))*time.Millisecond)
		}
		heal = append(heal, f.strike(ctx, g, r))
		longest = max(longest, f.holds)
	}
	hold(ctx, longest)
	for _, h := range heal {
		h()
	}
	return time.Now()
}

// settled waits until all is as before the fault: no result is left, all servers are in step.
func (g *rig) settled(ctx context.Context) {
	g.tb.Helper()
	g.nats.AwaitReady()
	if g.sentinel != nil {
		g.sentinel.AwaitReplicas(2)
	}
	if g.cluster != nil {
		g.cluster.AwaitWhole()
	}
	g.awaitOperators(ctx)
	await(ctx, g.tb, patience, "all results are settled", func() string {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		s, err := g.js.Stream(ctx, g.names.ResultsStream())
		if err != nil {
			return err.Error()
		}
		if n := s.CachedInfo().State.Msgs; n > 0 {
			return fmt.Sprintf("%d results are left", n)
		}
		return ""
	})
}

func (g *rig) finals(ctx context.Context, namespace string) []v1alpha1.WorkflowRun {
	g.tb.Helper()
	var list v1alpha1.WorkflowRunList
	if err := site.k8s.List(ctx, &list, inNamespace(namespace)); err != nil {
		g.tb.Fatal(err)
	}
	return list.Items
}

// tellUnfinished shows the runs that have not ended when a round fails.
func (g *rig) tellUnfinished(ctx context.Context, namespace string) {
	g.tb.Helper()
	if !g.tb.Failed() {
		return
	}
	for _, run := range g.finals(ctx, namespace) {
		if run.Status != nil && run.Status.CompletedAt != nil {
			continue
		}
		text, err := json.Marshal(run.Status)
		g.tb.Logf("unfinished: %s %s, %v", run.Name, text, err)
	}
}

func less(n, want int) string {
	if n < want {
		return fmt.Sprintf("%d of %d", n, want)
	}
	return ""
}

func names(faults []fault) string {
	all := make([]string, len(faults))
	for i, f := range faults {
		all[i] = f.name
	}
	return strings.Join(all, " + ")
}
