// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/syncopate-dev/syncopate/internal/testenv/norace"
)

var update = flag.Bool("update", false, "play all rollouts of the simulation, and write its table to docs/rollout.md")

const (
	simulationSeed = 20260102
	simulatedRuns  = 3000
	usualBusy      = 0.3              // of contended runs are busy again under the baseline
	reportEvery    = 30 * time.Second // as in internal/controller/lockpolicy
	page           = "../../docs/rollout.md"
)

// traffic makes runs whose contention comes in storms, whose retries come in clusters, and whose
// waits and latencies have heavy tails which depend on both.
type traffic struct {
	rnd   *rand.Rand
	storm bool
}

// behaviour is how runs of an arm differ from the baseline's.
type behaviour struct {
	busy float64 // times the probability that a contended run is busy again
	tail float64 // times the waits
	slow float64 // times the latency
	lock float64 // times the probability that a run is contended
}

var same = behaviour{1, 1, 1, 1}

// scenario is what is simulated.
type scenario struct {
	name      string
	busy      float64 // of contended runs of the baseline, outside storms
	candidate behaviour
	plan      Plan
	look      int           // after how many runs the counts are judged
	delay     time.Duration // of the baseline, between two tries; 0: 500 ms
	contended float64       // of the runs of the baseline; 0: 0.6
	deleted   float64       // of the runs, each at a time before its end; those never vote
	patience  time.Duration // a run that lasts for longer is deleted then; 0: none is for that
	replicas  int           // each has its part of the runs; all but one report each reportEvery. 0: one
	every     time.Duration // a run begins; 0: second
	budget    time.Duration // a run that waits for its lock says so, and is counted as begun, after it; 0: at once
}

type outcome struct {
	phase           Phase
	reason          Reason
	busy, contended int64 // runs of both arms, when it ended
}

// run makes a run: its votes, and after how long it ends.
func (tr *traffic) run(s scenario, b behaviour) (c Counts, lasts time.Duration) {
	if tr.storm = tr.rnd.Float64() < map[bool]float64{true: 0.98, false: 0.005}[tr.storm]; tr.storm {
		s.busy = min(1, s.busy*1.5)
	}
	c.Ended++
	wait := time.Duration(0)
	if tr.rnd.Float64() < cmp.Or(s.contended, 0.6)*b.lock {
		c.Contended++
		tries := 1
		if tr.rnd.Float64() < s.busy*b.busy {
			c.Busy++
			for tries = 2; tr.rnd.Float64() < 0.6; tries++ { // who lost a race loses the next ones, too
			}
		}
		wait = time.Duration(float64(tries) * b.tail * (0.7 + 0.6*tr.rnd.Float64()) * float64(cmp.Or(s.delay, 500*time.Millisecond)))
	}
	latency := time.Duration(b.slow * (math.Exp(tr.rnd.NormFloat64())*float64(20*time.Millisecond) + float64(wait)))
	c.Waits.Add(wait)
	c.Latencies.Add(latency)
	return c, max(wait, latency)
}

// simulated is a run of an arm, or of none. It votes when it ends.
type simulated struct {
	says, ends time.Time // when it is counted as begun, and its end
	canary     bool
	began      *int64  // of the replica that has the run
	arm        *Counts // likewise; nil: of none
	votes      Counts  // none of a run that is deleted
	begun      bool
	over       bool
}

// goOn counts the begin and the votes of runs until now. It gives those that did not end, and those
// whose votes may not be reported yet.
func goOn(runs []simulated, now time.Time) []simulated {
	for i := range runs {
		run := &runs[i]
		if !run.begun && !run.says.After(now) {
			*run.began, run.begun = *run.began+1, true
		}
		if run.over || run.ends.After(now) {
			continue
		}
		if run.over = true; run.arm != nil {
			*run.arm = run.arm.Plus(run.votes)
		}
	}
	return slices.DeleteFunc(runs, func(run simulated) bool {
		return run.over && (run.arm == nil || run.votes == Counts{} || now.Sub(run.ends) >= 2*reportEvery)
	})
}

// deletes is when a run that would last for so long is deleted; lasts: it is not.
func (s scenario) deletes(rnd *rand.Rand, lasts time.Duration) (at time.Duration, deleted bool) {
	switch {
	case s.patience > 0 && lasts > s.patience:
		return s.patience, true
	case s.deleted > 0 && rnd.Float64() < s.deleted:
		return time.Duration(rnd.Float64() * float64(lasts)), true
	default:
		return lasts, false
	}
}

// lookAt counts the runs of each arm that are there and said so: those that did not end, and those
// that ended lately.
func lookAt(runs []simulated) UnderWay {
	u := UnderWay{Known: true}
	for _, run := range runs {
		switch {
		case !run.begun || run.arm == nil:
		case run.canary && run.over:
			u.EndedCanary++
		case run.over:
			u.EndedControl++
		case run.canary:
			u.Canary++
		default:
			u.Control++
		}
	}
	return u
}

// office is what each replica counted, and what it reported of that. The first one decides.
type office struct {
	counted, reported []Tally
	due               []time.Time
}

func newOffice(replicas int, now time.Time) *office {
	o := &office{make([]Tally, replicas), make([]Tally, replicas), make([]time.Time, replicas)}
	for i := range o.due {
		o.due[i] = now.Add(reportEvery * time.Duration(i) / time.Duration(replicas))
	}
	return o
}

// report has those report whose turn it is.
func (o *office) report(now time.Time) {
	for i := range o.due {
		if i > 0 && !now.Before(o.due[i]) {
			o.reported[i], o.due[i] = o.counted[i], now.Add(reportEvery)
		}
	}
}

// tally is what the first one knows.
func (o *office) tally() (t Tally) {
	o.reported[0] = o.counted[0]
	for _, reported := range o.reported {
		t = t.Plus(reported)
	}
	return t
}

// begin makes a run of an arm that begins now. deletes draws whether it is deleted.
func (s scenario) begin(tr *traffic, deletes *rand.Rand, arm Arm, in *Tally, now time.Time) simulated {
	run := simulated{canary: arm == Canary, says: now}
	b := same
	switch arm {
	case Canary:
		b, run.arm, run.began = s.candidate, &in.Canary, &in.Canary.Runs
	case Control:
		run.arm, run.began = &in.Control, &in.Control.Runs
	default:
		run.began = &in.Rest
	}
	votes, lasts := tr.run(s, b)
	contended, deleted := votes.Contended > 0, false
	if arm != Rest {
		lasts, deleted = s.deletes(deletes, lasts)
	}
	if contended { // as policy.Effective.Patience: as patient as the baseline in all arms
		run.says = now.Add(min(s.budget, lasts))
	}
	if run.ends = now.Add(lasts); !deleted {
		run.votes = votes
	}
	return run
}

// play simulates a rollout of so many runs.
func (s scenario) play(seed uint64) outcome {
	tr := &traffic{rnd: rand.New(rand.NewPCG(simulationSeed, seed))}
	spec := Revision{Hash: fmt.Sprintf("%08x", seed), Generation: 2}
	now, every := time.Unix(0, 0), cmp.Or(s.every, time.Second)
	state := State{Phase: Stable, Baseline: Revision{Hash: "old", Generation: 1}}
	all, deletes := newOffice(max(1, s.replicas), now), rand.New(rand.NewPCG(simulationSeed+1, seed)) // the runs are those of a scenario without deletes
	var runs []simulated
	for i := range simulatedRuns {
		if i%s.look == 0 {
			state, _ = Decide(Input{Plan: s.plan, Spec: spec, State: state, Tally: all.tally(), UnderWay: lookAt(runs), Now: now})
			if !state.Active() {
				break
			}
		}
		now = now.Add(every)
		arm := ArmOf(fmt.Sprint("run-", i), state.Candidate.Name(), state.Percent)
		runs = append(runs, s.begin(tr, deletes, arm, &all.counted[i%len(all.counted)], now))
		runs = goOn(runs, now.Add(every))
		all.report(now)
	}
	t := state.Seen
	return outcome{state.Phase, state.Reason, t.Canary.Busy + t.Control.Busy, t.Canary.Contended + t.Control.Contended}
}

// repeat plays a scenario with many seeds.
func (s scenario) repeat(times int) result {
	outcomes := make([]outcome, times)
	var group sync.WaitGroup
	for part := range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for i := part; i < times; i += runtime.GOMAXPROCS(0) {
				outcomes[i] = s.play(uint64(i))
			}
		})
	}
	group.Wait()
	r := result{scenario: s, times: times, reasons: map[Reason]int{}}
	var busy, contended []int64
	for _, o := range outcomes {
		if o.phase == Promoted {
			r.promoted++
		}
		if o.phase == RolledBack {
			r.reasons[o.reason]++
			busy, contended = append(busy, o.busy), append(contended, o.contended)
		}
	}
	r.busy, r.contended = median(busy), median(contended)
	return r
}

type result struct {
	scenario
	times, promoted int
	reasons         map[Reason]int
	busy, contended int64 // medians, of those that were rolled back
}

// rolledBack counts those for which the data spoke against the candidate.
func (r result) rolledBack() (n int) {
	for reason, count := range r.reasons {
		if reason != ReasonInsufficientData {
			n += count
		}
	}
	return n
}

func (r result) row() string {
	percent := func(n int) string { return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(r.times)) }
	medians := " | "
	if r.rolledBack()*2 > r.times {
		medians = fmt.Sprintf("%d | %d", r.busy, r.contended)
	}
	least := ""
	if n := r.leastRuns(); n > 0 {
		least = fmt.Sprint(n)
	}
	return fmt.Sprintf("| %s | %.0f %% | %s | %s | %s | %s | %s |", r.name, 100*r.scenario.busy, percent(r.rolledBack()), percent(r.promoted),
		percent(r.times-r.rolledBack()-r.promoted), medians, least)
}

// leastRuns is how many contended runs any test needs, in the mean, that accuses no more than one
// in 200 candidates wrongly: log(200) / KL, where KL is what a run of the candidate's arms is worth
// to a test that is given the factor and the storms (Wald's bound). 0: nothing differs.
func (s scenario) leastRuns() int64 {
	if s.candidate.busy == 1 || s.candidate.lock != 1 {
		return 0
	}
	const stormy = 0.2 // of the runs, in the mean
	worth := (1-stormy)*worthOfARun(s.busy, s.candidate.busy) + stormy*worthOfARun(min(1, s.busy*1.5), s.candidate.busy)
	return int64(math.Ceil(busyLimit / worth))
}

// worthOfARun is the mean evidence of a contended run that is busy with this probability, or so
// many times of it under the candidate.
func worthOfARun(busy, times float64) float64 {
	more := min(1, busy*times)
	worth := func(canary, control float64) (kl float64) {
		for _, p := range []float64{canary, control} {
			if p > 0 {
				kl += p / 2 * math.Log(2*p/(canary+control))
			}
		}
		return kl
	}
	return worth(more, busy) + worth(1-more, 1-busy)
}

func median(of []int64) int64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

// scenarios are the rows of the table.
func scenarios() []scenario {
	steps := Plan{
		Canary: true, StepsPercent: []int{5, 20, 50}, MinContendedRuns: 40, MaxStep: time.Hour, Hold: true,
		BusyRunsPercent: 120, WaitTailPercent: 150, LatencyPercent: 120,
	}
	short := steps
	short.StepsPercent = []int{20, 50}
	large := steps
	large.StepsPercent = []int{40, 50}
	watched := steps // never has enough to go on, so it is judged until the runs end
	watched.StepsPercent, watched.MinContendedRuns = []int{50}, simulatedRuns
	tails := watched // thresholds need less
	tails.MinContendedRuns = 200
	times := func(busy float64) behaviour { return behaviour{busy, 1, 1, 1} }
	list := []scenario{
		{name: "no difference, steps 5, 20, 50", busy: usualBusy, candidate: same, plan: steps, look: 30},
		{name: "no difference, steps 20, 50", busy: usualBusy, candidate: same, plan: short, look: 30},
		{name: "no difference, steps 20, 50", busy: 0.1, candidate: same, plan: short, look: 30},
		{name: "no difference, half of the runs, judged after each 10", busy: usualBusy, candidate: same, plan: watched, look: 10},
		{name: "no difference, half of the runs, judged after each 10", busy: 0.1, candidate: same, plan: watched, look: 10},
		{name: "busy runs x 1.5, steps 20, 50", busy: usualBusy, candidate: times(1.5), plan: short, look: 30},
		{name: "busy runs x 2, steps 20, 50", busy: usualBusy, candidate: times(2), plan: short, look: 30},
		{name: "busy runs x 2, half of the runs", busy: usualBusy, candidate: times(2), plan: watched, look: 1},
		{name: "busy runs x 2, half of the runs", busy: 0.1, candidate: times(2), plan: watched, look: 1},
		{name: "busy runs x 3, half of the runs", busy: usualBusy, candidate: times(3), plan: watched, look: 1},
		{name: "busy runs x 3, half of the runs", busy: 0.1, candidate: times(3), plan: watched, look: 1},
		{name: "busy runs x 5, half of the runs", busy: 0.1, candidate: times(5), plan: watched, look: 1},
		{name: "waits x 3, half of the runs", busy: usualBusy, candidate: behaviour{1, 3, 1, 1}, plan: tails, look: 10},
		{name: "latencies x 3, half of the runs", busy: usualBusy, candidate: behaviour{1, 1, 3, 1}, plan: tails, look: 10},
		{name: "delays of 100 s -> 500 ms, steps 40, 50", busy: usualBusy, candidate: behaviour{1, 1. / 200, 1, 1}, plan: large, look: 30, delay: 100 * time.Second},
		{name: "a fiftieth contended, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 1, 1, 0.02}, plan: short, look: 30},
		{name: "a fiftieth contended, all of them busy, steps 20, 50", busy: usualBusy, candidate: behaviour{3.3, 1, 1, 0.02}, plan: short, look: 30},
		{name: "half contended, busy runs x 3, half of the runs", busy: usualBusy, candidate: behaviour{3, 1, 1, 0.5}, plan: watched, look: 1},
		{name: "contended runs wait for an hour, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 7200, 1, 1}, plan: short, look: 30, contended: 0.3},
		{name: "delays of 65 s -> 260 s, busy runs x 2.5, steps 20, 50", busy: 0.2, candidate: behaviour{2.5, 4, 1, 1}, plan: short, look: 30, delay: 65 * time.Second, contended: 0.3},
	}
	return slices.Concat(list, withDeletes(short, watched, large), withReplicas(short, large))
}

// withDeletes are scenarios in which users delete runs.
func withDeletes(steps, watched, large Plan) []scenario {
	large.MinContendedRuns = 60 // until then far fewer runs of a control that loses them have ended
	return []scenario{
		{name: "no difference, a tenth of the runs deleted, steps 20, 50", busy: usualBusy, candidate: same, plan: steps, look: 30, deleted: 0.1},
		{name: "no difference, a third of the runs deleted, half of the runs", busy: usualBusy, candidate: same, plan: watched, look: 10, deleted: 0.33},
		{name: "a fifth contended -> none, a fifth of the runs deleted, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 1, 1, 0}, plan: steps, look: 30, contended: 0.2, deleted: 0.2},
		{name: "a quarter contended, busy runs x 3, a third of the runs deleted, half of the runs", busy: 0.1, candidate: behaviour{3, 1, 1, 1}, plan: watched, look: 1, contended: 0.25, deleted: 0.33},
		{name: "contended runs wait for an hour, and are deleted after 5 min, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 7200, 1, 1}, plan: steps, look: 30, contended: 0.3, patience: 5 * time.Minute},
		{name: "a fiftieth contended, delays of 40 s, and runs that wait deleted after 1 min, steps 40, 50", busy: 0.6, candidate: behaviour{1, 1, 1, 0.02}, plan: large, look: 30, delay: 40 * time.Second, patience: time.Minute},
		{name: "delays of 40 s -> 4 s, busy runs x 2.5, and runs that wait deleted after 1 min, steps 40, 50", busy: 0.2, candidate: behaviour{2.5, 0.1, 1, 1}, plan: large, look: 30, delay: 40 * time.Second, patience: time.Minute},
		{name: "busy runs x 2, a third of the runs deleted, half of the runs", busy: usualBusy, candidate: behaviour{2, 1, 1, 1}, plan: watched, look: 10, deleted: 0.33},
		{name: "busy runs x 2, a third of the runs deleted, steps 20, 50", busy: usualBusy, candidate: behaviour{2, 1, 1, 1}, plan: steps, look: 30, deleted: 0.33},
		{name: "delays of 40 s -> 4 s, and runs that wait deleted after 1 min, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 0.1, 1, 1}, plan: steps, look: 30, delay: 40 * time.Second, patience: time.Minute},
		{name: "delays of 20 s -> 2 s, and runs that wait deleted after 1 min, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 0.1, 1, 1}, plan: steps, look: 30, delay: 20 * time.Second, patience: time.Minute},
		{name: "delays of 40 s -> 4 s, runs that wait deleted after 1 min, and a tenth of all, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 0.1, 1, 1}, plan: steps, look: 30, delay: 40 * time.Second, patience: time.Minute, deleted: 0.1},
		{name: "delays of 40 s -> 4 s, runs that wait deleted after 1 min, and a third of all, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 0.1, 1, 1}, plan: steps, look: 30, delay: 40 * time.Second, patience: time.Minute, deleted: 0.33},
		{name: "delays of 40 s -> 4 s, runs that wait deleted after 1 min, and a fifth of all, half of the runs", busy: usualBusy, candidate: behaviour{1, 0.1, 1, 1}, plan: watched, look: 10, delay: 40 * time.Second, patience: time.Minute, deleted: 0.2},
		{name: "delays of 100 s -> 500 ms, and runs that wait deleted after 1 min, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 1. / 200, 1, 1}, plan: steps, look: 30, delay: 100 * time.Second, patience: time.Minute},
	}
}

// withReplicas are scenarios in which three replicas have the runs, and two of them report what
// they counted each 30 s: so in fast traffic most of the votes are late.
func withReplicas(steps, large Plan) []scenario {
	const fast = 200 * time.Millisecond
	return []scenario{
		{name: "no difference, 3 replicas, 5 runs a second, steps 20, 50", busy: usualBusy, candidate: same, plan: steps, look: 100, replicas: 3, every: fast},
		{name: "no difference, 3 replicas, a tenth of the runs deleted, steps 20, 50", busy: usualBusy, candidate: same, plan: steps, look: 30, replicas: 3, deleted: 0.1},
		{name: "delays of 20 s -> 500 ms, 3 replicas, 5 runs a second, steps 40, 50", busy: usualBusy, candidate: behaviour{1, 1. / 40, 1, 1}, plan: large, look: 10, delay: 20 * time.Second, replicas: 3, every: fast},
		{name: "a fifth contended -> none, 3 replicas, a fifth of the runs deleted, steps 20, 50", busy: usualBusy, candidate: behaviour{1, 1, 1, 0}, plan: steps, look: 30, contended: 0.2, deleted: 0.2, replicas: 3},
		{name: "no difference, runs that wait for 100 s count as begun after 60 s, 5 runs a second, steps 40, 50", busy: usualBusy, candidate: same, plan: large, look: 30, delay: 100 * time.Second, budget: time.Minute, every: fast},
	}
}

// The numbers of the issue. In the gate a tenth of the rollouts is played; -update plays all, and
// writes the table.
//
// mutation: deleted runs that are under way for good, or of which only the difference matters, or
// only one that is hardly chance; those of the control that hold a better candidate up; a
// vote for each retry instead of one for each run, a limit of log(2), thresholds that are not
// frozen, a ratio of ended runs that fails on both sides, votes that leave out the runs of the
// control which are late, and contention that is gone where runs under way may be contended make
// this fail.
func TestRolloutsBySimulation(t *testing.T) {
	norace.Only(t)
	times := 100
	if *update {
		times = 1000
	}
	var rows []string
	for _, s := range scenarios() {
		r := s.repeat(times)
		rows = append(rows, r.row())
		t.Log(r.row(), r.reasons)
		none, better := s.candidate == same, s.candidate.tail < 1 && s.candidate.busy <= 1 || s.candidate.lock < 0.5
		if none && r.rolledBack()*100 > times {
			t.Errorf("%s: %d of %d are rolled back, %v; 1 %% is borne", s.name, r.rolledBack(), times, r.reasons)
		}
		if s.patience > 0 && better && r.rolledBack()*100 > times { // it ends as the control does: hardly ever
			t.Errorf("%s: %d of %d are rolled back, %v", s.name, r.rolledBack(), times, r.reasons)
		}
		passes := 95
		if s.deleted > 0.3 {
			passes = 80 // what chance deletes of the control hides what it lost as it hung
		}
		if better && s.plan.StepsPercent[0] < 50 && (s.patience == 0 || s.delay < s.patience) && (r.promoted*100 < times*passes || r.rolledBack()*100 > times) {
			t.Errorf("%s: %d of %d are promoted, %v", s.name, r.promoted, times, r.reasons)
		}
		if s.candidate.tail > 1000 && r.promoted > 0 {
			t.Errorf("%s: %d of %d are promoted", s.name, r.promoted, times)
		}
		if (s.candidate.tail == 4 || s.candidate.tail < 1 && !better) && r.promoted*100 > times*20 {
			t.Errorf("%s: %d of %d are promoted", s.name, r.promoted, times)
		}
		if most, ok := map[float64]int64{2: 150, 3: 60}[s.candidate.busy]; ok && s.candidate.lock == 1 && s.look == 1 && s.busy == usualBusy && r.contended > most {
			t.Errorf("%s: found after %d contended runs, %d are allowed", s.name, r.contended, most)
		}
		if least := s.leastRuns(); least > 0 && s.look == 1 && s.deleted == 0 && r.contended*2 > least*3 {
			t.Errorf("%s: found after %d contended runs; half as many again as the least, %d, are allowed", s.name, r.contended, least)
		}
		found := 95
		if s.candidate.lock < 1 {
			found = 75 // of all runs less than one and a half times as many are busy, as in storms nearly all contended ones are
		}
		if s.deleted > 0.3 && s.contended > 0 {
			found = 0 // far more were deleted than were busy: chance alone may have deleted as many busy ones
		}
		if !none && !better && s.plan.StepsPercent[0] == 50 && r.rolledBack()*100 < times*found {
			t.Errorf("%s: only %d of %d were found", s.name, r.rolledBack(), times)
		}
	}
	if *update {
		const head = "| rollouts | busy | rolled back | promoted | neither | busy runs | contended runs | at least |\n|---|---|---|---|---|---|---|---|\n"
		writeTable(t, "simulation", fmt.Sprintf("%d rollouts a row, %d runs each, seed %d.", times, simulatedRuns, simulationSeed), head, rows)
	}
}

// writeTable puts a table between its marks on the page.
func writeTable(t *testing.T, name, caption, head string, rows []string) {
	t.Helper()
	begin, end := "<!-- "+name+" begin -->\n", "<!-- "+name+" end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s lacks the marks of the table", page)
	}
	table := before + begin + caption + "\n\n" + head + strings.Join(rows, "\n") + "\n" + end + after
	if err := os.WriteFile(page, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
}
