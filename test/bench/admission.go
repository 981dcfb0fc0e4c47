// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/syncopate-dev/syncopate/api/v1alpha1"
)

// gate is a way to decide who is admitted; each is a policy of its own, with a class of
// the same name.
type gate struct {
	name string
	set  func(*v1alpha1.AdmissionPolicy)
}

func gates() []gate {
	lock := func(mode v1alpha1.JitterMode) func(*v1alpha1.AdmissionPolicy) {
		return func(a *v1alpha1.AdmissionPolicy) {
			a.Strategy = v1alpha1.AdmissionStrategyLock
			a.Lock.Retry.Mode = mode
		}
	}
	return []gate{
		{"Atomic", func(*v1alpha1.AdmissionPolicy) {}},
		{"Lock fixed", lock(v1alpha1.JitterModeFixed)},
		{"Lock jittered", lock(v1alpha1.JitterModeJittered)},
	}
}

// clientJob is how long the job of a client's run takes.
const clientJob = 300 * time.Millisecond

// far is a limit that is never reached.
const far = 100000

// admissions measures many starts at once for one tenant: decisions alone, then creations
// through the API server and the webhook, then what clients make of refusals, and a burst
// against one hot lock.
func admissions(ctx context.Context, st *stage, r *report) (err error) {
	if err := decisions(ctx, st, r); err != nil {
		return err
	}
	w, err := st.newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(ctx)) }()
	d, err := w.openDoor(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	few, many := st.size(100, 20), st.size(400, 40)
	for _, b := range []burst{{few, 2}, {many, far}} {
		if err := d.compare(ctx, r, b); err != nil {
			return err
		}
	}
	if err := d.clients(ctx, r, few); err != nil {
		return err
	}
	if err := d.hotLock(ctx, r, st.size(10, 4)); err != nil {
		return err
	}
	r.note("Starts are creations through the API server and the webhook, without any retry of the client. Without a policy: the same creations, of which the gate is not asked.")
	r.note("Clients: %d come at once for a limit of 10; a run has one job of %s. onLimit Queue is the measure: there nobody tries again.", few, clientJob)
	r.plot(barPlot{title: "Starts at the same moment: p95", y: "ms", table: burst{few, 2}.String(), names: []string{"p95"}}.of(r, "starts"))
	r.plot(barPlot{title: "Requests for each run that was started", y: "requests", table: "clients that come again", names: []string{"requests per run"}}.of(r, "clients"))
	return nil
}

// decisions runs the benchmark of package admission: a hundred decisions at once on Redis alone.
func decisions(ctx context.Context, st *stage, r *report) error {
	bar := progress("decisions on Redis alone", 1)
	cmd := exec.CommandContext(ctx, "go", "test", "./internal/quota/store", "-run", "^$", "-bench", "Decision$", "-benchtime", fmt.Sprintf("%dx", st.size(20, 3)))
	cmd.Dir = st.options.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("benchmark of decisions: %w\n%s", err, out)
	}
	found := benchmarkMetrics(string(out))
	for _, g := range gates() {
		key := strings.ToLower(strings.ReplaceAll(g.name, " ", "-"))
		in := r.in("100 decisions at once on Redis, limit 2", g.name)
		in.add("p50", "ms", found[key+"-p50-ms"])
		p95 := in.add("p95", "ms", found[key+"-p95-ms"])
		in.add("busy (503)", "%", found[key+"-busy-%"]).atMostFor(g.name == "Atomic", 0)
		in.add("p95 / Atomic", "", found[key+"-p95-ms"]/found["atomic-p95-ms"])
		p95.atMostFor(g.name == "Atomic", 50)
	}
	return bar.Finish()
}

// benchmarkMetrics reads the values of a Go benchmark by their unit.
func benchmarkMetrics(out string) map[string]float64 {
	found := map[string]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		for i := 2; i+1 < len(fields); i += 2 {
			if v, err := strconv.ParseFloat(fields[i], 64); err == nil {
				found[fields[i+1]] = v
			}
		}
	}
	return found
}

// burst is a number of starts at the same moment.
type burst struct{ starts, limit int }

func (b burst) String() string {
	if b.limit == far {
		return fmt.Sprintf("%d starts at once, limit far away", b.starts)
	}
	return fmt.Sprintf("%d starts at once, limit %d", b.starts, b.limit)
}

// compare measures a burst without a policy, then with each strategy. The first burst warms
// connections and caches, and is not measured.
func (d *door) compare(ctx context.Context, r *report, b burst) error {
	var plain []answer
	for _, name := range []string{"warm up: ", "without a policy: "} {
		var err error
		if plain, err = d.startAll(ctx, name+b.String(), "unlimited", b.starts); err != nil {
			return err
		}
		if err := d.clean(ctx); err != nil {
			return err
		}
	}
	base := report95(r.in(b.String(), "without a policy"), plain, b.starts, 0)
	for _, g := range gates() {
		class, err := d.policy(ctx, g, b.limit, v1alpha1.OnLimitReject)
		if err != nil {
			return err
		}
		answers, err := d.startAll(ctx, g.name+": "+b.String(), class, b.starts)
		if err != nil {
			return err
		}
		report95(r.in(b.String(), g.name), answers, min(b.starts, b.limit), base)
		if err := d.clean(ctx); err != nil {
			return err
		}
	}
	return nil
}

// report95 counts the answers, and returns the 95th percentile in milliseconds.
func report95(in section, answers []answer, want int, base float64) float64 {
	var took []time.Duration
	codes := map[int]int{}
	for _, a := range answers {
		took = append(took, a.took)
		codes[a.code]++
	}
	all := float64(len(answers))
	p95 := millis(percentile(took, 95))
	in.add("p50", "ms", millis(percentile(took, 50)))
	in.add("p95", "ms", p95)
	in.add("created", "", float64(codes[created]))
	in.add("of", "", float64(want))
	in.add("429", "%", 100*float64(codes[429])/all)
	in.add("503", "%", 100*float64(codes[503])/all).atMostFor(in.name == "Atomic", 0)
	in.add("other", "%", 100*float64(len(answers)-codes[created]-codes[429]-codes[503])/all)
	if base > 0 {
		in.add("p95 / without", "", p95/base)
	}
	return p95
}

// atMostFor sets a goal for some cases only.
func (f *figure) atMostFor(judged bool, goal float64) {
	if judged {
		f.atMost(goal)
	}
}

// limiting is a policy for a class of the same name.
func limiting(name string, g gate, limit int, onLimit v1alpha1.OnLimit) *v1alpha1.LockPolicy {
	p := &v1alpha1.LockPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.LockPolicySpec{
			WorkloadClasses: []string{name}, Admission: v1alpha1.AdmissionPolicy{MaxConcurrentRuns: new(int32(limit)), OnLimit: onLimit},
		},
	}
	g.set(&p.Spec.Admission)
	return p
}
