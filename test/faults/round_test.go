// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
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
	// busy is how much longer it may take where other tests have the machine, too.
	busy = time.Minute
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

// strike is a fault or a pair that happens at the same time, and what came of it.
type strike struct {
	faults  []fault
	under   int // effects when it began; a fault without load proves nothing
	stall   time.Duration
	took    time.Duration   // until it is known what came of it
	counted string          // by the operators
	shown   map[string]bool // by the names of the faults; nil: not all is known that they counted
}

// outcome is that of a round.
type outcome struct {
	results int
	strikes []strike
	wrong   []string
}

// play is one round: strikes one after the other, for as long as there is load. The next begins
// when all servers are as before.
func (g *rig) play(ctx context.Context, seed uint64, plan ...[]fault) outcome {
	g.tb.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	size := book.Size{
		Runs: 12, Steps: max(8, 2*len(plan)), Workers: 12, Patience: patience,
		Quick: time.Duration(len(plan)-1) * time.Second, Slow: time.Second, Late: 2 * time.Second, // so slow that there is load for all strikes
	}
	l := g.load(ctx, seed, size)
	defer l.stop()
	defer g.tellUnfinished(context.WithoutCancel(ctx), l.namespace)
	out := outcome{results: size.Results()}
	share := size.Results() / (2 * len(plan))
	g.await(ctx, l, nil, 1+r.IntN(share))
	before, so := g.accounts(ctx), []fault(nil) // far
	for k, faults := range plan {
		so = append(so, faults...)
		begin := time.Now()
		s := strike{faults: faults, under: l.ledger.Applied()}
		healed := g.strike(ctx, r, faults)
		g.whole(ctx, so)
		next := l.ledger.Applied() + 1 + r.IntN(share)
		last := k+1 == len(plan) || next > size.Results()*9/10
		if last {
			g.end(ctx, l, so)
		} else {
			g.await(ctx, l, so, next)
		}
		s.stall, s.took = l.watcher.Stall(healed), time.Since(begin)
		wrong, now := g.uncounted(ctx, before, faults)
		most := bound + late(so)
		if os.Getenv("FAULTS_DURATION") == "" { // it is no play of make test-faults
			most += busy
		}
		if s.stall > most {
			wrong = append(wrong, fmt.Sprintf("I5: no effect for %s after healing, more than %s", s.stall, most))
		}
		s.notice(before, now)
		before = now
		out.strikes, out.wrong = append(out.strikes, s), append(out.wrong, wrong...)
		if last {
			break
		}
	}
	out.wrong = slices.Concat(l.watcher.Wrong(), l.ledger.Verdict(l.plan, l.finals), out.wrong)
	return out
}

// notice keeps what was counted meanwhile.
func (s *strike) notice(before, now accounts) {
	s.counted = moved(before, now)
	if slices.ContainsFunc(s.faults, fault.losesCounts) {
		return
	}
	s.shown = map[string]bool{}
	for _, f := range s.faults {
		s.shown[f.name] = f.shown(before, now)
	}
}

// load is what is done in a round.
type load struct {
	namespace string
	size      book.Size
	plan      book.Plan
	ledger    *book.Ledger
	watcher   *book.Watcher
	history   *book.History
	clerks    *book.Clerks
	finals    []v1alpha1.WorkflowRun // in the end
	stop      func()
}

func (g *rig) load(ctx context.Context, seed uint64, size book.Size) *load {
	g.tb.Helper()
	l := &load{namespace: fmt.Sprintf("faults-%s-%d", g.part, seed), size: size, plan: book.MakePlan(seed, size), ledger: book.New()}
	if err := site.k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}); err != nil {
		g.tb.Fatal(err)
	}
	l.watcher = book.NewWatcher(l.ledger, limit)
	var err error
	if l.history, l.stop, err = book.Follow(ctx, site.k8s, l.namespace, l.watcher.See); err != nil {
		g.tb.Fatal(err)
	}
	l.clerks = book.Hire(ctx, g.job, g.names, l.namespace, l.plan, l.ledger)
	for _, run := range l.plan.Objects() {
		run.Namespace, run.Spec.WorkloadClass = l.namespace, g.part
		unhurried(run)
		if err := site.k8s.Create(ctx, run); err != nil {
			g.tb.Fatal(err)
		}
	}
	return l
}

// await waits until so many results have their effect. There were faults so far.
func (g *rig) await(ctx context.Context, l *load, so []fault, results int) {
	g.tb.Helper()
	await(ctx, g.tb, patience, "the load goes on", func() string {
		g.revive(ctx, so)
		return less(l.ledger.Applied(), results)
	})
}

// end waits until all runs have ended, and nothing is left of them.
func (g *rig) end(ctx context.Context, l *load, so []fault) {
	g.tb.Helper()
	await(ctx, g.tb, patience, "all runs end", func() string {
		g.revive(ctx, so)
		n, broken := l.history.Finished()
		return cmp.Or(broken, less(n, l.size.Runs))
	})
	l.clerks.Close()
	g.whole(ctx, so)
	g.settled(ctx)
	l.finals = g.finals(ctx, l.namespace)
	await(ctx, g.tb, patience, "the watch tells of the last writes", func() string { return l.history.Has(l.finals) })
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

// strike has the faults of one happen, and returns when all are healed.
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

// whole waits until all servers are in step, as before the fault.
func (g *rig) whole(ctx context.Context, so []fault) {
	g.tb.Helper()
	g.nats.AwaitReady()
	if g.sentinel != nil {
		g.sentinel.AwaitReplicas(2)
	}
	if g.cluster != nil {
		g.cluster.AwaitWhole()
	}
	g.revive(ctx, so)
	g.awaitOperators(ctx)
}

// settled waits until no result is left.
func (g *rig) settled(ctx context.Context) {
	g.tb.Helper()
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
