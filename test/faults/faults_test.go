// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

func inNamespace(name string) client.ListOption { return client.InNamespace(name) }

// policy frees the runs of a killed operator soon, and has a limit for I4.
func (g *rig) policy(ctx context.Context) {
	g.tb.Helper()
	interval, margin, most := int64(900), int64(2000), int32(limit)
	p := &v1alpha1.LockPolicy{ObjectMeta: metav1.ObjectMeta{Name: "faults-" + g.part}, Spec: v1alpha1.LockPolicySpec{
		WorkloadClasses: []string{g.part},
		RunLock: v1alpha1.RunLockPolicy{
			TTLSeconds: 5, Renewal: v1alpha1.RenewalPolicy{IntervalMillis: &interval, TimeoutMillis: 500, SafetyMarginMillis: &margin},
		},
		Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: &most},
	}}
	if err := site.k8s.Create(ctx, p); err != nil {
		g.tb.Fatal(err)
	}
	g.tb.Cleanup(func() { _ = site.k8s.Delete(context.WithoutCancel(ctx), p) })
}

// tally is what became of a fault.
type tally struct {
	times, violations int
	known, shown      int // times when all is known that was counted, and when the fault showed
	stall             time.Duration
}

// sometimes is how often a fault strikes until it must have shown once.
const sometimes = 4

// rounds plays, one after the other, and reports.
type rounds struct {
	g       *rig
	byFault map[string]*tally
	begin   time.Time
}

func newRounds(ctx context.Context, t *testing.T, part string) *rounds {
	t.Helper()
	g := newRig(ctx, t, part)
	g.policy(ctx)
	return &rounds{g: g, byFault: map[string]*tally{}, begin: time.Now()}
}

func (s *rounds) play(ctx context.Context, seed uint64, plan ...[]fault) {
	s.g.tb.Helper()
	of := fmt.Sprintf("PART=%s SEEDS=%d", s.g.part, seed)
	ended := false
	defer func() {
		if !ended { // what was waited for in vain is told already
			s.g.tb.Errorf("%s, %s: the round did not end", of, names(slices.Concat(plan...)))
		}
	}()
	out := s.g.play(ctx, seed, plan...)
	ended = true
	var all []fault
	for _, k := range out.strikes {
		all = append(all, k.faults...)
		s.note(k)
		s.g.tb.Logf("%s: %s at %d of %d results; longest stall %s; took %s; counted: %s", of, names(k.faults), k.under, out.results,
			k.stall.Round(time.Millisecond), k.took.Round(100*time.Millisecond), k.counted)
	}
	for _, f := range all {
		s.byFault[f.name].violations += len(out.wrong)
	}
	for _, w := range out.wrong[:min(len(out.wrong), 10)] {
		s.g.tb.Errorf("%s, %s: %s", of, names(all), w)
	}
}

// note adds what came of a strike.
func (s *rounds) note(k strike) {
	for _, f := range k.faults {
		y := s.byFault[f.name]
		if y == nil {
			y = &tally{}
			s.byFault[f.name] = y
		}
		y.times++
		y.stall = max(y.stall, k.stall)
		if shown, known := k.shown[f.name]; known && len(f.shows) > 0 {
			y.known++
			if shown {
				y.shown++
			}
		}
	}
}

// report prints the table and says which counters never moved: one of each of want must.
func (s *rounds) report(ctx context.Context, want ...[]string) {
	s.g.tb.Helper()
	for _, o := range s.g.operators {
		s.g.scrape(ctx, o)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "part %s, %s\n| fault | times | violations | longest stall |\n|---|---|---|---|\n", s.g.part, time.Since(s.begin).Round(time.Second))
	for _, name := range slices.Sorted(maps.Keys(s.byFault)) {
		y := s.byFault[name]
		fmt.Fprintf(&b, "| %s | %d | %d | %.1f s |\n", name, y.times, y.violations, y.stall.Seconds())
	}
	for _, what := range slices.Sorted(maps.Keys(counters)) {
		fmt.Fprintf(&b, "%s: %.0f\n", what, s.g.counts[what])
	}
	s.g.tb.Log(b.String())
	for name, y := range s.byFault {
		if y.known >= sometimes && y.shown == 0 {
			s.g.tb.Errorf("I6: %s: %d times nothing was counted of it", name, y.known)
		}
	}
	for _, one := range want {
		if !slices.ContainsFunc(one, func(what string) bool { return s.g.counts[what] > 0 }) {
			s.g.tb.Errorf("I6: nothing was counted as %q", one)
		}
	}
	if refused := s.g.nats.Refusals(); len(refused) > 0 {
		s.g.tb.Errorf("NATS refused what the rights lack: %q", refused)
	}
}

func named(t *testing.T, name string) fault {
	t.Helper()
	all := table()
	i := slices.IndexFunc(all, func(f fault) bool { return f.name == name })
	if i < 0 {
		t.Fatalf("no fault is called %q", name)
	}
	return all[i]
}

// TestWhatPeopleRunOutlivesItsFaults has a fail-over that loses the last writes and a server of
// NATS that loses its disk, at the same time and under load; then an API server that answers half
// of all writes with a conflict that there is not; then one that is killed and starts again. make
// test-faults has all faults.
//
// mutations: rights.Operator without $JS.API.CONSUMER.INFO makes this fail: no operator becomes
// ready; so does pass.refused that does not count conflicts, or counts them twice (I6).
func TestWhatPeopleRunOutlivesItsFaults(t *testing.T) {
	s := newRounds(t.Context(), t, partSentinel)
	// With these seeds the faults begin when no more than ten of 120 results are there.
	s.play(t.Context(), 3, []fault{named(t, "11 fail-over loses the last writes"), named(t, "nats-server lost its disk")})
	s.play(t.Context(), 2, []fault{named(t, "28 API server says 409")})
	s.play(t.Context(), 4, []fault{named(t, "28 API server restarted")})
	s.report(t.Context(), unavailable, []string{byVersion}) // whether a job has to be looked up is a matter of moments
}

// TestFaults is one play of make test-faults: each fault by itself or in a random pair on
// FAULTS_PART, for as long as FAULTS_DURATION says, with the seeds of FAULTS_SEEDS or others.
func TestFaults(t *testing.T) {
	text := os.Getenv("FAULTS_DURATION")
	if text == "" {
		t.Skip("make test-faults")
	}
	duration, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	part := os.Getenv("FAULTS_PART")
	var wanted []string
	if w := os.Getenv("FAULTS_WANTED"); w != "" {
		wanted = strings.Split(w, ",")
	}
	deadline := time.Now().Add(duration)
	s := newRounds(t.Context(), t, part)
	for n, seed := range seeds(t) {
		if n > 0 && time.Now().After(deadline) {
			break
		}
		s.play(t.Context(), seed, draw(t, part, seed, wanted)...)
	}
	s.report(t.Context())
}

// seeds are those that were asked for, or random ones without end.
func seeds(t *testing.T) func(yield func(int, uint64) bool) {
	t.Helper()
	var fixed []uint64
	for text := range strings.SplitSeq(os.Getenv("FAULTS_SEEDS"), ",") {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		fixed = append(fixed, n)
	}
	first := uint64(time.Now().UnixMilli())
	if play, err := strconv.ParseUint(os.Getenv("FAULTS_PLAY"), 10, 64); err == nil { // of several that begin at the same time
		first += play * 1_000_000
	}
	return func(yield func(int, uint64) bool) {
		for i := 0; len(fixed) == 0 || i < len(fixed); i++ {
			seed := first + uint64(i)
			if len(fixed) > 0 {
				seed = fixed[i]
			}
			if !yield(i, seed) {
				return
			}
		}
	}
}

// strikes are how many follow each other in a round, if the load lasts.
const strikes = 8

// draw are the strikes of a seed: a fault or a pair each. wanted are those to draw from, by text
// that their names have; none: all. Where no two of these go together, the second is any.
func draw(t *testing.T, part string, seed uint64, wanted []string) (plan [][]fault) {
	t.Helper()
	var all, firsts []fault
	for _, f := range table() {
		if !f.in(part) || (f.clocks && !site.clocks) {
			continue
		}
		all = append(all, f)
		if len(wanted) == 0 || slices.ContainsFunc(wanted, func(w string) bool { return strings.Contains(f.name, w) }) {
			firsts = append(firsts, f)
		}
	}
	if len(firsts) == 0 {
		t.Fatalf("part %s has none of the faults %q", part, wanted)
	}
	r := rand.New(rand.NewPCG(seed, 2))
	for k := range uint64(strikes) {
		first := firsts[(seed*strikes+k)%uint64(len(firsts))] // seeds in a row have each in turn
		plan = append(plan, beside(r, first, firsts, all))
	}
	return plan
}

// beside is a fault by itself, or with another one that can happen at the same time: of those that
// are wanted, if one of them can.
func beside(r *rand.Rand, first fault, wanted, all []fault) []fault {
	if first.to == toAll || r.IntN(4) == 0 {
		return []fault{first}
	}
	fits := func(second fault) bool { return second.to != first.to && second.to != toAll }
	if !slices.ContainsFunc(wanted, fits) {
		wanted = all
	}
	for {
		if second := wanted[r.IntN(len(wanted))]; fits(second) {
			return []fault{first, second}
		}
	}
}
