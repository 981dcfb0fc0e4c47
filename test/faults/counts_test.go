// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// counter is a metric of operators, or those of its series that have a label.
type counter struct {
	metric, label, value string
}

// counters are what must be counted (I6), by what they prove.
var counters = map[string]counter{
	leaseLost:             {metric: "syncopate_run_lock_abandoned_total"},
	"dispatch refused":    {"syncopate_fence_rejections_total", "by", "nats_fence"},
	byVersion:             {"syncopate_fence_rejections_total", "by", "resource_version"},
	byFence:               {"syncopate_fence_rejections_total", "by", "fence_rule"},
	unanswered:            {"syncopate_status_writes_total", "outcome", "unanswered"},
	"job looked up":       {metric: "syncopate_job_recoveries_total"},
	"job fenced":          {metric: "syncopate_job_fences_total"},
	storeUnavailable:      {metric: "syncopate_lock_store_failures_total"},
	takeFailed:            {"syncopate_run_lock_acquisitions_total", "outcome", "error"},
	renewalRefused:        {"syncopate_run_lock_renewals_total", "outcome", "not_owner"},
	slotRebuilt:           {metric: "syncopate_admission_drift_total"},
	renewalFailed:         {"syncopate_run_lock_renewals_total", "outcome", "error"},
	"lock handed on":      {metric: "syncopate_run_lock_handoffs_total"},
	"API server said 429": {"rest_client_requests_total", "code", "429"},
	"API server said 500": {"rest_client_requests_total", "code", "500"},
}

// What shows that Redis could not be used.
const (
	storeUnavailable = "store unavailable"
	takeFailed       = "take failed"
	renewalFailed    = "renewal failed"
)

// unanswered are status writes that an operator gave up while their answer came, or before.
const unanswered = "write unanswered"

// unavailable are the three: which it is, is a matter of moments.
var unavailable = []string{storeUnavailable, takeFailed, renewalFailed}

// What shows that Redis lost what it had: a lock was not there when it was renewed, or a slot was
// not there when slots were compared with runs.
const (
	renewalRefused = "renewal refused"
	slotRebuilt    = "slot rebuilt"
	leaseLost      = "lease lost"
)

var forgotten = []string{renewalRefused, slotRebuilt, leaseLost}

func (c counter) of(families map[string]*dto.MetricFamily) (sum float64) {
	for _, m := range families[c.metric].GetMetric() {
		if c.label == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == c.label && l.GetValue() == c.value }) {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// scrape adds the counters of an operator that is about to go. One that does not answer counts
// nothing.
func (g *rig) scrape(ctx context.Context, o *operator) { add(g.counts, read(ctx, o)) }

func add(sum, more map[string]float64) {
	for what, n := range more {
		sum[what] += n
	}
}

// read is nil when the operator does not answer.
func read(ctx context.Context, o *operator) map[string]float64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.now.Metrics+"/metrics", http.NoBody)
	if err != nil {
		return nil
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil
	}
	counts := map[string]float64{}
	for what, c := range counters {
		counts[what] = c.of(families)
	}
	return counts
}

// accounts is a moment: what operators counted, and what went by the answers of the API server.
type accounts struct {
	counted map[string]float64
	seen    map[string]int
	told    int
}

// accounts are those of now. All operators run.
func (g *rig) accounts(ctx context.Context) accounts {
	g.tb.Helper()
	var a accounts
	a.told, a.seen = g.answers.figures()
	a.counted = maps.Clone(g.counts)
	for _, o := range g.operators {
		await(ctx, g.tb, patience, o.name+" says what it counted", func() string {
			counts := read(ctx, o)
			if counts == nil {
				return "no answer"
			}
			add(a.counted, counts)
			return ""
		})
	}
	return a
}

// uncounted is what I6 has to say against a round: the operators counted a refusal that there was
// not, or did not count one that they were told of, or no answer 409, 429 or 500 where some were
// lies. An operator that was killed takes with it what it counted last, and an answer that was lost
// on its way was none: after those, only the first is certain. A write that an operator gave up may
// have been refused while nobody listened any more.
func (g *rig) uncounted(ctx context.Context, before accounts, faults []fault) (wrong []string, now accounts) {
	g.tb.Helper()
	exact := !slices.ContainsFunc(faults, fault.losesCounts)
	for try := 0; ; try++ {
		now = g.accounts(ctx)
		wrong = differ(before, now, exact, faults)
		if len(wrong) == 0 || try == counted {
			return wrong, now
		}
		hold(ctx, time.Second) // what was answered a moment ago is counted in the next
	}
}

// counted is how often it is looked whether the last ones were counted.
const counted = 10

func differ(before, now accounts, exact bool, faults []fault) (wrong []string) {
	givenUp := int(now.counted[unanswered] - before.counted[unanswered])
	for _, what := range []string{byVersion, byFence} {
		seen, told := now.seen[what]-before.seen[what], int(now.counted[what]-before.counted[what])
		if told > seen || (exact && told < seen-givenUp) {
			wrong = append(wrong, fmt.Sprintf("I6: %s: the operators counted %d, there were %d", what, told, seen))
		}
	}
	for _, f := range faults {
		switch {
		case !f.lies || !exact: // operators that are dead ask nobody
		case now.told == before.told:
			wrong = append(wrong, f.name+": nobody was told that")
		case len(f.shows) > 0 && !f.shown(before, now):
			wrong = append(wrong, fmt.Sprintf("I6: %s: nothing was counted as %q", f.name, f.shows))
		}
	}
	return wrong
}

func (f fault) shown(before, now accounts) bool {
	return slices.ContainsFunc(f.shows, func(what string) bool { return now.counted[what] > before.counted[what] })
}

// moved is what was counted between two moments.
func moved(before, now accounts) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(counters)) {
		if n := now.counted[what] - before.counted[what]; n != 0 {
			all = append(all, fmt.Sprintf("%s %.0f", what, n))
		}
	}
	return strings.Join(all, ", ")
}
