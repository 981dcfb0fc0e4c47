// SPDX-License-Identifier: Apache-2.0

package views

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
	"github.com/syncopate-dev/syncopate/internal/console/facts"
	"github.com/syncopate-dev/syncopate/internal/policy"
	"github.com/syncopate-dev/syncopate/internal/rollout"
)

const (
	maxHolders = 20
	tail       = 0.95
	waveWidth  = 560
	waveHeight = 60
)

// Policies is the page of locks and policies.
type Policies struct {
	Scope         // of Holders
	Hidden   bool // the user may not see policies
	Policies []Policy
	Holders  []RunRow // runs under way, with who wrote them last
	More     int      // of these
	Others   bool     // there are runs that the list does not have
	Stale    string   // why the list is not kept up to date; "": it is
}

// Policy is a LockPolicy.
type Policy struct {
	Name, Classes          string
	Ready, Reason, Message string
	Bad                    bool
	Figures                []Detail
	Wave                   Wave
	Rollout                *Rollout
}

// Wave is how busy the locks of a policy were, over time.
type Wave struct {
	Width, Height int
	Busy, Wait    string // lines
	MostBusy      int64
	MostWait      int64
	Since         Moment
	Summary       string
}

// Rollout is where an edit of a policy is.
type Rollout struct {
	Phase, Tone, Mark   string
	Percent             int32
	Units, Column       string // what is in an arm, in words
	Since               Moment
	Reason, Message     string
	Baseline, Candidate string
	Changes             []string // of the candidate, against the baseline
	Arms                []Arm
	History             []Outcome
}

// Arm is the part of the runs, or of the minutes of tenants, with the candidate, or the one that is
// compared with it.
type Arm struct {
	Name                                                        string
	Runs, Ended, Contended, Busy, Abandoned, Fences, DeadLetter int64
	Wait, Latency                                               string
	Bar                                                         []Segment
}

// Outcome is what became of a candidate.
type Outcome struct {
	Name, Reason string
	Ended        Moment
	Changes      []string
}

// PoliciesOf makes the page. policies is nil if they may not be seen.
func PoliciesOf(policies []v1alpha1.LockPolicy, waves map[string][]facts.Sample, rows facts.Rows, now time.Time) Policies {
	page := Policies{Hidden: policies == nil, Others: rows.More}
	if rows.Stale != nil {
		page.Stale = text(rows.Stale.Error())
	}
	for i := range policies {
		page.Policies = append(page.Policies, policyOf(&policies[i], waves[policies[i].Name], now))
	}
	for i := range rows.All {
		row := rows.All[i]
		if row.Holder == "" || row.Ended() {
			continue
		}
		if len(page.Holders) == maxHolders {
			page.More++
			continue
		}
		page.Holders = append(page.Holders, RunRow{row, Mark(row.Phase), Tone(row.Phase), moment(&row.Created, now)})
	}
	return page
}

func policyOf(p *v1alpha1.LockPolicy, samples []facts.Sample, now time.Time) Policy {
	out := Policy{Name: p.Name, Ready: "not looked at yet", Wave: waveOf(samples, now)}
	st := p.Status
	if st == nil {
		return out
	}
	if c := meta.FindStatusCondition(st.Conditions, v1alpha1.ConditionReady); c != nil {
		out.Bad, out.Reason, out.Message = c.Status != metav1.ConditionTrue, shortText(c.Reason), text(c.Message)
		if out.Ready = "in force"; out.Bad {
			out.Ready = "not in force, or not for all of its classes"
		}
	}
	add := func(name, format string, values ...any) {
		out.Figures = append(out.Figures, Detail{Name: name, Text: fmt.Sprintf(format, values...)})
	}
	if e := st.Effective; e != nil {
		out.Classes = shortText(e.Classes)
		add("A holder may work for", "%s", span(time.Duration(e.ValidityMillis)*time.Millisecond))
		add("It renews every", "%s", span(time.Duration(e.RenewIntervalMillis)*time.Millisecond))
		add("A busy lock is tried again after", "%s", shortText(e.BusyRetryDelay))
	}
	if r := st.Runs; r != nil {
		add("Runs", "%d admitted, %d queued", r.Admitted, r.Queued)
	}
	if c := st.Contention; c != nil {
		add("Busy locks", "%d retries a minute", c.BusyRetriesPerMinute)
		add("Lock wait", "p95 %s, p99 %s", span(time.Duration(c.P95LockWaitMillis)*time.Millisecond), span(time.Duration(c.P99LockWaitMillis)*time.Millisecond))
	}
	if st.Rollout != nil {
		out.Rollout = rolloutOf(st.Rollout, now)
	}
	return out
}

func rolloutOf(r *v1alpha1.LockPolicyRolloutStatus, now time.Time) *Rollout {
	tones := map[v1alpha1.RolloutPhase][2]string{"Progressing": {"busy", "●"}, "Holding": {"warn", "‖"}, "Promoted": {"good", "✔"}, "RolledBack": {"bad", "↩"}, "Stable": {"idle", "·"}}
	t, known := tones[r.Phase]
	if !known {
		t = [2]string{"idle", "·"}
	}
	out := &Rollout{
		Phase: words(string(r.Phase)), Tone: t[0], Mark: t[1], Percent: r.Percent, Since: moment(&r.ChangedAt.Time, now), Reason: shortText(r.Reason),
		Message: text(r.Message), Baseline: r.Baseline.Name, Units: "runs", Column: "Runs",
	}
	if policy.UnitOf(r) == rollout.TenantMinute {
		out.Units, out.Column = "minutes of each tenant", "Minutes of tenants"
	}
	if r.Candidate != nil {
		out.Candidate, out.Changes = r.Candidate.Name, shortTexts(policy.CandidateChanges(r))
	}
	if r.Canary != nil || r.Control != nil {
		out.Arms = []Arm{armOf("canary: the edit", r.Canary), armOf("control: as before", r.Control)}
	}
	for _, h := range slices.Backward(r.History) {
		out.History = append(out.History, Outcome{h.Name, shortText(h.Reason), moment(&h.EndedAt.Time, now), shortTexts(h.Changes)})
	}
	return out
}

func armOf(name string, c *v1alpha1.RolloutCounts) Arm {
	if c == nil {
		c = &v1alpha1.RolloutCounts{}
	}
	var waits, latencies rollout.Histogram
	copy(waits[:], c.Waits)
	copy(latencies[:], c.Latencies)
	a := Arm{
		Name: name, Runs: c.Runs, Ended: c.Ended, Contended: c.Contended, Busy: c.Busy, Abandoned: c.Abandoned, Fences: c.FenceRefused, DeadLetter: c.DeadLettered,
		Wait: fmt.Sprint(waits.Quantile(tail)), Latency: fmt.Sprint(latencies.Quantile(tail)),
	}
	at := 0
	for _, part := range []struct {
		n    int64
		tone string
		what string
	}{{c.Busy, "bad", "busy again"}, {c.Contended - c.Busy, "warn", "contended"}, {c.Ended - c.Contended, "good", "without contention"}, {c.Runs - c.Ended, "idle", "under way"}} {
		if part.n <= 0 || c.Runs <= 0 {
			continue
		}
		w := min(max(1, int(part.n*barWidth/c.Runs)), barWidth-at)
		a.Bar = append(a.Bar, Segment{at, w, part.tone, fmt.Sprintf("%d %s", part.n, part.what)})
		at += w
	}
	return a
}

// waveOf draws two lines, each as high as its own highest value.
func waveOf(samples []facts.Sample, now time.Time) Wave {
	if len(samples) < 2 {
		return Wave{}
	}
	w := Wave{Width: waveWidth, Height: waveHeight, Since: moment(&samples[0].At, now)}
	for _, s := range samples {
		w.MostBusy, w.MostWait = max(w.MostBusy, s.BusyPerMinute), max(w.MostWait, s.P95Millis)
	}
	whole := samples[len(samples)-1].At.Sub(samples[0].At)
	line := func(of func(facts.Sample) int64, most int64) string {
		var b strings.Builder
		for _, s := range samples {
			x := int(int64(waveWidth-4) * int64(s.At.Sub(samples[0].At)) / int64(max(1, whole)))
			fmt.Fprintf(&b, "%d,%d ", x+2, waveHeight-4-int((waveHeight-8)*of(s)/max(1, most)))
		}
		return b.String()
	}
	w.Busy = line(func(s facts.Sample) int64 { return s.BusyPerMinute }, w.MostBusy)
	w.Wait = line(func(s facts.Sample) int64 { return s.P95Millis }, w.MostWait)
	w.Summary = fmt.Sprintf("Busy retries, up to %d a minute, and p95 of the lock wait, up to %d ms, in %d samples", w.MostBusy, w.MostWait, len(samples))
	return w
}
